"""Drive a simulation by an external scheduler, per event time or per interval.

The scheduler can be a program that reads and writes one line of JSON per decision:

    → {"type": "begin", "cluster": "theta", "nodes": 4360}
    → {"type": "happened", "now_s": 0.0, "submitted": [{"job_id": 1, "submit_s": 0.0, "nodes": 16,
       "walltime_s": 3600.0}], "ended": [], "refused": [], "free_nodes": 4360, "last": false}
    ← {"start": [1]}
    → {"type": "happened", "now_s": 60.0, "submitted": [], "ended": [[1, "completed"]], …}
    ← {"start": [], "call_at_s": 90.0}
    → {"type": "end"}

The program reads from standard input. It answers each ``happened`` with one line on standard output
and writes nothing else there; its standard error is shown.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, Self

import numpy as np

from hpctwin.engine.operations.interactive import stand_by
from hpctwin.engine.state import layout
from hpctwin.errors import ConfigError, SimulationError
from hpctwin.model import MS_PER_S, Cluster, State, to_ms
from hpctwin.model.text import count_text
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.result.result import Result
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["Happened", "JsonLinesScheduler", "Orders", "OutsideScheduler", "drive"]

_OVER = (layout.COMPLETED, layout.UNSUBMITTED)
"""Phases from the first up to, but without, the second are those of ended jobs."""


@dataclass(frozen=True)
class Happened:
    """Events since the scheduler was last called.

    Args:
        now_s: Present time, in seconds.
        submitted: Newly pending jobs: ``job_id``, ``submit_s``, ``nodes``, ``walltime_s``, and
            where known ``user``, ``account``, ``partition``, ``qos``, ``priority`` and
            ``resources``. A job whose node failed is listed again.
        ended: Ended jobs and how they ended: ``completed``, ``walltime``, ``failed``,
            ``cancelled``, ``node_failure``.
        refused: Jobs that the last orders started, but that did not fit.
        free_nodes: Number of nodes that are idle and up.
        last: Whether all jobs have been submitted.
    """

    now_s: float
    submitted: tuple[Mapping[str, Any], ...] = ()
    ended: tuple[tuple[Any, str], ...] = ()
    refused: tuple[Any, ...] = ()
    free_nodes: int = 0
    last: bool = False


@dataclass(frozen=True)
class Orders:
    """Orders of a scheduler.

    Args:
        start: Jobs to start now, in this order.
        call_at_s: Time at which the scheduler must be called even without events, in seconds.
        never: Jobs that the scheduler will not start.
    """

    start: Collection[Any] = ()
    call_at_s: float | None = None
    never: Collection[Any] = ()


OutsideScheduler = Callable[[Happened], Orders]
"""External scheduler: it receives events and returns orders."""


def drive(
    simulation: Simulation,
    scheduler: OutsideScheduler,
    *,
    every_s: float | None = None,
    strict: bool = True,
) -> Result:
    """Run a simulation to its end under an external scheduler.

    Args:
        simulation: New simulation with backfill ``outside``.
        scheduler: Function called after each event time with submitted or ended jobs, and when it
            asked to be called.
        every_s: Interval of calls, in seconds. The scheduler is called only at its multiples, if
            something happened since.
        strict: Whether starting a job that does not fit is an error; otherwise the scheduler is
            informed.

    Raises:
        SimulationError: The scheduler failed, gave impossible orders, or left jobs waiting forever;
            or ``every_s`` is not above 0.
    """
    if simulation.policy.backfill != OUTSIDE:
        raise SimulationError(
            f"policy {simulation.policy.name!r} starts jobs itself; for an external "
            f"scheduler use backfill {OUTSIDE!r}"
        )
    if every_s is not None and not every_s > 0:
        raise SimulationError(
            f"call interval of the scheduler is {every_s:g} s; it must be above 0"
        )
    watch = _Watch(simulation)
    call_at_s: float | None = None
    refused: list[Any] = []
    never: set[Any] = set()
    while True:
        if every_s is None:
            until_s, instants = call_at_s, 1
        else:
            until_s, instants = (simulation.now_s // every_s + 1) * every_s, None
        outcome = simulation.advance(until_s, instants=instants)
        if outcome == "done" and until_s is not None and not simulation.done:
            # No event is left, but the scheduler may still start a job at that time.
            stand_by(simulation.state, to_ms(until_s), partial(simulation.advance, until_s))
        happened = watch.look(refused)
        if every_s is not None and until_s is not None:
            happened = replace(happened, now_s=until_s)
        called = call_at_s is not None and simulation.now_s >= call_at_s
        if not (happened.submitted or happened.ended or called):
            if outcome == "done":
                break
            continue
        call_at_s = None if called else call_at_s
        orders = scheduler(happened)
        never.update(orders.never)
        refused = simulation.begin(orders.start)
        if refused and strict:
            raise SimulationError(_does_not_fit(simulation, refused[0]))
        if orders.call_at_s is not None:
            if not orders.call_at_s > simulation.now_s:
                raise SimulationError(
                    f"scheduler asked at {simulation.now_s:g} s for a call at "
                    f"{orders.call_at_s:g} s; it must be later than the present"
                )
            call_at_s = min(orders.call_at_s, math.inf if call_at_s is None else call_at_s)
    left = [job for job in watch.waiting() if job not in never]
    if left:
        raise SimulationError(
            f"scheduler left {count_text(len(left), 'job')} pending at {simulation.now_s:g} s with no "
            f"event to come, the first of them job {left[0]}"
        )
    return simulation.result()


def _does_not_fit(simulation: Simulation, job: Any) -> str:
    row = simulation.row_of(job)
    return (
        f"scheduler started job {job} at {simulation.now_s:g} s, which does not fit: it "
        f"needs {count_text(simulation.workload.nodes[row], 'node')}, free are {simulation.free_nodes()} "
        "(partitions, limits, resources and maintenance also apply)"
    )


class _Watch:
    """Changes of the jobs from one call to the next.

    Args:
        simulation: Simulation that holds the jobs.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.size = len(simulation.workload)
        self.arrived = 0
        # Submitted jobs that have not ended: their rows, and the phase and requeues last seen.
        self.open = self.phase = self.requeues = np.zeros(0, np.int64)

    def look(self, refused: list[Any]) -> Happened:
        """Return what happened since the last call."""
        simulation, state = self.simulation, self.simulation.state["state"]
        arrived = int(simulation.state.clock.arrived)
        if arrived > self.arrived:  # rows are by submission
            new = np.arange(self.arrived, arrived)
            self.arrived = arrived
            self.open = np.concatenate([self.open, new])
            self.phase = np.concatenate([self.phase, np.full(len(new), layout.UNSUBMITTED)])
            self.requeues = np.concatenate([self.requeues, np.zeros(len(new), np.int64)])
        phase, requeues = state["phase"][self.open], state["requeues"][self.open]
        came, ended = [], []
        over = False
        changed = (phase != self.phase) | (requeues != self.requeues)
        for place in np.flatnonzero(changed).tolist():
            row, now = int(self.open[place]), int(phase[place])
            if now == layout.WAITING:
                came.append(_told(simulation, row))
            elif _OVER[0] <= now < _OVER[1]:
                over = True
                # A job that can never run ends without having been reported.
                if state["start"][row] >= 0 or self.phase[place] == layout.WAITING:
                    job_id = _plain(simulation.workload.job_id[row])
                    ended.append((job_id, State(now).label))
        self.phase, self.requeues = phase, requeues
        if over:
            left = (phase < _OVER[0]) | (phase >= _OVER[1])
            self.open, self.phase, self.requeues = self.open[left], phase[left], requeues[left]
        return Happened(
            simulation.now_s,
            tuple(came),
            tuple(ended),
            tuple(refused),
            simulation.free_nodes(),
            arrived >= self.size,
        )

    def waiting(self) -> list[Any]:
        """Return the pending jobs."""
        rows = np.flatnonzero(self.simulation.column("phase")[: self.size] == layout.WAITING)
        return [_plain(job) for job in self.simulation.workload.job_id[rows]]


