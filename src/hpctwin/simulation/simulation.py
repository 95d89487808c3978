"""A simulation that can be stopped, looked at, forked, saved and gone on with."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hpctwin.engine import layout
from hpctwin.engine.passes import Pass, find_pass
from hpctwin.engine.sim import Sim, single
from hpctwin.engine.state import choose_pass, more_outages, more_room, new_sim
from hpctwin.errors import ConfigError, PolicyError, SimulationError
from hpctwin.model import MS_PER_S, NEVER_MS, Cluster, Workload, to_ms
from hpctwin.policies import Ordering, OrderingLike, Policy, make_policy
from hpctwin.simulation.given import as_cluster, as_workload
from hpctwin.simulation.interruptible import run_interruptible
from hpctwin.simulation.lower import lower
from hpctwin.simulation.outages import BLOCK_MS, Outages, drawn_outages, recorded_outages
from hpctwin.simulation.result import Result, make_result

if TYPE_CHECKING:
    from hpctwin.engine.power_passes import PowerPass

__all__ = ["Simulation", "simulate"]

_PLACEMENT = {
    "first-fit": layout.FIRST_FIT,
    "best-fit": layout.BEST_FIT,
    "contiguous": layout.CONTIGUOUS,
    "random": layout.RANDOM,
    "spread": layout.SPREAD,
}


SLICE_S = 0.02
"""So long the engine runs, about, before Python has its turn."""
MANY_WAITING = 500
"""With fewer jobs waiting, no pass takes long enough for Ctrl-C to be missed."""


class Simulation:
    """One workload on one cluster under one policy.

    Args:
        workload: the jobs, or the path of a trace.
        cluster: the machine, a number of equal nodes, or the path of a YAML file.
        order: ordering; see `hpctwin.policies.find_ordering` for what can be written.
        backfill: ``none``, ``first-fit``, ``easy``, ``conservative``, ``pack`` or ``pushdown``.
        reservations: jobs per partition that EASY protects.
        candidates: EASY's ordering of those that may pass; the same if left out.
        placement: ``first-fit``, ``best-fit``, ``contiguous``, ``random`` or ``spread``.
        policy: all of these in one, instead.
        overrun: whether walltimes end jobs (``terminate``) or not (``continue``).
        on_dependency_failure: what becomes of a job whose ``afterok`` cannot come true.
        expected_s: what the scheduler expects each job to run, seconds [jobs]; the walltimes if left out.
        risk: predicted probability that each job fails [jobs], for orderings that use it; 0 if left out.
        track_nodes: whether nodes have identity, for a map of who ran where; always so with node
            failures and placements other than first and best fit.
        seed: of random placement.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
    """

    def __init__(
        self,
        workload: Workload | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str],
        order: OrderingLike = "fcfs",
        backfill: str = "easy",
        *,
        reservations: int = 1,
        candidates: OrderingLike | None = None,
        placement: str = "first-fit",
        policy: Policy | None = None,
        overrun: Literal["terminate", "continue"] = "terminate",
        on_dependency_failure: Literal["cancel", "hold"] = "cancel",
        expected_s: npt.ArrayLike | None = None,
        risk: npt.ArrayLike | None = None,
        track_nodes: bool = False,
        seed: int = 0,
    ) -> None:
        workload, cluster = as_workload(workload), as_cluster(cluster)
        self.workload = workload
        self.cluster = cluster
        self.policy = policy or make_policy(
            order,
            backfill,
            reservations=reservations,
            candidates=candidates,
            placement=placement,
        )
        for option, value, known in (
            ("overrun", overrun, ("terminate", "continue")),
            ("on_dependency_failure", on_dependency_failure, ("cancel", "hold")),
        ):
            if value not in known:
                raise ConfigError(f"{option} is {value!r}, it must be {' or '.join(known)}")
        failures = cluster.failures
        self.tracked = (
            track_nodes
            or bool(failures.outages)
            or failures.mtbf is not None
            or self.policy.placement not in ("first-fit", "best-fit")
        )
        self.overrun = overrun
        self.on_dependency_failure = on_dependency_failure
        self.engine_s = 0.0
        jobs_and_machine = lower(
            workload,
            cluster,
            expected_ms=_expected_ms(expected_s, workload),
            risk=_risk(risk, workload),
            tracked=self.tracked,
        )
        self._sim = self._new_sim(jobs_and_machine, seed)
        self.drawn = 0
        self._horizon = NEVER_MS if failures.mtbf is None else 0
        self._outages: list[Outages] = []
        self._add_outages(recorded_outages(cluster))
        self._broken: str | None = None
        self._slice = 64
        self._stopped = False
        self._decided: dict[str, npt.NDArray[Any]] | None = None

    @property
    def now_s(self) -> float:
        """The present instant, seconds."""
        return int(self._sim.clock.now) / MS_PER_S

    @property
    def done(self) -> bool:
        """Whether every job has come to its end."""
        return int(self._sim.clock.alive) == 0

    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Run to the end.

        Args:
            progress: called now and then with the share of jobs submitted, 0 to 1.
        """
        if progress is None:
            self.advance()
            return self.result()
        step = max(self.workload.span_s, 1.0) / 50
        arrived = 0
        while arrived < len(self.workload) and self.advance(self.now_s + step) == "reached":
            arrived = int(self._sim.clock.arrived)
            progress(arrived / len(self.workload))
        self.advance()
        progress(1.0)
        return self.result()

    def advance(
        self, until_s: float | None = None, *, instants: int | None = None
    ) -> Literal["done", "reached", "stepped"]:
        """Go on until a time (its events included), for so many instants, or to the end.

        Args:
            until_s: seconds; None for no limit.
            instants: at most so many event times; None for no limit.

        Returns:
            ``done`` if nothing is left to happen, ``reached`` if ``until_s`` was, ``stepped`` if the
            instants were used up.

        Raises:
            PolicyError: the ordering gave something that is not a number, or failed.
            SimulationError: the simulation had failed before.
        """
        if self._broken:
            raise SimulationError(f"this simulation cannot go on: {self._broken}")
        until = NEVER_MS if until_s is None else to_ms(until_s)
        from hpctwin.engine.kernel import advance

        self.decided()
        begin = time.perf_counter()
        first = int(self._sim.clock.instants)
        while True:
            if self._stopped:
                raise SimulationError("this simulation was stopped from another thread")
            left = self._slice
            if instants is not None:
                left = min(left, first + instants - int(self._sim.clock.instants))
            entered = time.perf_counter()
            call = partial(advance, self._sim.address, until, left)
            interrupted = False
            try:
                if self._may_take_long(until):
                    code, interrupted = run_interruptible(call)
                else:
                    code = call()
            except KeyboardInterrupt:
                self._broken = "it was interrupted in the middle of an instant"
                raise
            except Exception as error:
                self._broken = f"the ordering failed: {error!r}"
                raise PolicyError(
                    f"ordering {self.policy.order.name!r} failed: {error!r}"
                ) from error
            if interrupted:
                raise KeyboardInterrupt
            if code == layout.NEED_ROOM:
                self._make_room()
            elif code == layout.NEED_OUTAGES:
                self._draw_outages()
                self.decided()
            elif code == layout.STEPPED and self._sliced(first, instants):
                took = time.perf_counter() - entered
                if took < SLICE_S / 2:
                    self._slice *= 2
                elif took > 2 * SLICE_S:
                    self._slice = max(1, self._slice // 2)
            else:
                break
        self.engine_s += time.perf_counter() - begin
        if code == layout.NOT_A_NUMBER:
            job = self.workload.job_id[self._sim.clock.bad_job]
            self._broken = "the ordering gave something that is not a number"
            raise PolicyError(
                f"ordering {self.policy.order.name!r} gave NaN for job {job} at {self.now_s:g} s; "
                "it must give a number for every waiting job"
            )
        names: dict[int, Literal["done", "reached", "stepped"]] = {
            layout.DONE: "done",
            layout.REACHED: "reached",
            layout.STEPPED: "stepped",
        }
        return names[code]

    def stop(self) -> None:
        """Have `advance` end soon in whatever thread it runs; the simulation cannot go on."""
        self._stopped = True

    def _may_take_long(self, until: int) -> bool:
        """Whether so many jobs will wait that a single pass may take long."""
        clock = self._sim.clock
        arrived, waiting = int(clock.arrived), int(clock.queued)
        coming = min(arrived + MANY_WAITING, int(clock.arrival_end)) - 1
        if waiting >= MANY_WAITING:
            return True
        if coming < arrived:
            return False
        last = int(self._sim["by_submit"][coming])
        return (
            coming - arrived + 1 + waiting >= MANY_WAITING
            and int(self._sim["job"]["submit"][last]) <= until
        )

    def _sliced(self, first: int, instants: int | None) -> bool:
        """Whether the kernel came back only for Python to have its turn."""
        clock = self._sim.clock
        job = int(clock.stop_job)
        if job >= 0 and layout.RUNNING <= self.column("phase")[job] < layout.UNSUBMITTED:
            return False
        return instants is None or int(clock.instants) - first < instants

    def fork(self, policy: Policy | None = None, *, arrivals: bool = True) -> Self:
        """A copy that goes its own way; nothing in it changes this simulation.

        Args:
            policy: what the copy goes on under; the same if left out.
            arrivals: whether jobs not submitted yet will be; without, the copy runs its queue empty.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._sim = self._sim.fork()
        twin.engine_s = 0.0
        if not arrivals:
            twin._sim.clock.arrival_end = twin._sim.clock.arrived
        if policy is not None:
            twin._change_policy(policy)
        return twin

    def run_until_started(self, row: int) -> float | None:
        """Run until the job in a row of the workload has started; its start in seconds, or None."""
        self._sim.clock.stop_job = row
        self.advance()
        self._sim.clock.stop_job = -1
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
        from hpctwin.simulation.doomed import why_doomed

        return list(why_doomed(self, most))

    @property
    def state(self) -> Sim:
        """The engine's arrays; to be looked at, not changed."""
        return self._sim

    def column(self, name: str) -> npt.NDArray[Any]:
        """How it goes with each job: ``eligible``, ``start`` and ``end`` in ms, -1 for not yet … [jobs].

        Args:
            name: a field of `engine.layout.JobState`.
        """
        found: npt.NDArray[Any] = self._sim["state"][name]
        return found

    def rejects(self) -> npt.NDArray[np.bool_]:
        """Whether each job can never run here [jobs]."""
        rejected: npt.NDArray[np.bool_] = self._sim["job"]["rejected"] != 0
        return rejected

    def nodes_by_pool(self, row: int) -> list[int]:
        """How many nodes of each pool a running job has."""
        if self._sim.pools > 1:
            return [int(n) for n in self._sim["taken"][row]]
        return [int(self._sim["job"]["nodes"][row])]

    def expected_ms(self) -> npt.NDArray[np.int64]:
        """What the scheduler expects each job to run, ms [jobs]."""
        expected: npt.NDArray[np.int64] = self._sim["job"]["expected"].copy()
        return expected

    def restore(
        self, state: Mapping[str, npt.NDArray[Any]], outages: Outages, drawn: int, engine_s: float
    ) -> None:
        """Go on from a state that was read from a file."""
        self._sim.put_state(state)
        self._outages = [outages]
        self.drawn = drawn
        if self.cluster.failures.mtbf is not None:
            self._horizon = drawn * BLOCK_MS
        self._decided = None
        self.engine_s = engine_s

    def outages_so_far(self) -> Outages:
        """Node, start and end (ms) of all failures known of, whether they have come or not."""
        columns = zip(*self._outages, strict=True) if self._outages else [[np.zeros(0, int)]] * 3
        node, start, end = (np.concatenate(column) for column in columns)
        return node, start, end

    def snapshot(self) -> dict[str, Any]:
        """The present state in plain values: time, free nodes, jobs waiting and running."""
        sim, clock = self._sim, self._sim.clock
        waiting = sim["queue"][: clock.queued]
        running = sim["run"]["job"][: clock.running]
        return {
            "now_s": self.now_s,
            "free_nodes": self.free_nodes(),
            "waiting": self.workload.job_id[np.sort(waiting)].tolist(),
            "running": self.workload.job_id[np.sort(running)].tolist(),
            "submitted": int(clock.arrived),
            "open": int(clock.alive),
        }

    def free_nodes(self) -> int:
        """Nodes that are idle and up."""
        free = self._sim["stock"]["free"][: self._sim.pools]
        return int(np.maximum(free, 0).sum())

    def save(self, path: str | Path) -> None:
        """Write the whole simulation to a file that `load` goes on from."""
        from hpctwin.simulation.saved import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, policy: Policy | None = None) -> Self:
        """Read a simulation written by `save`.

        Args:
            path: the file.
            policy: to go on under another; needed if the ordering was a Python function.

        Raises:
            SimulationError: the file is not such a file, or was written by another version.
        """
        from hpctwin.simulation.saved import load

        return load(cls, Path(path), policy)

    def _new_sim(self, known: Mapping[str, npt.NDArray[Any]], seed: int) -> Sim:
        sim = new_sim(known, seed=seed)
        choose_pass(sim, self._pass())
        return sim

    def _pass(self) -> Pass:
        return find_pass(self.policy.backfill)

    def _power_pass(self) -> PowerPass | None:
        """What switches nodes; None where they have no power states."""
        return None

    def decided(self) -> dict[str, npt.NDArray[Any]]:
        """The policy in the engine's form; the same object as long as it is the same."""
        from hpctwin.engine.kernel import hooks

        if self._decided is None:
            found = self._pass()
            self._decided = {
                "rules": single("rules", self._rules().items()),
                "hooks": hooks(*self._compiled(), found, self._power_pass()),
                "numbers": self._numbers(found),
            }
            self._sim.decide(**self._decided)
        return self._decided

    def _numbers(self, found: Pass) -> npt.NDArray[np.int64]:
        numbers: npt.NDArray[np.int64] = found.settings(self.policy.numbers())
        return numbers

    def _make_room(self) -> None:
        more_room(self._sim)

    def _compiled(self) -> tuple[Any, Any]:
        order = self.ordering.compiled
        candidates = self.policy.candidates
        return order, order if candidates is None else candidates.compiled

    @property
    def ordering(self) -> Ordering:
        """The policy's ordering, or what comes to the same where all jobs have one user."""
        order = self.policy.order
        return order.alone if order.alone and len(self._sim["promised"]) == 1 else order

    def _rules(self) -> dict[str, Any]:
        """The fields of `engine.layout.Rules`."""
        order, candidates = self.ordering, self.policy.candidates
        return {
            "pools": self._sim.pools,
            "placement": _PLACEMENT[self.policy.placement],
            "terminate": self.overrun == "terminate",
            "hold_dependents": self.on_dependency_failure == "hold",
            "requeue": self.cluster.failures.then == "requeue",
            "order_changes": order.changes,
            "own_candidates": candidates is not None,
            "fairshare": order.fairshare or (candidates is not None and candidates.fairshare),
            "chains": order.chain,
            "in_order": self._pass().in_order,
            "outage_horizon": self._horizon,
            "machine_nodes": self.cluster.node_count,
            "decay": math.log(2) / (self.cluster.fairshare.half_life * MS_PER_S),
        }

    def _change_policy(self, policy: Policy) -> None:
        from hpctwin.engine.kernel import reorder

        if policy.placement not in ("first-fit", "best-fit") and not len(self._sim["node"]):
            raise SimulationError(
                f"placement {policy.placement!r} needs the nodes' identity from the beginning; "
                "make the simulation with track_nodes=True"
            )
        self.policy = policy
        self._decided = None
        choose_pass(self._sim, self._pass())
        # The new policy has its say at once, and the old one's reservations are void.
        self._sim.clock.pass_due = 1
        self._sim.clock.timer = NEVER_MS
        if policy.order.changes:
            return  # such a queue is scored at each pass, and kept in no order
        self.decided()
        reorder(self._sim.address)

    def _draw_outages(self) -> None:
        outages, self._horizon = drawn_outages(self.cluster, self.drawn)
        self._decided = None
        self.drawn += 1
        self._add_outages(outages)

    def _add_outages(self, outages: Outages) -> None:
        if len(outages[0]):
            more_outages(self._sim, *outages)
            self._outages = [*self._outages, outages]


