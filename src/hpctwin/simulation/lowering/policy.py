"""A simulation's policy in the engine's form."""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy.typing as npt

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.passes import Pass, settings_of
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Decided, Sim, single
from hpctwin.model import MS_PER_S, Cluster, to_ms
from hpctwin.model.input.cached_attributes import kept
from hpctwin.policies import Ordering, Policy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.policies.placements import NodeScore
from hpctwin.simulation.lowering import power_states
from hpctwin.simulation.lowering.capacity import rules_of

__all__ = ["Deciding", "circumstances"]

MOST_KEPT = 64
"""So many policies are kept in the engine's form."""

_RACES_FROM = sorted(
    (
        layout.RACE_SHARED, layout.RACE_CHANGING, layout.RACE_SORTED, layout.RACE_LIMITED,
        layout.LINES_FROM,
    )
)  # fmt: skip
_KEEPING = threading.Lock()
_KEPT: dict[tuple[Any, ...], tuple[Policy, Cluster, Pass, Decided]] = {}


@cache
def _race() -> Kernel:
    """The tournament; only who may need it waits for the compiler."""
    from hpctwin.engine.operations.kernel import race

    return race


def circumstances(sim: Sim) -> tuple[Any, ...]:
    """What a policy's numbers depend on of jobs that have whole nodes without power states."""
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
    """What a policy is decided by.

    Args:
        sim: the engine's arrays.
        cluster: the machine.
        policy: the policy.
        ordering: its ordering, or what comes to the same.
        found: what starts jobs.
        power: what switches nodes; None where they have no power states.
        tracked: whether nodes have identity.
        terminate: whether walltimes end jobs.
        hold: whether jobs are held whose dependency cannot come true.
        log: whether past power states are kept.
        planned: whether the pass itself is needed where counting may do in its place.
        raced: whether a tournament is needed where it may come to pay.
        horizon: ms; node failures are known up to here.
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

    @property
    def scores(self) -> list[Ordering | NodeScore]:
        """All functions of the policy that give scores."""
        scores = self.ordering, self.policy.candidates, self.policy.placement.score
        return [score for score in scores if score is not None]

    @property
    def _depends_on_jobs(self) -> bool:
        """Whether its numbers depend on more of the jobs than `circumstances` tells."""
        return self.cluster.has_power or self.found.model.shared

    @property
    def lasts(self) -> bool:
        """Whether it would be made alike again in such circumstances: there is all that may come to pay."""
        return not self._depends_on_jobs and (not self._races or self._has_race())

    def made(self) -> Decided:
        """The policy's numbers (`engine.state.layout.Numbers`), read-only; what it needs is compiled.

        Where they depend on little of the jobs they are kept, for whoever takes the same policies on the same
        cluster again and again.
        """
        if self._depends_on_jobs:
            return Decided(self._made())
        # Functions that are equal may have been made when what they read was something else.
        compiled = [id(score.compiled) for score in self.scores]
        key = (self.policy, *compiled, id(self.cluster), *self._circumstances())
        kept = _KEPT.get(key)
        if kept is None:
            # With functions, cluster and pass themselves, so that no others have their ids.
            kept = self.policy, self.cluster, self.found, Decided(self._made())
            with _KEEPING:
                _KEPT[key] = kept
                if len(_KEPT) > MOST_KEPT:
                    del _KEPT[next(iter(_KEPT))]
        return kept[3]

    def _circumstances(self) -> tuple[Any, ...]:
        """All that `_made` asks of besides policy and cluster, of whole nodes without power states."""
        return (
            id(self.found),
            self.tracked,
            self.terminate,
            self.hold,
            self.log,
            self.planned,
            self._has_race(),
            self.horizon,
            *circumstances(self.sim),
        )

    def _made(self) -> dict[str, npt.NDArray[Any]]:
        from hpctwin.engine.operations.kernel import hooks

        policy, order = self.policy, self.ordering.compiled
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
        """What claims a job's nodes; None where that is not asked, or done by what switches nodes."""
        from hpctwin.engine.placement.node_selection import placing

        if not self.tracked or self.found.model.shared:
            return None
        claims = self.found.model.kernel("PLACING")
        if claims is not None:
            return claims
        preferred = (
            self.policy.power.power_pass.preferred if self.cluster.has_power else layout.LOWEST
        )
        return placing(self.policy.placement.number, int(preferred))

    def _rules(self) -> dict[str, Any]:
        """The fields of `engine.state.layout.Rules`."""
        cluster, policy, order = self.cluster, self.policy, self.ordering
        rules = {
            "pools": self.sim.pools,
            "placement": policy.placement.number,
            "terminate": self.terminate,
            "hold_dependents": self.hold,
            "requeue": cluster.failures.then == "requeue",
            "order_changes": order.changes,
            "order_power": order.power if order.changes else 1.0,
            "order_exact": order.exact,
            "race_from": self._race_from if self._races else layout.NEVER,
            "lines_from": layout.LINES_FROM,
            "others": self._others,
            "own_candidates": policy.candidates is not None,
            "fairshare": any(score.fairshare for score in self.scores),
            "chains": order.chain,
            "facts": any(score.facts for score in self.scores),
            "stepped": policy.backfill == OUTSIDE,
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
        rules |= rules_of(self.sim, policy, self.found)
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
        """`engine.state.layout.Rules.others`."""
        others = self.found.others
        if others is None or self.policy.setting("reservations") not in (None, 1):
            return -1
        # A plan is kept from pass to pass only where nothing but nodes of one pool is ever short.
        return -1 if others == layout.ALL_RESERVE and not self._only_nodes else others

    @property
    def _only_nodes(self) -> bool:
        sim = self.sim
        anything_else = sim.resources > 0 or sim.limited or sim.size("held") > 0
        return sim.pools == 1 and not anything_else and not self.cluster.has_power

    def _has_race(self) -> bool:
        """Whether there is a tournament: one that is needed, or ready to be taken."""
        return self._races and (self.raced or _race().at_hand())

    @property
    def _lined(self) -> bool:
        """Whether the lines of those that wait may be gone through."""
        order = self.ordering
        long_enough = self.sim.jobs >= layout.LINES_FROM
        return long_enough and order.changes and not order.fairshare and self._by_lines

    @kept
    def _races(self) -> bool:
        """Whether a tournament of those that wait may come to pay."""
        return self.sim.jobs >= self._race_from and self._by_lines

    @property
    def _by_lines(self) -> bool:
        """Whether to look for the first by their lines is the same as going through all."""
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