def _told(simulation: Simulation, row: int) -> dict[str, Any]:
    """Return what a scheduler may know of a job."""
    workload = simulation.workload
    told: dict[str, Any] = {
        "job_id": _plain(workload.job_id[row]),
        "submit_s": int(simulation.submit_ms[row]) / MS_PER_S,
        "nodes": int(workload.nodes[row]),
        "walltime_s": int(workload.walltime_ms[row]) / MS_PER_S,
    }
    for name in ("user", "account", "partition", "qos"):
        label = getattr(workload, name)
        if label.codes[row] >= 0:
            told[name] = label.labels[label.codes[row]]
    if workload.priority[row]:
        told["priority"] = float(workload.priority[row])
    asked = {
        name: int(amounts[row]) for name, amounts in workload.resources.items() if amounts[row]
    }
    if asked:
        told["resources"] = asked
    return told


def _plain(job_id: Any) -> Any:
    return job_id.item() if isinstance(job_id, np.generic) else job_id


_KEYS = {"start", "call_at_s", "never"}


class JsonLinesScheduler:
    """External scheduler that runs as a program.

    As a context manager it starts and ends the program.

    Args:
        command: Program and its arguments; a string is split as a shell does.
        cluster: The cluster; the program receives its name and size.
        timeout_s: Longest time to wait for an answer, in seconds.

    Raises:
        ConfigError: The program cannot be started.
        SimulationError: The program does not answer as it should.
    """

    def __init__(
        self, command: str | Sequence[str], cluster: Cluster, *, timeout_s: float = 60.0
    ) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        self.cluster = cluster
        self.timeout_s = timeout_s

    def __enter__(self) -> Self:
        if not self.command:
            raise ConfigError("scheduler command is invalid; give a program and its arguments")
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                bufsize=1,
            )
        except OSError as error:
            raise ConfigError(
                f"scheduler {self.command[0]!r} cannot be started: {error}"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: IO[str] = self._process.stdin
        self._from: IO[str] = self._process.stdout
        # Waiting for the answer in this thread costs a tenth of waiting for a thread that reads it.
        # The watch thread therefore only kills a program that is late.
        self._late_at_s = math.inf
        self._late = False
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._end_the_late, daemon=True)
        self._watch.start()
        self._say({"type": "begin", "cluster": self.cluster.name, "nodes": self.cluster.node_count})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._say({"type": "end"})
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        try:
            self._process.wait(5.0 if kind is None else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._over.set()
        self._watch.join()
        self._from.close()

    @property
    def exit_code(self) -> int | None:
        """The program's exit code; None while it runs."""
        return self._process.poll()

    def __call__(self, happened: Happened) -> Orders:
        """Send what happened and return the program's orders."""
        self._late_at_s = time.monotonic() + self.timeout_s
        self._say({"type": "happened", **vars(happened)})
        line = self._from.readline()
        self._late_at_s = math.inf
        if self._late:
            raise SimulationError(
                f"scheduler {self.command[0]!r} did not answer within {self.timeout_s:g} "
                f"s, at {happened.now_s:g} s of the simulation"
            )
        if not line:
            raise SimulationError(
                f"scheduler {self.command[0]!r} ended (exit code {self._process.wait()}) at "
                f"{happened.now_s:g} s of the simulation"
            )
        return self._orders(line, happened.now_s)

    def _orders(self, line: str, now_s: float) -> Orders:
        try:
            given = json.loads(line)
        except ValueError:
            given = None
        wrong = None
        if not isinstance(given, dict):
            wrong = 'expected an object such as {"start": [1, 2]}'
        elif set(given) - _KEYS:
            wrong = (
                f"unknown key {sorted(set(given) - _KEYS)[0]!r}; known: {', '.join(sorted(_KEYS))}"
            )
        elif not all(isinstance(given.get(key, []), list) for key in ("start", "never")):
            wrong = "'start' and 'never' must be lists of job ids"
        elif not isinstance(given.get("call_at_s", 0.0), int | float | None):
            wrong = "'call_at_s' must be a time in seconds"
        if wrong is not None or given is None:
            raise SimulationError(
                f"scheduler {self.command[0]!r} answered {line.strip()[:80]!r} at {now_s:g} s of the "
                f"simulation: {wrong}"
            )
        return Orders(given.get("start", []), given.get("call_at_s"), given.get("never", []))

    def _say(self, message: dict[str, Any]) -> None:
        # A program that has ended is reported when its answer is missing.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._to.write(json.dumps(message) + "\n")
            self._to.flush()

    def _end_the_late(self) -> None:
        """Kill the program if an answer does not come in time."""
        while not self._over.wait(min(self.timeout_s, self._late_at_s - time.monotonic())):
            if time.monotonic() >= self._late_at_s:
                self._late = True
                self._process.kill()
                return
