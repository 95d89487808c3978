"""Sizings: decide while a simulation runs which jobs run, and on how many nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.jobs.resizing import cleaned_jobs, own_jobs
from hpctwin.engine.operations.clock import go_to
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import MS_PER_S, Cluster, Workload, to_ms
from hpctwin.model.text import count_text
from hpctwin.policies import Policy
from hpctwin.simulation.running.advance import Outcome, advance_engine, asked_again_s
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
from hpctwin_sizing.site_rules import site_rules_of
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
        rules = site_rules_of(simulation.state, simulation.workload, simulation.cluster)
        own_jobs(simulation.state)
        return SizeState(simulation.expected_ms(), rules)

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
            told, cleaned = int(simulation.state.clock.lost), cleaned_jobs(simulation.state)
            outcome = advance(min(times, default=None), instants=1)
            if simulation.done:
                return "done"
            _reset_requeued(simulation, told, cleaned)
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
                if simulation.sized.refused:
                    return "done"
                _give_up(simulation)
            _call(self, simulation, advance)
            if left is not None:
                left -= 1
        return "stepped"


def _reset_requeued(simulation: SimulationBase, told: int, cleaned: npt.NDArray[np.int64]) -> None:
    """Reset jobs that failures or the end of a cleanup requeued to the nodes they ask for."""
    lost = simulation.state["lost"][told : simulation.state.clock.lost]
    for row in [*lost["job"].tolist(), *cleaned.tolist()]:
        if int(simulation.column("phase")[row]) == layout.WAITING:
            reset_size(simulation, row)


def _moves_to_call(
    simulation: SimulationBase, next_call_s: float | None, until_s: float | None
) -> bool:
    """Set the clock to the next call if no event is left; return whether it was set."""
    if not len(_pending(simulation)) or (next_call_s is None and simulation.sized.refused):
        return False
    if next_call_s is None:
        _give_up(simulation)
    assert next_call_s is not None
    if until_s is not None and next_call_s > until_s:
        return False
    go_to(simulation.state, to_ms(next_call_s))
    return True


def _pending(simulation: SimulationBase) -> npt.NDArray[np.int64]:
    """Return the rows of pending jobs that no limit holds back forever."""
    sim = simulation.state
    rows: npt.NDArray[np.int64] = sim["queue"][: sim.clock.queued]
    stuck: npt.NDArray[np.bool_] = simulation.sized.rules.stuck
    return rows[~stuck[rows]]


def _give_up(simulation: SimulationBase) -> None:
    raise SimulationError(
        f"{count_text(len(_pending(simulation)), 'pending job')} at {simulation.now_s:g} s with "
        "no event to come, and the sizing function starts none; start a job, or give next_call_s"
    )


def _call(sizing: Sizing, simulation: SimulationBase, advance: Callable[..., Outcome]) -> None:
    """Call the rule and apply what it wants.

    If the cluster refuses some of it, the rule is called again without these jobs.
    """
    where = f"sizing {sizing.name!r} at {simulation.now_s:g} s"
    refused: set[Any] = set()
    try:
        while True:
            wanted = _wanted(sizing, simulation, refused)
            next_call_s = asked_again_s(simulation, wanted.next_call_s, where)
            sizes = {job: size for job, size in wanted.nodes.items() if job not in refused}
            more = _refused(simulation, sizes) if simulation.sized.rules.refuse else set()
            if not more:
                break
            refused |= more
        resize(simulation, sizes, advance)
        if simulation.broken:
            raise SimulationError(simulation.broken)
    except SimulationError as error:
        raise PolicyError(f"{where}: {error}") from error
    replace_state(simulation, next_call_s=next_call_s, refused=bool(refused))


def _wanted(sizing: Sizing, simulation: SimulationBase, refused: Set[Any]) -> Sizes:
    """Call the rule once, without the jobs that the cluster refused what it wanted for them."""
    what = f"sizing {sizing.name!r}"
    try:
        wanted = sizing.rule(_view(simulation, refused))
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{what} failed at {simulation.now_s:g} s: {error!r}") from error
    if wanted is None:
        return Sizes()
    if not isinstance(wanted, Sizes):
        raise PolicyError(
            f"{what} at {simulation.now_s:g} s returned {wanted!r}; it must return Sizes or None"
        )
    return wanted


def _refused(simulation: SimulationBase, sizes: Mapping[Any, int]) -> set[Any]:
    """Return the jobs that would not get these sizes, by a trial on a copy without cleanup."""
    trial = simulation.fork()
    if trial.network is not None:
        trial.network = trial.network.fork()  # forks of the simulation share it
    rows = resize(trial, sizes, partial(advance_engine, trial), cleans=False)
    return {job for job in sizes if simulation.row_of(job) in rows}


def _view(simulation: SimulationBase, refused: Set[Any]) -> SizeView:
    """Return what the rule sees: refused jobs keep their nodes, or are not there."""
    sim, job_id = simulation.state, simulation.workload.job_id
    running, free = np.setdiff1d(sim.running["job"], cleaned_jobs(sim)), simulation.free_nodes()
    rows = np.sort(np.concatenate([_pending(simulation), running]))
    jobs = [_seen(simulation, row, job_id[row]) for row in rows.tolist()]
    return SizeView(
        now_s=simulation.now_s,
        nodes=free + int(sim["job"]["nodes"][running].sum()),
        free_nodes=free,
        jobs=tuple(
            job if job.job_id not in refused else _fixed(job)
            for job in jobs
            if job.size or job.job_id not in refused
        ),
    )


def _fixed(job: SizedJob) -> SizedJob:
    """Return a running job that keeps its nodes."""
    return replace(job, min_nodes=job.size, max_nodes=job.size, suspendable=False)


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
