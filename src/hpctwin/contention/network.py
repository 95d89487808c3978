"""A network with the jobs that run on it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpctwin.contention.arrays import describe
from hpctwin.contention.free_rows import FreeRows
from hpctwin.contention.link_loads import LinkLoads, meter_arrays, read_meter
from hpctwin.contention.phases import Phases, Sharing
from hpctwin.engine.network.meter import SETTLE_METER
from hpctwin.engine.network.records import (
    CHAIN,
    LOAD,
    NETWORK,
    RESOURCE,
    RUNNING,
    STEP,
    STRAND,
    USE,
)
from hpctwin.engine.network.running import ADVANCE, START, STOP
from hpctwin.network.platform import Platform

__all__ = ["Ended", "Network", "RunningUses"]

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
    **dict.fromkeys(("touched", "found", "alone", "count", "open", "busy"), np.int64),
    **dict.fromkeys(("whole", "left", "share", "taken", "charged"), float),
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


class Network:
    """Hosts and links, shared by jobs that compute, send, read and write.

    Times never decrease from one call to the next.

    Args:
        platform: Hosts and links.
        sharing: How capacities are shared: ``simgrid`` or ``fair``.
        metered: Whether loads of links are recorded; see `link_loads`.
    """

    def __init__(
        self, platform: Platform, sharing: Sharing = "simgrid", *, metered: bool = False
    ) -> None:
        hosts, links = len(platform.host_names), len(platform.link_names)
        resources = np.zeros(hosts + links, RESOURCE)
        resources["capacity"][:hosts] = platform.host_cores * platform.host_speed
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
        self._free = {kind: FreeRows() for kind in _TABLES}
        self._jobs: dict[Hashable, dict[str, tuple[int, int]]] = {}
        self._job_of: dict[int, Hashable] = {}
        self._describe()
        self._names = (*platform.host_names, *platform.link_names)
        self.metered = metered
        self.next_s = float("inf")

    def start(self, job: Hashable, time_s: float, phases: Phases) -> None:
        """Start a job.

        Args:
            job: Key of the job.
            time_s: Start, in seconds; the network has advanced to this time.
            phases: Its phases.
        """
        tables = {kind: getattr(phases, kind) for kind in _TABLES}
        rows = {}
        for kind, table in tables.items():
            first = self._free[kind].take(len(table))
            rows[kind] = first, first + len(table)
        self._fit_tables()
        for kind, table in tables.items():
            self._arrays[kind][slice(*rows[kind])] = table
        self._jobs[job] = rows
        self._job_of[rows["strands"][0]] = job
        self._net["strand_count"] = self._free["strands"].end
        START(self._address, np.array([*rows.values()]).ravel(), time_s)

    def stop(self, job: Hashable, time_s: float) -> None:
        """Stop a running job at a time to which the network has advanced."""
        first, last = self._jobs[job]["strands"]
        STOP(self._address, first, last, time_s)
        self._forget(first)

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
