"""A simulation that can be stopped, looked at, forked, saved and gone on with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.clock import stop_at_start_of
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.input.arguments import check_arguments
from hpctwin.model.text.progress import progress_bar
from hpctwin.model.workload.dependencies import chain_text, doomed_by
from hpctwin.policies import Policy, PolicyLike
from hpctwin.simulation.lowering.preemption import suspends
from hpctwin.simulation.result.result import Result, make_result
from hpctwin.simulation.running.advance import Outcome, advance_engine
from hpctwin.simulation.running.options import SimulationOptions, spelled_out
from hpctwin.simulation.state.base import SimulationBase

if TYPE_CHECKING:
    from hpctwin.energy.sizing.sizing import Sizing

__all__ = ["Simulation", "simulate"]


class Simulation(SimulationBase):
    """One workload on one machine under one policy.

    Args:
        workload: the jobs, or the path of a trace.
        cluster: the machine, a number of equal nodes, or the path of a machine's file. Where it is known what
            its nodes draw, they have power states.
        policy: such as ``"wfp+easy~psus:20m"``; see `hpctwin.policies.parse_policy`. Or an ordering.
        backfill, order, reservations, candidates, placement, power, settings: parts of it, in place of its
            own; see `hpctwin.policies.make_policy`.
        sizing: decides who runs and on how many nodes, at each instant (`hpctwin.energy.sizing.sizing`); the
            backfill is then ``outside``.
        overrun: whether walltimes end jobs (``terminate``) or not (``continue``).
        on_dependency_failure: what becomes of a job whose ``afterok`` cannot come true.
        expected_s: what the scheduler expects each job to run, seconds [jobs]; the walltimes if left out.
        risk: predicted probability that each job fails [jobs], for orderings that use it; 0 if left out.
        begin_s: jobs wait in any case until then, seconds [jobs]; see `hpctwin.energy.cheapest_begins`.
        track_nodes: whether nodes have identity, for a map of who ran where; always so with power states,
            node failures and placements other than first and best fit.
        log: whether to keep each node's past power states, for the node log, costs and charts.
        seed: of random placement.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
    """

    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Run to the end.

        Args:
            progress: called now and then with the share of jobs submitted, 0 to 1.
        """
        self._run(progress)
        return self.result()

    def finish(self, progress: Callable[[float], None] | None = None) -> Result:
        """Run to the end for the last time: what is not needed for the result goes before that is made.

        The simulation is of no use any more; at its peak, a run takes a third less memory.

        Args:
            progress: as of `run`.
        """
        self._run(progress)
        # Where sizes were decided, what jobs have is known there alone; stretches are told of it.
        stretches = self.sizing is not None or suspends(self.cluster)
        # The engine alone knows which jobs have a think time.
        thinks = bool(self._sim["job"]["thinks"].any())
        if not (self.cluster.has_power or self.workload.shares_nodes or stretches or thinks):
            self._sim.forget("job")
        return self.result()

    def _run(self, progress: Callable[[float], None] | None) -> None:
        if progress is not None:
            first_s, step = self._first_ms / MS_PER_S, max(self.workload.span_s, 1.0) / 50
            arrived = 0
            while (
                arrived < len(self.workload)
                and self.advance(max(self.now_s, first_s) + step) == "reached"
            ):
                arrived = int(self._sim.clock.arrived)
                progress(arrived / len(self.workload))
        self.advance()
        if progress is not None:
            progress(1.0)

    @check_arguments()
    def advance(self, until_s: float | None = None, *, instants: int | None = None) -> Outcome:
        """Go on until a time (its events included), for so many instants, or to the end.

        Args:
            until_s: seconds; None for no limit.
            instants: at most so many event times; None for no limit.

        Returns:
            ``done`` if nothing is left to happen, ``reached`` if ``until_s`` was, ``stepped`` if the
            instants were used up.

        Raises:
            PolicyError: the ordering or the control function failed, or gave what cannot be.
            SimulationError: the simulation had failed before; or jobs wait, and the control function left all
                they need switched off.
        """
        go_on = partial(advance_engine, self)
        cap, control = self.cluster.cap, self.policy.power.control
        if self.sizing is not None:
            from hpctwin.simulation.running.sizing import advance_sized

            return advance_sized(self, self.sizing, go_on, until_s=until_s, instants=instants)
        if cap is not None and cap.lower_modes:
            from hpctwin.simulation.running.cap_fitting import ModeFitting

            return ModeFitting(cap, self).advance(go_on, until_s=until_s, instants=instants)
        if control is not None:
            from hpctwin.simulation.running.control import advance_controlled

            return advance_controlled(self, control, go_on, until_s=until_s, instants=instants)
        return go_on(until_s, instants=instants)

    def stop(self) -> None:
        """Have `advance` end soon in whatever thread it runs; the simulation cannot go on."""
        self.stopped = True

    def begin(self, job_ids: Iterable[Any]) -> list[Any]:
        """Start waiting jobs now, in this order, under the backfill ``outside``.

        Args:
            job_ids: of jobs that wait.

        Returns:
            Those that did not start: they do not fit beside the others and what runs, or may not (limits,
            nodes that are down).

        Raises:
            SimulationError: a job is not there, does not wait, or is named twice; or another backfill is
                set.
        """
        from hpctwin.simulation.running.control import begin

        return begin(self, job_ids, partial(advance_engine, self))

    def switch(self, *, on: Iterable[int] = (), off: Iterable[int] = ()) -> None:
        """Switch nodes on and off now.

        Args:
            on: numbers of nodes that are asleep.
            off: numbers of nodes that are idle.

        Raises:
            SimulationError: a node is in another state, is not there, or has no sleep state.
        """
        from hpctwin.simulation.state.node_control import switch

        switch(self, on=on, off=off)

    def set_mode(self, group: str, mode: str) -> None:
        """Put the nodes of a group into another DVFS mode now; jobs on them go on at its speed.

        What is left of a job takes as much longer as its slowest node has become slower, to the
        millisecond, rounded up. Its walltime stays as it is.

        Args:
            group: name of a node group.
            mode: name of one of its modes.

        Raises:
            UnknownNameError: there is no such group or mode.
            SimulationError: there is a power cap, which counts with the modes at the beginning.
        """
        from hpctwin.simulation.state.node_control import set_mode

        set_mode(self, group, mode)

    def run_until_started(self, row: int) -> float | None:
        """Run until the job in a row of the workload has started; its start in seconds, or None."""
        stop_at_start_of(self._sim, row)
        self.advance()
        stop_at_start_of(self._sim, -1)
        start = int(self.column("start")[row])
        return None if start < 0 else start / MS_PER_S

    def result(self) -> Result:
        """What has happened so far."""
        return make_result(self)

    def why_doomed(self, most: int = 10) -> list[str]:
        """Jobs that can never start since a job they wait for cannot complete: a sentence for each.

        Args:
            most: so many sentences; one more tells how many are left.
        """
        return list(_why_doomed(self, most))

    def save(self, path: str | Path) -> None:
        """Write the whole simulation to a file that `load` goes on from."""
        from hpctwin.simulation.running.saved import save

        save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, *, policy: Policy | None = None, sizing: Sizing | None = None
    ) -> Self:
        """Read a simulation written by `save`.

        Args:
            path: the file.
            policy: to go on under another; needed if the ordering was a Python function.
            sizing: what decides on the sizes of jobs from now on, where they were decided before.

        Raises:
            SimulationError: the file is not such a file, or was written by another version; or a sizing is
                missing, or there was none.
        """
        from hpctwin.simulation.running.saved import load

        return load(cls, Path(path), policy, sizing)


