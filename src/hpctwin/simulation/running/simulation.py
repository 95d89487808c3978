"""A simulation that can be stopped, inspected, forked, saved and continued.

Options that functions pass on to `Simulation`, for type checkers and ``help``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.clock import stop_at_start_of
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, NEVER_MS, Cluster, Workload
from hpctwin.model.arguments import check_arguments
from hpctwin.model.text import count_text, progress_bar
from hpctwin.model.workload.dependencies import chain_text, doomed_by
from hpctwin.policies import OrderingLike, PlacementLike, Policy, PolicyLike, PowerLike
from hpctwin.simulation.lowering.preemption import suspends
from hpctwin.simulation.result.result import Result, make_result
from hpctwin.simulation.running.advance import Outcome, advance_engine
from hpctwin.simulation.state.arguments import SizingHook
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["RunOptions", "Simulation", "SimulationOptions", "simulate", "spelled_out"]

F = TypeVar("F", bound=Callable[..., Any])


class RunOptions(TypedDict, total=False):
    """Options of how a simulation runs, whatever its policy; see `Simulation`."""

    overrun: Literal["terminate", "continue"]
    on_dependency_failure: Literal["cancel", "hold"]
    expected_s: npt.ArrayLike | None
    risk: npt.ArrayLike | None
    begin_s: npt.ArrayLike | None
    sharing: Literal["simgrid", "fair"] | None
    track_nodes: bool
    log: bool
    tau_s: float
    seed: int


class SimulationOptions(RunOptions, total=False):
    """All options that `Simulation` takes by name."""

    order: OrderingLike | None
    reservations: int | None
    candidates: OrderingLike | None
    placement: PlacementLike | None
    power: PowerLike | None
    settings: Mapping[str, Any] | None
    sizing: SizingHook | None


def spelled_out(options: type[RunOptions]) -> Callable[[F], F]:
    """Return a decorator that puts the options of ``**options`` into a signature.

    Args:
        options: The options; their defaults are those of `Simulation`.
    """
    named = [
        parameter
        for name, parameter in inspect.signature(SimulationBase.__init__).parameters.items()
        if name in options.__annotations__
    ]

    def name_them(function: F) -> F:
        signature = inspect.signature(function)
        own = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return function

    return name_them


class Simulation(SimulationBase):
    """One workload on one cluster under one policy.

    Args:
        workload: The jobs, or the path of a trace.
        cluster: The cluster, a number of equal nodes, or the path of a cluster file. Nodes have
            power states if the power draw of the cluster is known.
        policy: Policy such as ``"wfp+easy~psus:20m"``, or an ordering; see
            `hpctwin.policies.parse_policy`. backfill, order, reservations, candidates, placement,
            power, settings: Parts that replace those of the policy; see
            `hpctwin.policies.make_policy`.
        sizing: Decides at each event time which jobs run, and on how many nodes, such as
            `hpctwin_sizing.Sizing` (package hpctwin-sizing); the backfill is then ``outside``.
        sharing: How jobs that compute and communicate share the hosts and links of the cluster:
            ``simgrid`` (as SimGrid does) or ``fair``; see docs/concepts/networks.md. Without it,
            only jobs whose length does not depend on others are simulated.
        overrun: Whether walltimes end jobs (``terminate``) or not (``continue``).
        on_dependency_failure: What happens to a job whose ``afterok`` can no longer be satisfied:
            ``cancel`` or ``hold``.
        expected_s: Runtime that the scheduler expects of each job, in seconds [jobs]; by default
            the walltime.
        risk: Predicted probability that each job fails, for orderings that use it [jobs]; 0 by
            default.
        begin_s: Earliest start of each job, in seconds [jobs]; see
            `hpctwin.energy.cheapest_start_times`.
        track_nodes: Whether nodes have identity, so that the result shows where each job ran.
            Always on with power states, node failures, and placements other than first and best
            fit.
        log: Whether to keep each node's past power states, for the node log, costs and charts, and
            the loads of links over time.
        tau_s: Threshold of bounded slowdowns, in seconds.
        seed: Seed of random placement.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: The parts are invalid or
        incompatible.
    """

    @check_arguments("progress")
    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Run to the end and return the result.

        Args:
            progress: Function called from time to time with the share of jobs submitted, 0 to 1.
        """
        self._run(progress)
        return self.result()

    def finish(self, progress: Callable[[float], None] | None = None) -> Result:
        """Run to the end for the last time and return the result, with less memory.

        Arrays that the result does not need are dropped before it is made, so the peak is a third
        lower. The simulation cannot be used afterwards.

        Args:
            progress: As for `run`.
        """
        self._run(progress)
        # With a sizing or suspension, only the engine knows what jobs had, and the table of
        # stretches needs it.
        stretches = self.sizing is not None or suspends(self.cluster)
        # Only the engine knows which jobs have a think time.
        thinks = bool(self._sim["job"]["thinks"].any())
        if not (self.cluster.has_power or self.shares_nodes or stretches or thinks):
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
        """Advance to a time (events at it included), for N event times, or to the end.

        Args:
            until_s: Time in seconds; None for no limit.
            instants: Largest number of event times; None for no limit.

        Returns:
            ``done`` if no event is left, ``reached`` if ``until_s`` was reached, ``stepped`` after
            ``instants`` event times.

        Raises:
            ConfigError: ``instants`` is negative.
            PolicyError: The ordering or the control function failed or gave something impossible.
            SimulationError: The simulation had failed before; or jobs wait, and the control
                function keeps the nodes they need switched off.
        """
        if instants is not None and instants < 0:
            raise ConfigError(f"instants is {instants}; it must be 0 or more, or None")
        if until_s is not None:
            # Later times do not fit in whole milliseconds.
            last_s = NEVER_MS / MS_PER_S
            until_s = max(until_s, -last_s) if until_s < last_s else None
        go_on = partial(advance_engine, self)
        cap, control = self.cluster.cap, self.policy.power.control
        if self.network is not None:
            from hpctwin.simulation.running.advance import advance_contended

            self.network = self.network.fork()  # forks of this simulation share the one before
            go_on = partial(advance_contended, self, go_on)
        if self.sizing is not None:
            return self.sizing.advance(self, go_on, until_s=until_s, instants=instants)
        if cap is not None and cap.lower_modes:
            from hpctwin.simulation.running.control import ModeFitting

            return ModeFitting(cap, self).advance(go_on, until_s=until_s, instants=instants)
        if control is not None:
            from hpctwin.simulation.running.control import advance_controlled

            return advance_controlled(self, control, go_on, until_s=until_s, instants=instants)
        return go_on(until_s, instants=instants)

    def stop(self) -> None:
        """Make `advance` end soon in whatever thread it runs; it cannot continue."""
        self.stopped = True

    def begin(self, job_ids: Iterable[Any]) -> list[Any]:
        """Start pending jobs now, in this order, under the backfill ``outside``.

        Args:
            job_ids: Ids of pending jobs.

        Returns:
            Jobs that did not start: they do not fit next to the running jobs and those before them,
                or are not allowed to (limits, nodes that are down).

        Raises:
            SimulationError: A job does not exist, is not pending, or is named twice; or the policy
                has another backfill.
        """
        from hpctwin.simulation.running.control import begin

        return begin(self, job_ids, partial(advance_engine, self))

    @check_arguments()
    def switch(self, *, on: Iterable[int] = (), off: Iterable[int] = ()) -> None:
        """Switch nodes on and off now.

        Args:
            on: Numbers of sleeping nodes to switch on.
            off: Numbers of idle nodes to switch off.

        Raises:
            SimulationError: A node is in another state, does not exist, or has no sleep state.
        """
        from hpctwin.simulation.running.control import switch

        switch(self, on=on, off=off)

    @check_arguments()
    def set_mode(self, group: str, mode: str) -> None:
        """Put the nodes of a group into another DVFS mode now; jobs on them continue.

        The rest of a job takes longer by the factor by which its slowest node became slower. It is
        rounded up to the millisecond. The walltime does not change.

        Args:
            group: Name of a node group.
            mode: Name of one of its modes.

        Raises:
            UnknownNameError: There is no such group or mode.
            SimulationError: There is a power cap, which counts with the modes at the beginning.
        """
        from hpctwin.simulation.running.control import set_mode

        set_mode(self, group, mode)

    def run_until_started(self, row: int) -> float | None:
        """Run until the job in a row has started; return its start in seconds, or None."""
        stop_at_start_of(self._sim, row)
        self.advance()
        stop_at_start_of(self._sim, -1)
        start = int(self.column("start")[row])
        return None if start < 0 else start / MS_PER_S

    def result(self) -> Result:
        """Return what has happened so far."""
        return make_result(self)

    def unsatisfiable_jobs(self, most: int = 10) -> list[str]:
        """Return a sentence for each job that can never start because of its dependencies.

        Args:
            most: Largest number of sentences; one more counts the remaining jobs.
        """
        return list(_why_doomed(self, most))

    @check_arguments()
    def save(self, path: str | Path) -> None:
        """Write the whole simulation to a file, for `load` to continue from."""
        from hpctwin.simulation.running.saved import save

        save(self, Path(path))

    @classmethod
    @check_arguments()
    def load(
        cls, path: str | Path, *, policy: Policy | None = None, sizing: SizingHook | None = None
    ) -> Self:
        """Read a simulation written by `save`.

        Args:
            path: The file.
            policy: Policy from now on, if another; required if the ordering was a Python function.
            sizing: Sizing from now on; required exactly if the saved simulation had one.

        Raises:
            SimulationError: The file is not a saved simulation or was written by another version;
                or a sizing is missing, or there was none.
        """
        from hpctwin.simulation.running.saved import load

        return load(cls, Path(path), policy, sizing)


