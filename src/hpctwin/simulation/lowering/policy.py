"""A simulation's policy in the engine's form."""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.engine.capacity_models import SHARED_NODES
from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.passes import Pass, settings_of
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Decided, Sim, single
from hpctwin.model import MS_PER_S, Cluster, to_ms
from hpctwin.policies import Ordering, Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.policies.placements import NodeScore
from hpctwin.simulation.lowering import power_states

__all__ = ["Deciding", "circumstances"]

_BY = {"user": layout.BY_USER, "account": layout.BY_ACCOUNT}

MOST_KEPT = 64
"""Number of policies kept in the engine's form."""

_RACES_FROM = sorted(
    (
        layout.RACE_SHARED, layout.RACE_CHANGING, layout.RACE_SORTED, layout.RACE_LIMITED,
        layout.LINES_FROM,
    )
)  # fmt: skip
_KEEPING = threading.Lock()
_KEPT: dict[tuple[Any, ...], tuple[Policy, Cluster, Pass, Decided]] = {}


MOST_KINDS = 512
"""Number of kinds of jobs up to which there is a tournament on shared nodes.

It is equal to `engine.shared.job_starts.MANY_KINDS`.
"""


def circumstances(sim: Sim) -> tuple[Any, ...]:
    """Return the properties of jobs and state that decide a policy's numbers.

    They suffice for whole nodes without power states.
    """
    return (
        sim.pools,
        sim.resources > 0,
        bisect_right(_RACES_FROM, sim.jobs),
        sim.size("held") > 0,
        sim.limited,
        sim.partitions == 1,
        len(sim["promised"]) == 1,
    )