@spelled_out(SimulationOptions)
@check_arguments("workload", "cluster", "policy")
def simulate(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str],
    policy: PolicyLike | None = None,
    backfill: str | None = None,
    *,
    progress: bool = False,
    **options: Unpack[SimulationOptions],
) -> Result:
    """Simulate a workload on a machine to the end.

    Args:
        workload: the jobs, or the path of a trace.
        cluster: the machine, a number of equal nodes, or the path of a machine's file.
        policy: such as ``"wfp+easy~psus:20m"``; see `hpctwin.policies.parse_policy`. Or an ordering: a
            name, a formula, a function.
        backfill: in place of the policy's own: see `hpctwin.policies.make_policy`.
        progress: whether to show how far it is, in a terminal or a notebook.
        options: further arguments of `Simulation`.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
    """
    simulation = Simulation(workload, cluster, policy, backfill, **options)
    if not progress:
        return simulation.finish()
    with progress_bar(f"{simulation.workload.name} under {simulation.policy.name}") as told:
        return simulation.finish(told)


def _why_doomed(simulation: SimulationBase, most: int = 10) -> Iterator[str]:
    """A sentence for each of the first jobs that can never start, as far as can be told beforehand.

    A job cannot complete if the machine can never run it, if it fails, or if it runs past its walltime
    and that ends it. Node failures and cancellations are not foreseen.

    Args:
        simulation: one that may have begun or not.
        most: so many sentences; one more tells how many such jobs are left.
    """
    workload = simulation.workload
    rejected = simulation.rejects()
    found = doomed_by(workload.dependencies, _cannot_complete(simulation))
    then = {"cancel": "it is cancelled", "hold": "it is held for ever"}
    for row in sorted(found)[:most]:
        chain = _chain(found, row)
        last = chain[-1]
        if rejected[last]:
            reason = f"can never run on cluster {simulation.cluster.name!r}"
        elif workload.fails is not None and workload.fails[last]:
            reason = "fails"
        else:
            reason = "runs past its walltime"
        names = chain_text([str(workload.job_id[one]) for one in chain])
        yield (
            f"job {workload.job_id[row]} can never start, "
            f"{then[simulation.on_dependency_failure]}: job {workload.job_id[last]} {reason} "
            f"(chain {names}; each waits for the next)"
        )
    if len(found) > most:
        yield f"… and {len(found) - most:,} more jobs that can never start"


def _cannot_complete(simulation: SimulationBase) -> npt.NDArray[np.bool_]:
    workload = simulation.workload
    bad = simulation.rejects()
    if workload.fails is not None:
        bad = bad | workload.fails
    if simulation.overrun == "terminate":
        # On the fastest nodes; on slower ones more may.
        shortest = np.ceil(workload.runtime_ms / simulation.state["pool"]["speed"].max())
        bad = bad | (shortest > workload.walltime_ms)
    return bad


def _chain(found: dict[int, int], row: int) -> tuple[int, ...]:
    chain = [row]
    while chain[-1] in found:
        chain.append(found[chain[-1]])
    return tuple(chain)