@check_arguments("workload", "cluster", "policy")
@spelled_out(SimulationOptions)
def simulate(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str],
    policy: PolicyLike | None = None,
    backfill: str | None = None,
    *,
    progress: bool = False,
    **options: Unpack[SimulationOptions],
) -> Result:
    """Simulate a workload on a cluster to the end and return the result.

    Args:
        workload: The jobs, or the path of a trace.
        cluster: The cluster, a number of equal nodes, or the path of a cluster file.
        policy: Policy such as ``"wfp+easy~psus:20m"``, see `hpctwin.policies.parse_policy`; or an
            ordering: a name, a formula, a function.
        backfill: Backfill that replaces the policy's; see `hpctwin.policies.make_policy`.
        progress: Whether to show a progress bar, in a terminal or a notebook.
        options: Further arguments of `Simulation`.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: The parts are invalid or
        incompatible.
    """
    simulation = Simulation(workload, cluster, policy, backfill, **options)
    if not progress:
        return simulation.finish()
    with progress_bar(f"{simulation.workload.name} under {simulation.policy.name}") as told:
        return simulation.finish(told)


def _why_doomed(simulation: SimulationBase, most: int = 10) -> Iterator[str]:
    """Yield a sentence for each of the first jobs that can be shown never to start.

    A job cannot complete if the cluster can never run it, if it fails, or if its walltime ends it.
    Node failures and cancellations are not predicted.

    Args:
        simulation: Simulation, which may have begun.
        most: Largest number of sentences; one more counts the remaining jobs.
    """
    workload = simulation.workload
    rejected = simulation.rejected_mask()
    found = doomed_by(workload.dependencies, _cannot_complete(simulation))
    then = {"cancel": "it is cancelled", "hold": "it is held indefinitely"}
    for row in sorted(found)[:most]:
        chain = _chain(found, row)
        last = chain[-1]
        if rejected[last]:
            reason = f"can never run on cluster {simulation.cluster.name!r}"
        elif workload.fails is not None and workload.fails[last]:
            reason = "fails"
        else:
            reason = "exceeds its walltime"
        names = chain_text([str(workload.job_id[one]) for one in chain])
        yield (
            f"job {workload.job_id[row]} can never start, "
            f"{then[simulation.on_dependency_failure]}: job {workload.job_id[last]} "
            f"{reason} (chain {names}; each waits for the next)"
        )
    if len(found) > most:
        yield f"… and {count_text(len(found) - most, 'more job')} that can never start"


def _cannot_complete(simulation: SimulationBase) -> npt.NDArray[np.bool_]:
    workload = simulation.workload
    bad = simulation.rejected_mask()
    if workload.fails is not None:
        bad = bad | workload.fails
    if simulation.overrun == "terminate":
        # On the fastest nodes; more jobs may exceed their walltime on slower ones.
        shortest = np.ceil(workload.runtime_ms / simulation.state["pool"]["speed"].max())
        bad = bad | (shortest > workload.walltime_ms)
    return bad


def _chain(found: dict[int, int], row: int) -> tuple[int, ...]:
    chain = [row]
    while chain[-1] in found:
        chain.append(found[chain[-1]])
    return tuple(chain)
