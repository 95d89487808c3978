"""Sizings: decide while a simulation runs which jobs run, and on how many nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.jobs.resizing import own_jobs
from hpctwin.engine.operations.clock import go_to
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import MS_PER_S, Cluster, Workload, to_ms
from hpctwin.model.text import count_text
from hpctwin.policies import Policy
from hpctwin.simulation.running.advance import Outcome, asked_again_s
from hpctwin.simulation.state.base import SimulationBase
from hpctwin_sizing.refusals import check_sized
from hpctwin_sizing.resizing import (
    SizeState,
    replace_state,
    reset_size,
    resize,
    resume_sizes,
    rules_of,
    saved_sizes,
    work_done,
)
from hpctwin_sizing.view import SizedJob, SizeRule, Sizes, SizeView

__all__ = ["Sizing"]

QUIET_S = 366 * 86_400.0
"""Longest wait of jobs for a sizing to start one if nothing else happens, in s."""


class Sizing:
    """Sizes of jobs by a rule, for the argument ``sizing`` of `hpctwin.Simulation`.

    Args:
        rule: Function that decides which jobs run, and on how many nodes; it is called after each
            event time.

    Example:
        >>> simulate(jobs, 8, sizing=Sizing(share))
    """

    def __init__(self, rule: SizeRule) -> None:
        self.rule = rule
        own = getattr(rule, "name", None) or getattr(rule, "__name__", None)
        self.name = str(own or type(rule).__name__)

    def check(self, cluster: Cluster, policy: Policy, workload: Workload) -> None:
        """Check that the sizes of these jobs can be decided while they run.

        Raises:
            ConfigError: They cannot.
        """
        check_sized(cluster, policy, workload)

    def begin(self, simulation: SimulationBase) -> SizeState:
        """Return the state of a simulation in which nothing has happened."""
        own_jobs(simulation.state)
        return SizeState(expected_ms=simulation.expected_ms())

    def expected_ms(self, simulation: SimulationBase) -> npt.NDArray[np.int64]:
        """Return the expected runtime of each job on the nodes it asks for, in ms [jobs]."""
        expected: npt.NDArray[np.int64] = simulation.sized.expected_ms
        return expected

    def save(self, simulation: SimulationBase) -> dict[str, Any]:
        """Return the state of the jobs as plain values, for a file."""
        return saved_sizes(simulation)

    def resume(self, simulation: SimulationBase, saved: Mapping[str, Any]) -> None:
        """Continue from the values that `save` returned."""
        resume_sizes(simulation, saved)

    def advance(
        self,
        simulation: SimulationBase,
        advance: Callable[..., Outcome],
        *,
        until_s: float | None,
        instants: int | None,
    ) -> Outcome:
        """Advance one event time after another, and call the rule after each.

        A job that loses a node to a failure becomes pending, with the work it had done before its
        last stretch.

        Args:
            simulation: Simulation that is advanced.
            advance: Function that advances the simulation without calling the rule.
            until_s: As for `Simulation.advance`.
            instants: As for `Simulation.advance`.

        Raises:
            PolicyError: The rule failed, or gave impossible sizes.
            SimulationError: Jobs wait, and the rule starts none.
        """
        left = instants
        while left is None or left > 0:
            next_call_s = simulation.sized.next_call_s
            times = [time for time in (until_s, next_call_s) if time is not None]
            told = int(simulation.state.clock.lost)
            outcome = advance(min(times, default=None), instants=1)
            if simulation.done:
                return "done"
            _reset_requeued(simulation, told)
            # Failures to come are always events, so they do not count as something that still happens.
            if outcome == "stepped" and int(simulation.state.clock.only_outages_since) < 0:
                replace_state(simulation, last_s=simulation.now_s)
            due = next_call_s is not None and simulation.now_s >= next_call_s
            if outcome == "reached" and not due:
                return "reached"
            if (
                outcome == "done"
                and not due
                and not _moves_to_call(simulation, next_call_s, until_s)
            ):
                return "done"
            if simulation.now_s - simulation.sized.last_s > QUIET_S:
                _give_up(simulation)
            _call(self, simulation, advance)
            if left is not None:
                left -= 1
        return "stepped"


def _reset_requeued(simulation: SimulationBase, told: int) -> None:
    """Reset jobs that failures requeued since the last call to the nodes they ask for."""
    lost = simulation.state["lost"][told : simulation.state.clock.lost]
    for row in lost["job"].tolist():
        if int(simulation.column("phase")[row]) == layout.WAITING:
            reset_size(simulation, row)


def _moves_to_call(
    simulation: SimulationBase, next_call_s: float | None, until_s: float | None
) -> bool:
    """Set the clock to the next call if no event is left; return whether it was set."""
    if not int(simulation.state.clock.queued):
        return False
    if next_call_s is None:
        _give_up(simulation)
    assert next_call_s is not None
    if until_s is not None and next_call_s > until_s:
        return False
    go_to(simulation.state, to_ms(next_call_s))
    return True


def _give_up(simulation: SimulationBase) -> None:
    raise SimulationError(
        f"{count_text(int(simulation.state.clock.queued), 'pending job')} at {simulation.now_s:g} s with "
        "no event to come, and the sizing function starts none; start a job, or give next_call_s"
    )


def _call(sizing: Sizing, simulation: SimulationBase, advance: Callable[..., Outcome]) -> None:
    """Call the rule once and apply what it wants."""
    what = f"sizing {sizing.name!r}"
    try:
        wanted = sizing.rule(_view(simulation))
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{what} failed at {simulation.now_s:g} s: {error!r}") from error
    if wanted is None:
        wanted = Sizes()
    where = f"{what} at {simulation.now_s:g} s"
    if not isinstance(wanted, Sizes):
        raise PolicyError(f"{where} returned {wanted!r}; it must return Sizes or None")
    next_call_s = asked_again_s(simulation, wanted.next_call_s, where)
    try:
        resize(simulation, wanted.nodes, advance)
    except SimulationError as error:
        raise PolicyError(f"{where}: {error}") from error
    replace_state(simulation, next_call_s=next_call_s)


def _view(simulation: SimulationBase) -> SizeView:
    sim, workload = simulation.state, simulation.workload
    rows = np.concatenate([sim["queue"][: sim.clock.queued], sim.running["job"]])
    return SizeView(
        now_s=simulation.now_s,
        nodes=simulation.cluster.node_count - int(sim["stock"]["down"][: sim.pools].sum()),
        free_nodes=simulation.free_nodes(),
        jobs=tuple(_seen(simulation, row, workload.job_id[row]) for row in np.sort(rows).tolist()),
    )


def _seen(simulation: SimulationBase, row: int, job_id: Any) -> SizedJob:
    rules = rules_of(simulation, row)
    runs = bool(simulation.column("phase")[row] == layout.RUNNING)
    expected = simulation.sized.expected_ms[row]
    left = expected - work_done(simulation, row, rules)
    return SizedJob(
        job_id=job_id.item() if isinstance(job_id, np.generic) else job_id,
        submit_s=int(simulation.submit_ms[row]) / MS_PER_S,
        nodes=rules.nodes,
        min_nodes=rules.least,
        max_nodes=rules.most,
        size=int(simulation.state["job"]["nodes"][row]) if runs else 0,
        left_s=float(left) / MS_PER_S,
        expected_s=int(expected) / MS_PER_S,
        resize_s=rules.resize_ms / MS_PER_S,
        begun=runs or row in simulation.sized.done,
        suspendable=rules.suspendable,
        speedup=rules.speedup,
    )
