"""A network with the jobs that run on it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hpctwin.contention.arrays import describe
from hpctwin.contention.free_rows import FreeRows
from hpctwin.contention.link_loads import LinkLoads, meter_arrays, read_meter
from hpctwin.contention.phases import Phases, Sharing
from hpctwin.engine.network.meter import SETTLE_METER
from hpctwin.engine.network.records import (
    CHAIN,
    DELAYED,
    IDLE,
    LOAD,
    NETWORK,
    PAUSED,
    REPEAT,
    RESOURCE,
    RUNNING,
    STEP,
    STRAND,
    USE,
)
from hpctwin.engine.network.running import ADVANCE, CONTINUE, COUNT, PAUSE, SHARE, START, STOP
from hpctwin.network.platform import Platform

__all__ = ["Ended", "Network", "Position", "RunningUses"]

_TABLES: dict[str, dict[str, Any]] = {
    "strands": {
        "strands": STRAND,
        **dict.fromkeys(
            ("ready", "fresh", "ended", "tasks", "first", "last", "out", "live"), np.int64
        ),
        **dict.fromkeys(("due", "ended_at", "bound", "rate", "added"), float),
    },
    "steps": {"steps": STEP},
    "loads": {"loads": LOAD},
    "uses": {"uses": USE, "chains": CHAIN, "places": np.int64, "amounts": float},
}
"""Tables of `Phases`, with the arrays that have as many rows."""
_OF_RESOURCES = {
    **dict.fromkeys(("touched", "found", "alone", "count", "open", "busy", "computing"), np.int64),
    **dict.fromkeys(
        ("whole", "left", "share", "taken", "charged", "busy_since", "busy_s", "flops"), float
    ),
}
"""Arrays with as many rows as there are resources."""
_ROWS = 64


@dataclass(frozen=True)
class Ended:
    """A job that has ended.

    Args:
        job: Key of the job.
        time_s: Time, in seconds.
        exit_code: Its exit code.
    """

    job: Any
    time_s: float
    exit_code: int


@dataclass(frozen=True, eq=False)
class RunningUses:
    """Use of hosts and links by running tasks.

    Args:
        jobs: Keys of the jobs.
        names: Names of hosts, then links.
        capacity: Their flop/s or B/s.
        fatpipe: Whether they limit each task alone.
        strand: Strand of each use [uses].
        job: Place of its job in ``jobs`` [uses].
        resource: Number of the host or link [uses].
        amount: Flops or bytes of the whole task [uses].
        rate: Progress of the task per second [uses].
        bound: Largest progress per second [uses].
    """

    jobs: list[Any]
    names: tuple[str, ...]
    capacity: npt.NDArray[np.float64]
    fatpipe: npt.NDArray[np.bool_]
    strand: npt.NDArray[np.int64]
    job: npt.NDArray[np.int64]
    resource: npt.NDArray[np.int64]
    amount: npt.NDArray[np.float64]
    rate: npt.NDArray[np.float64]
    bound: npt.NDArray[np.float64]

    @property
    def taken(self) -> npt.NDArray[np.float64]:
        """Flops or bytes per second [uses]."""
        return self.rate * self.amount

    def alone_rate(self, own: npt.NDArray[np.bool_]) -> float:
        """Return the progress per second that a task would make alone.

        Args:
            own: Its uses.
        """
        resource = self.resource[own]
        amounts = np.bincount(resource, self.amount[own])
        limits = self.capacity[resource] / amounts[resource]
        return float(limits.min(initial=self.bound[own][0]))


class Position(NamedTuple):
    """How far a job has come.

    Args:
        step: Its present step, from its first one.
        rounds: Rounds that each repetition still has to do.
        phase: Phase of its strand in this step: a delay, a task, or none if it begins the step.
        left: Part of the delay or task that is left, of 1.
    """

    step: int
    rounds: tuple[int, ...]
    phase: int = int(IDLE)
    left: float = 0.0


class Network:
    """Hosts and links, shared by jobs that compute, send, read and write.

    Times never decrease from one call to the next.

    Args:
        platform: Hosts and links.
        sharing: How capacities are shared: ``simgrid`` or ``fair``.
        metered: Whether loads of links are recorded; see `link_loads`.
        counts: Whether to count what is computed on each host.
    """

    def __init__(
        self,
        platform: Platform,
        sharing: Sharing = "simgrid",
        *,
        metered: bool = False,
        counts: bool = False,
    ) -> None:
        hosts, links = len(platform.host_names), len(platform.link_names)
        resources = np.zeros(hosts + links, RESOURCE)
        self._cores, self.speed = platform.host_cores, platform.host_speed
        resources["capacity"][:hosts] = self._cores * self.speed
        resources["capacity"][hosts:] = platform.link_bandwidth
        resources["fatpipe"][hosts:] = platform.link_fatpipe
        resources["first"] = -1
        self._arrays: dict[str, npt.NDArray[Any]] = {"resources": resources}
        for name, dtype in _OF_RESOURCES.items():
            self._arrays[name] = np.zeros(len(resources), dtype)
        for own in _TABLES.values():
            self._arrays.update({name: np.zeros(_ROWS, dtype) for name, dtype in own.items()})
        self._net = np.zeros(1, NETWORK)
        self._net["stamp"] = self._net["group"] = 1
        self._net["quirks"] = sharing == "simgrid"
        if metered:
            self._arrays |= meter_arrays(self._net, hosts, links)
        self._net["hosts"] = hosts if counts else 0
        self._free = {kind: FreeRows() for kind in _TABLES}
        self._jobs: dict[Hashable, dict[str, tuple[int, int]]] = {}
        self._job_of: dict[int, Hashable] = {}
        self._describe()
        self._names = (*platform.host_names, *platform.link_names)
        self.metered = metered
        self.next_s = float("inf")

    def start(
        self,
        job: Hashable,
        time_s: float,
        phases: Phases,
        position: Position | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """Start a job.

        Args:
            job: Key of the job.
            time_s: Start, in seconds; the network has advanced to this time.
            phases: Its phases.
            position: Where it continues; None for its beginning.
            wait_s: Time before it does, in seconds.
        """
        tables = {kind: getattr(phases, kind) for kind in _TABLES}
        rows = {}
        for kind, table in tables.items():
            first = self._free[kind].take(len(table))
            rows[kind] = first, first + len(table)
        self._fit_tables()
        for kind, table in tables.items():
            self._arrays[kind][slice(*rows[kind])] = table
        if position is not None:
            strand = self._arrays["strands"][rows["strands"][0]]
            steps = self._arrays["steps"][slice(*rows["steps"])]
            steps["left"][steps["kind"] == REPEAT] = position.rounds
            length = steps["seconds"][position.step] if position.phase == DELAYED else 1.0
            strand["begin"] += position.step
            strand["phase"], strand["left"] = position.phase, position.left * length
            strand["counted"] = 1.0 - position.left
        self._jobs[job] = rows
        self._job_of[rows["strands"][0]] = job
        self._net["strand_count"] = self._free["strands"].end
        START(self._address, np.array([*rows.values()]).ravel(), time_s, wait_s)

    def stop(self, job: Hashable, time_s: float, *, within: bool = False) -> Position:
        """Stop a running job at a time to which the network has advanced; return its position.

        Args:
            job: Key of the job.
            time_s: Time, in seconds.
            within: Whether to return its position within its step, if it has one strand.
        """
        first, last = self._jobs[job]["strands"]
        begin, end = self._jobs[job]["steps"]
        if within:
            PAUSE(self._address, first, last, time_s)
        strand = self._arrays["strands"][first].copy()
        STOP(self._address, first, last, time_s)
        steps = self._arrays["steps"][begin:end]
        rounds = steps["left"][steps["kind"] == REPEAT].tolist()
        self._forget(first)
        step, phase = int(self._arrays["strands"]["step"][first]) - begin, strand["phase"] - PAUSED
        if not within or phase not in (DELAYED, RUNNING):
            return Position(step, tuple(rounds))
        length = steps["seconds"][step] if phase == DELAYED else 1.0
        return Position(step, tuple(rounds), int(phase), float(strand["left"] / length))

    def pause(self, job: Hashable, time_s: float) -> None:
        """Let a running job stand still at a time to which the network has advanced."""
        PAUSE(self._address, *self._jobs[job]["strands"], time_s)

    def resume(self, job: Hashable, time_s: float) -> None:
        """Let a job that stands still continue at a time to which the network has advanced."""
        CONTINUE(self._address, *self._jobs[job]["strands"], time_s)

    def advance(self, until_s: float, *, stops: bool = False) -> list[Ended]:
        """Advance to a time; `next_s` is then the time of the next event.

        Args:
            until_s: Time, in seconds.
            stops: Whether to stop once jobs have ended.

        Returns:
            Jobs that have ended, in the order of their ends.
        """
        self.next_s = ADVANCE(self._address, until_s, int(stops))
        count = int(self._net["ended_count"][0])
        self._net["ended_count"] = 0
        ended = self._arrays["ended"][:count]
        codes = self._arrays["steps"]["count"][self._arrays["strands"]["step"][ended]]
        times = self._arrays["ended_at"][:count]
        return [
            Ended(self._forget(strand), time, code)
            for strand, time, code in zip(
                ended.tolist(), times.tolist(), codes.tolist(), strict=True
            )
        ]

    def has(self, job: Any) -> bool:
        """Return whether a job runs."""
        return job in self._jobs

    @property
    def running(self) -> list[Any]:
        """Keys of the jobs that run, in the order of their starts."""
        return list(self._jobs)

    @property
    def now_s(self) -> float:
        """Time of the last event, in seconds."""
        return float(self._net["now"][0])

    def tables_of(self, job: Any) -> dict[str, npt.NDArray[Any]]:
        """Return the rows of a running job in each table; they must not be changed."""
        return {kind: self._arrays[kind][slice(*rows)] for kind, rows in self._jobs[job].items()}

    def running_uses(self) -> RunningUses:
        """Return what running tasks use."""
        resources, strands = self._arrays["resources"], self._arrays["strands"]
        job_of = np.full(len(strands), -1)
        for place, rows in enumerate(self._jobs.values()):
            job_of[slice(*rows["strands"])] = place
        running = np.flatnonzero(strands["phase"] == RUNNING)
        loads = self._arrays["loads"][strands["load"][running]]
        counts = loads["last"] - loads["first"]
        strand = np.repeat(running, counts)
        within = np.arange(len(strand)) - np.repeat(np.cumsum(counts) - counts, counts)
        uses = self._arrays["uses"][np.repeat(loads["first"], counts) + within]
        return RunningUses(
            jobs=self.running,
            names=self._names,
            capacity=resources["capacity"],
            fatpipe=resources["fatpipe"] == 1,
            strand=strand,
            job=job_of[strand],
            resource=uses["resource"],
            amount=uses["amount"],
            rate=strands["rate"][strand],
            bound=np.repeat(loads["bound"], counts),
        )

    def used(self) -> npt.NDArray[np.float64]:
        """Return what jobs use of each host, in flop/s, and then of each link, in B/s.

        Under ``fair``, use of links that do not share their bandwidth is not counted.
        """
        uses = self.running_uses()
        found = np.zeros(len(uses.capacity))
        np.add.at(found, uses.resource, uses.taken)
        return found

    def begin_meter(self, time_s: float) -> None:
        """Set the time at which the loads of links begin; no job runs."""
        self._net["bins_from"] = time_s

    def link_loads(self, until_s: float) -> LinkLoads:
        """Return what links have carried, if this is recorded.

        Args:
            until_s: Time up to which it is read, in seconds; the network has advanced to it.
        """
        settled = self.fork()
        SETTLE_METER(settled._address, until_s)
        begin_s = float(self._net["bins_from"][0])
        return read_meter(settled._net, settled._arrays, begin_s, until_s)

    def count(self, time_s: float) -> None:
        """Count what running tasks have computed up to a time to which the network has advanced."""
        COUNT(self._address, time_s)

    def set_speed(self, hosts: npt.NDArray[np.int64], factor: float, time_s: float) -> None:
        """Change the speed of hosts at a time to which the network has advanced.

        Args:
            hosts: The hosts.
            factor: New speed as a multiple of the present one.
            time_s: Time, in seconds.
        """
        self.speed = self.speed.copy()
        self.speed[hosts] *= factor
        self._arrays["resources"]["capacity"][hosts] = self._cores[hosts] * self.speed[hosts]
        for rows in self._jobs.values():
            self._set_bounds(rows)
        SHARE(self._address, time_s, hosts)
        self.next_s = ADVANCE(self._address, time_s, 0)

    def _set_bounds(self, rows: Mapping[str, tuple[int, int]]) -> None:
        """Set the bounds of a job's tasks by the present speeds."""
        uses, loads = (self._arrays[kind][slice(*rows[kind])] for kind in ("uses", "loads"))
        some = loads["last"] > loads["first"]
        if not some.any():
            return
        computes = uses["resource"] < len(self.speed)
        host = np.where(computes, uses["resource"], 0)
        by_cores = np.where(computes, self.speed[host] / uses["amount"], np.inf)
        first = loads["first"][some] - rows["uses"][0]
        loads["bound"][some] = np.minimum(
            loads["limit"][some], np.minimum.reduceat(by_cores, first)
        )

    def take_work(
        self, hosts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return flops on hosts since the last call, and the time for which tasks computed, s.

        Those of running tasks are included up to the last call of `count`.
        """
        flops, busy_s = self._arrays["flops"], self._arrays["busy_s"]
        found = flops[hosts], busy_s[hosts]
        flops[hosts] = busy_s[hosts] = 0.0
        return found

    def fork(self) -> Self:
        """Return a copy that shares no writable data with this network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._arrays = {name: array.copy() for name, array in self._arrays.items()}
        twin._net = self._net.copy()
        twin._free = {kind: free.copy() for kind, free in self._free.items()}
        twin._jobs, twin._job_of = self._jobs.copy(), self._job_of.copy()
        twin._describe()
        return twin

    def rename(self, name: Callable[[Any], Hashable]) -> None:
        """Give all jobs other keys.

        Args:
            name: Function that returns the new key of a job.
        """
        self._jobs = {name(job): rows for job, rows in self._jobs.items()}
        self._job_of = {strand: name(job) for strand, job in self._job_of.items()}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all data but the keys of the jobs, as arrays."""
        rows = [list(own.values()) for own in self._jobs.values()]
        return {
            **self._arrays,
            "net": self._net,
            "rows": np.array(rows, np.int64).reshape(-1, len(_TABLES), 2),
            "row_ends": np.array([free.end for free in self._free.values()]),
            "next_s": np.array(self.next_s),
            "speed": self.speed,
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]], jobs: Sequence[Hashable]) -> None:
        """Continue from the data of another network of this platform.

        Args:
            state: Result of `state`.
            jobs: Keys of the jobs, in the order of `running`.
        """
        self._arrays = {name: state[name].copy() for name in self._arrays}
        self._net = state["net"].astype(NETWORK)
        rows = [[(first, last) for first, last in own] for own in state["rows"].tolist()]
        self._jobs = {
            job: dict(zip(_TABLES, own, strict=True)) for job, own in zip(jobs, rows, strict=True)
        }
        self._job_of = {own["strands"][0]: job for job, own in self._jobs.items()}
        for kind, end in zip(_TABLES, state["row_ends"].tolist(), strict=True):
            self._free[kind] = FreeRows.around([own[kind] for own in self._jobs.values()], end)
        self.next_s, self.speed = float(state["next_s"]), state["speed"]
        self._describe()

    def _forget(self, strand: int) -> Hashable:
        """Free the rows of a job, by its first strand; return its key."""
        job = self._job_of.pop(strand)
        for kind, rows in self._jobs.pop(job).items():
            self._free[kind].give_back(*rows)
        return job

    def _fit_tables(self) -> None:
        """Make the tables long enough for the rows in use."""
        grown = False
        for kind, own in _TABLES.items():
            needed = self._free[kind].end
            if needed <= len(self._arrays[kind]):
                continue
            grown = True
            for name, dtype in own.items():
                before = self._arrays[name]
                self._arrays[name] = np.zeros(2 * needed, dtype)
                self._arrays[name][: len(before)] = before
        if grown:
            self._describe()

    def _describe(self) -> None:
        """Write the addresses of the arrays where kernels find them."""
        self._descriptors = describe(self._net, self._arrays)
        self._address = int(self._net.ctypes.data)