def simulate(
    workload: Workload | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str],
    order: OrderingLike = "fcfs",
    backfill: str = "easy",
    **options: Any,
) -> Result:
    """Simulate a workload on a cluster to the end.

    Args:
        workload: the jobs, or the path of a trace.
        cluster: the machine, a number of equal nodes, or the path of a YAML file.
        order: ordering: a name, a formula, a function; see `hpctwin.policies.find_ordering`.
        backfill: ``none``, ``first-fit``, ``easy``, ``conservative``, ``pack`` or ``pushdown``.
        options: further arguments of `Simulation`.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
    """
    return Simulation(workload, cluster, order, backfill, **options).run()


def _expected_ms(
    expected_s: npt.ArrayLike | None, workload: Workload
) -> npt.NDArray[np.int64] | None:
    if expected_s is None:
        return None
    expected = np.asarray(expected_s, np.float64)
    if expected.shape != (len(workload),):
        raise ConfigError(
            f"expected_s has shape {expected.shape}, it must be ({len(workload)},): one per job"
        )
    if not np.isfinite(expected).all() or (expected <= 0).any():
        raise ConfigError("expected_s must be finite and above 0 for every job")
    ms: npt.NDArray[np.int64] = np.rint(expected * MS_PER_S).astype(np.int64)
    return ms


def _risk(risk: npt.ArrayLike | None, workload: Workload) -> npt.NDArray[np.float64] | None:
    if risk is None:
        return None
    given = np.asarray(risk, np.float64)
    if given.shape != (len(workload),):
        raise ConfigError(
            f"risk has shape {given.shape}, it must be ({len(workload)},): one per job"
        )
    if not ((given >= 0) & (given <= 1)).all():
        raise ConfigError("risk must be a probability, 0 to 1, for every job")
    return given