@dataclass(eq=False)
class Deciding:
    """Everything that decides how the engine runs a policy.

    Args:
        sim: The engine's arrays.
        cluster: The cluster.
        policy: The policy.
        ordering: The policy's ordering, or an equivalent one.
        found: Pass that starts jobs.
        power: Pass that switches nodes; None without power states.
        tracked: Whether nodes have identity.
        terminate: Whether jobs end at their walltime.
        hold: Whether jobs are held if their dependency can no longer be satisfied.
        log: Whether past power states are recorded.
        planned: Whether the pass itself is needed even where counting could replace it.
        raced: Whether the tournament is needed wherever it may pay.
        horizon: Time up to which node failures are known, in ms.
        stepped: Whether the engine stops after each event time, before the clock advances.
    """

    sim: Sim
    cluster: Cluster
    policy: Policy
    ordering: Ordering
    found: Pass
    power: PowerPass | None
    tracked: bool
    terminate: bool
    hold: bool
    log: bool
    planned: bool
    raced: bool
    horizon: int
    stepped: bool

    @property
    def scores(self) -> list[Ordering | NodeScore]:
        """All scoring functions of the policy."""
        scores = self.ordering, self.policy.candidates, self.policy.placement.score
        return [score for score in scores if score is not None]

    @property
    def _depends_on_jobs(self) -> bool:
        """Whether the numbers depend on more than `circumstances` returns."""
        return self.cluster.has_power or self.found.model.shared

    @property
    def lasts(self) -> bool:
        """Whether the same circumstances would give the same numbers again.

        This holds only if the tournament is compiled wherever it may pay.
        """
        return not self._depends_on_jobs and (not self._races or self._has_race())

    def made(self) -> Decided:
        """Return the policy's numbers (`engine.state.layout.Numbers`), read-only.

        Missing kernels are compiled. Numbers that depend on few properties of the jobs are cached,
        for callers that use the same policies on the same cluster repeatedly.
        """
        if self._depends_on_jobs:
            return Decided(self._made())
        # Equal functions may have been compiled when a value they read was different, so the key
        # has their ids.
        compiled = [id(one.compiled) for one in (*self.scores, *self.ordering.updates)]
        key = (self.policy, *compiled, id(self.cluster), *self._circumstances())
        kept = _KEPT.get(key)
        if kept is None:
            # Keep functions, cluster and pass alive, so that no other object gets their ids.
            kept = self.policy, self.cluster, self.found, Decided(self._made())
            with _KEEPING:
                _KEPT[key] = kept
                if len(_KEPT) > MOST_KEPT:
                    del _KEPT[next(iter(_KEPT))]
        return kept[3]

    def _circumstances(self) -> tuple[Any, ...]:
        """Return all inputs of `_made` except policy and cluster."""
        return (
            id(self.found),
            self.tracked,
            self.terminate,
            self.hold,
            self.log,
            self.planned,
            self._has_race(),
            self.horizon,
            self.stepped,
            *circumstances(self.sim),
        )

    def _made(self) -> dict[str, npt.NDArray[Any]]:
        from hpctwin.engine.operations.kernel import hooks

        policy, order, state = self.policy, self.ordering.compiled, self.ordering.state
        candidates, place = policy.candidates, policy.placement.score
        shared = self.found.model.shared
        return {
            "rules": single("rules", self._rules().items()),
            "hooks": hooks(
                order,
                order if candidates is None else candidates.compiled,
                None if place is None else place.compiled,
                self.found,
                self.power,
                started=state.started.compiled if state and state.started else None,
                ended=state.ended.compiled if state and state.ended else None,
                shared=SHARED_PLACEMENTS.find(policy.placement.shared_name) if shared else None,
                races=self._has_race(),
                lined=self._lined,
                placing=self._placing(),
                planned=self.planned or self._others < 0,
                counted=self._others >= 0,
            ),
            "numbers": settings_of(self.found.numbers, policy.numbers()),
            "power_numbers": settings_of(
                None if self.power is None else self.power.numbers, policy.power.numbers()
            ),
        }

    def _placing(self) -> Kernel | None:
        """Return the kernel that claims a job's nodes.

        It is None if nodes have no identity or the power pass claims them.
        """
        from hpctwin.engine.operations.kernel import placing

        if not self.tracked or self.found.model.shared:
            return None
        claims = self.found.model.placing
        if claims is not None:
            return claims
        preferred = (
            self.policy.power.power_pass.preferred if self.cluster.has_power else layout.LOWEST
        )
        return placing(self.policy.placement.number, int(preferred))

    def _rules(self) -> dict[str, Any]:
        """Return the fields of `engine.state.layout.Rules`."""
        cluster, policy, order = self.cluster, self.policy, self.ordering
        rules = {
            "pools": self.sim.pools,
            "placement": policy.placement.number,
            "terminate": self.terminate,
            "hold_dependents": self.hold,
            "requeue": cluster.failures.on_failure == "requeue",
            "order_changes": order.changes,
            "order_power": order.power if order.changes else 1.0,
            "order_exact": order.exact,
            "race_from": self._race_from if self._races else layout.NEVER,
            "lines_from": layout.LINES_FROM,
            "others": self._others,
            "own_candidates": policy.candidates is not None,
            "fairshare": any(score.fairshare for score in self.scores),
            "chains": order.chain,
            "facts": policy.placement.facts or any(score.facts for score in self.scores),
            "user_state": 0 if order.state is None else _BY[order.state.by],
            "stepped": self.stepped or policy.backfill == OUTSIDE,
            "in_order": self.found.in_order,
            "outage_horizon": self.horizon,
            "machine_nodes": cluster.node_count,
            "cleanup": to_ms(cluster.cleanup),
            "decay": math.log(2) / (cluster.fairshare.half_life * MS_PER_S),
            "fair_every": to_ms(cluster.fairshare.every),
        }
        if cluster.preemption is not None:
            rules["youngest_first"] = cluster.preemption.youngest_first
            rules["sent_back_for"] = to_ms(cluster.preemption.requeue_after)
        if self.found.by_node and self.found.model.by_node:
            rules["by_node"] = self.found.most_reservations(policy.numbers(), 1)
        if self.found.model.shared:
            from hpctwin.simulation.lowering.shared_nodes import most_promises

            rules["promises"] = most_promises(self.sim, policy, self.found)
        if cluster.has_power:
            rules |= power_states.power_rules(cluster, policy, log=self.log)
        return rules

    @property
    def _race_from(self) -> int:
        if self.ordering.fairshare:
            return layout.RACE_SHARED
        if self.ordering.changes:
            return layout.RACE_CHANGING
        return layout.RACE_LIMITED if self.sim.size("held") else layout.RACE_SORTED

    @property
    def _others(self) -> int:
        """How jobs behind the first are treated; see `engine.state.layout.Rules.others`."""
        others = self.found.others
        if others is None or self.policy.setting("reservations") not in (None, 1):
            return -1
        # A plan can be kept between passes only if nothing but nodes of one pool is ever short.
        return -1 if others == layout.ALL_RESERVE and not self._only_nodes else others

    @property
    def _only_nodes(self) -> bool:
        sim = self.sim
        anything_else = sim.resources > 0 or sim.limited or sim.size("held") > 0
        return sim.pools == 1 and not anything_else and not self.cluster.has_power

    def _has_race(self) -> bool:
        """Return whether the tournament may pay and is required or compiled already."""
        from hpctwin.engine.operations.kernel import tournament

        return self._races and (self.raced or tournament(self.found).at_hand())

    @property
    def _lined(self) -> bool:
        """Whether pending jobs may be compared by their linear scores."""
        order = self.ordering
        long_enough = self.sim.jobs >= layout.LINES_FROM
        return long_enough and order.changes and not order.fairshare and self._by_lines

    @kept
    def _races(self) -> bool:
        """Whether a tournament among the pending jobs may pay."""
        return self.sim.jobs >= self._race_from and (self._by_lines or self._by_kind)

    @property
    def _by_kind(self) -> bool:
        """Whether a tournament on shared nodes starts the same jobs as the pass itself."""
        order, sim = self.ordering, self.sim
        return (
            self.found.model is SHARED_NODES
            and self.found.raced is not None
            and self.policy.candidates is None
            and (order.power > 0 or not order.changes)
            and not order.chain
            and not (sim.limited or sim.size("held") or self.cluster.has_power)
            and sim.partitions == 1
            and sim.size("tried") <= MOST_KINDS
        )

    @property
    def _by_lines(self) -> bool:
        """Whether linear scores give the same first job as scoring all jobs at each pass."""
        order, sim = self.ordering, self.sim
        return (
            (order.power > 0 or not order.changes)
            and not order.chain
            and not (sim.size("held") and sim.limited)
            and 0 <= self._others < int(layout.ALL_RESERVE)
            and not self.cluster.has_power
            and sim.pools == 1
            and (not sim.limited or sim.partitions == 1)
        )
