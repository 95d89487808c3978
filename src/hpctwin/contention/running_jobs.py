"""Jobs of a simulation that share its network: they start with the engine's, and end them."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Rows
from itertools import islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpctwin.contention.alone import EmptyNetwork, contention_slowdown
from hpctwin.contention.bottlenecks import Bottlenecks
from hpctwin.contention.link_loads import LinkLoads
from hpctwin.contention.network import Ended, Network, Position
from hpctwin.contention.phases import PhaseBuilder, Sharing
from hpctwin.contention.ranks import Held, ranks_of_job
from hpctwin.contention.sizes import Sizes
from hpctwin.contention.spared_energy import SparedEnergy
from hpctwin.engine.compile.jit import prepare
from hpctwin.engine.jobs.moving_ends import PUT_END
from hpctwin.engine.state.layout import NEVER
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import ConfigError
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import Profile, Sequence

__all__ = ["RunningJobs"]

_MS = 1000.0
_EXACT_MS = 1e-6
"""Rounding of times: an end this much after a millisecond still counts as within it."""

IntArray = npt.NDArray[np.int64]
_NONE: IntArray = np.zeros(0, np.int64)
_Start = tuple[int, int]
"""A job by its row, and when it started, ms: it may start again."""


class RunningJobs:
    """Jobs on the network of a simulation, which counts whole milliseconds.

    The network keeps exact times. A job ends at the first millisecond after its exact end.

    Args:
        platform: Hosts and links; node *i* is the *i*-th host that computes.
        profiles: What each job does, by its row; None for a job that does not use the network.
        names: Name of each job, for messages.
        sharing: How capacities are shared: ``simgrid`` or ``fair``.
        metered: Whether loads of links are recorded; see `link_loads`.
        spared: Energy that jobs have spared; None if power does not follow the load.
        cleans: Whether nodes are cleaned up after jobs, which end before that.
        suspends: Whether jobs may be suspended for others.
        checkpoints: Whether jobs write checkpoints, from which they continue.
        sizes: How the sizes of jobs change; None if they do not.

    Attributes:
        uses: Whether each job uses the network, by its row.
        slowdown: Contention slowdown of each job that has ended, by its row; NaN for others.
        watched: Record of one job, which is made while it runs.
    """

    def __init__(
        self,
        platform: Platform,
        profiles: Rows[Profile | None],
        names: Rows[Any],
        sharing: Sharing,
        *,
        metered: bool = False,
        spared: SparedEnergy | None = None,
        cleans: bool = False,
        suspends: bool = False,
        checkpoints: bool = False,
        sizes: Sizes | None = None,
    ) -> None:
        self._know(profiles, names)
        self._hosts = platform.hosts_of("compute_node")
        gpus = np.array([one.gpus for one in platform.host_devices], float)
        self._whole = Held(platform.host_cores[self._hosts].astype(float), gpus[self._hosts])
        self._builder = PhaseBuilder(platform, sharing)
        self._lock = threading.Lock()  # the builder is shared with all forks
        self._network = Network(platform, sharing, metered=metered, counts=spared is not None)
        self._empty = EmptyNetwork(platform, sharing)
        self._alone_s: dict[_Start, float] = {}
        self._stood_ms: dict[_Start, int] = {}
        """How long jobs have been suspended; while they are, minus the time at which it began."""
        self.slowdown = np.full(len(profiles), np.nan)
        self._spared, self._cleans, self._suspends = spared, cleans, suspends
        self._checkpoints, self._sizes = checkpoints, sizes
        self._nodes: dict[_Start, IntArray] = {}
        """Nodes of jobs on the network, if their energy is counted."""
        self._counted_ms: dict[_Start, int] = {}
        """Times up to which the energy of jobs has been counted, if that is after their start."""
        self._positions: dict[int, Position] = {}
        """Where jobs continue if they start again, by their rows."""
        self._written_ms = 0
        """Time up to which checkpoints have been written."""
        self._followed: set[_Start] = set()
        self._suspended: set[_Start] = set()
        self._coming: set[_Start] = set()
        """Starts to come: the nodes of these jobs are being switched on."""
        self._origin_ms = 0
        self._first_ms: int | None = None
        self._last_s = 0.0
        self.watched: Bottlenecks | None = None
        prepare([PUT_END])

    def fork(self) -> Self:
        """Return a copy that shares no writable data with this one."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._network = self._network.fork()
        twin._followed, twin._coming = self._followed.copy(), self._coming.copy()
        twin._alone_s, twin.slowdown = self._alone_s.copy(), self.slowdown.copy()
        twin._stood_ms = self._stood_ms.copy()
        twin._positions, twin._suspended = self._positions.copy(), self._suspended.copy()
        if self._spared is not None:
            twin._spared, twin._nodes = self._spared.fork(), self._nodes.copy()
            twin._counted_ms = self._counted_ms.copy()
        return twin

    def _know(self, profiles: Rows[Profile | None], names: Rows[Any]) -> None:
        self.profiles, self._names = profiles, names
        self.uses = np.array([profile is not None for profile in profiles], bool)

    def with_jobs(self, profiles: Rows[Profile | None], names: Rows[Any], place: IntArray) -> Self:
        """Return a copy whose jobs have other rows.

        Args:
            profiles: As for `RunningJobs`, of all jobs from now on.
            names: As for `RunningJobs`.
            place: New row of each job by its row, -1 for none; running jobs have one.
        """
        twin = self.fork()
        twin._know(profiles, names)

        def moved(start: _Start) -> _Start:
            return int(place[start[0]]), start[1]

        twin._network.rename(moved)
        twin._followed = {moved(start) for start in self._followed}
        twin._coming = {moved(start) for start in self._coming}
        twin._suspended = {moved(start) for start in self._suspended}
        twin._positions = {
            int(place[row]): one for row, one in self._positions.items() if place[row] >= 0
        }
        twin._nodes = {moved(start): nodes for start, nodes in self._nodes.items()}
        twin._counted_ms = {moved(start): time for start, time in self._counted_ms.items()}
        twin._alone_s = {moved(start): alone_s for start, alone_s in self._alone_s.items()}
        twin._stood_ms = {moved(start): time for start, time in self._stood_ms.items()}
        twin.slowdown = np.full(len(profiles), np.nan)
        kept = place >= 0
        twin.slowdown[place[kept]] = self.slowdown[: len(place)][kept]
        if twin._spared is not None:
            twin._spared.rename(place)
        return twin

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that changes over time, as arrays."""
        starts = {
            "jobs": self._network.running,
            "followed": sorted(self._followed),
            "coming": sorted(self._coming),
            "suspended": sorted(self._suspended),
        }
        positions = [
            (row, at.step, len(at.rounds), at.phase) for row, at in self._positions.items()
        ]
        rounds = [np.array(at.rounds, np.int64) for at in self._positions.values()]
        own = {} if self._spared is None else self._spared.state()
        nodes = [self._nodes.get(start, _NONE) for start in starts["jobs"]]
        return {
            **self._network.state(),
            **own,
            "nodes": np.concatenate([_NONE, *nodes]),
            "counted_ms": np.array(
                [self._counted_ms.get(start, start[1]) for start in starts["jobs"]], np.int64
            ),
            "node_counts": np.array([len(one) for one in nodes], np.int64),
            **{name: np.array(one, np.int64).reshape(-1, 2) for name, one in starts.items()},
            "origin_ms": np.array(self._origin_ms),
            "first_ms": np.array(NEVER if self._first_ms is None else self._first_ms),
            "last_s": np.array(self._last_s),
            "written_ms": np.array(self._written_ms),
            "alone_s": np.array([self._alone_s[start] for start in starts["jobs"]], float),
            "stood_ms": np.array([self._stood_ms.get(one, 0) for one in starts["jobs"]], np.int64),
            "slowdown": self.slowdown,
            "positions": np.array(positions, np.int64).reshape(-1, 4),
            "position_left": np.array([at.left for at in self._positions.values()], float),
            "rounds": np.concatenate([_NONE, *rounds]),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the state of another simulation of the same jobs and platform."""
        jobs, followed, coming, suspended = (
            [(row, start_ms) for row, start_ms in state[name].tolist()]
            for name in ("jobs", "followed", "coming", "suspended")
        )
        self._network.restore(state, jobs)
        self._followed, self._coming = set(followed), set(coming)
        self._suspended = set(suspended)
        self._origin_ms, first_ms = int(state["origin_ms"]), int(state["first_ms"])
        self._first_ms = None if first_ms == NEVER else first_ms
        self._written_ms = int(state["written_ms"])
        self._last_s, self.slowdown = float(state["last_s"]), state["slowdown"].copy()
        self._alone_s = dict(zip(jobs, state["alone_s"].tolist(), strict=True))
        self._stood_ms = dict(zip(jobs, state["stood_ms"].tolist(), strict=True))
        rounds = iter(state["rounds"].tolist())
        self._positions = {
            row: Position(step, tuple(islice(rounds, count)), phase, left)
            for (row, step, count, phase), left in zip(
                state["positions"].tolist(), state["position_left"].tolist(), strict=True
            )
        }
        if self._spared is not None:
            self._spared.restore(state)
            nodes = np.split(state["nodes"], np.cumsum(state["node_counts"]))
            self._nodes = dict(zip(jobs, nodes, strict=False))  # the last part is empty
            self._counted_ms = dict(zip(jobs, state["counted_ms"].tolist(), strict=True))

    def next_ms(self, sim: Sim) -> int:
        """Return the next time at which something happens on the network, in ms.

        No job ends before it.
        """
        times = [start_ms for _, start_ms in self._coming]
        if self._cleans:
            times += self._known_ends(sim).values()
        if self._checkpoints:
            times += self._next_checkpoints(sim).values()
        if self._network.next_s < math.inf:
            times.append(self._whole_ms(self._network.next_s))
        return min(times, default=int(NEVER))

    def link_loads(self, now_ms: int) -> LinkLoads | None:
        """Return what links have carried; None if this is not recorded.

        Args:
            now_ms: Time of the simulation, in ms.
        """
        if not self._network.metered:
            return None
        end_s = now_ms / _MS if self._network.running else self._last_s
        loads = self._network.link_loads(end_s - self._origin_ms / _MS)
        return dataclasses.replace(loads, begin_s=(self._first_ms or 0) / _MS, end_s=end_s)

    def advance(self, sim: Sim, time_ms: int) -> None:
        """Advance to a time, and let the engine know which jobs end by then.

        Args:
            sim: The engine's state; all its events before this time have been applied.
            time_ms: Time, in ms.
        """
        begun = [start for start in self._coming if start[1] <= time_ms]
        self._end_jobs(sim, time_ms)
        if self._checkpoints:
            self._write_checkpoints(sim, time_ms)
        if self._cleans:
            for start, end_ms in self._known_ends(sim).items():
                if end_ms <= time_ms:
                    self._stop(start, time_ms)
        for start in sorted(begun):
            self._coming.remove(start)
            self._start(sim, *start)
        if begun:
            self._end_jobs(sim, time_ms)

    def follow(self, sim: Sim) -> None:
        """Start jobs that the engine has started, and stop jobs that it has stopped."""
        now_ms = int(sim.clock.now)
        rows = sim.running["job"]
        rows = rows[self.uses[rows]]
        starts, over = sim["state"]["start"][rows], sim["state"]["end"][rows] <= now_ms
        halted = np.zeros(len(rows), bool)
        if self._suspends:
            # The engine moves the start of a suspended job to later times.
            starts = starts - sim["cut"]["paused"][rows]
            halted = sim["cut"]["suspended"][rows] == 1
        running, suspended = (
            set(zip(rows[which].tolist(), starts[which].tolist(), strict=True))
            for which in (halted | ~over, halted)
        )
        if running == self._followed and suspended == self._suspended:
            return
        self._end_jobs(sim, now_ms)
        for start in sorted(self._followed - running):
            self._coming.discard(start)
            if self._network.has(start):
                self._stop(start, now_ms)
        for start in filter(self._network.has, sorted(suspended - self._suspended)):
            self._network.pause(start, self._seconds(now_ms))
            self._count_up_to(start, now_ms)
            self._stood_ms[start] = self._stood_ms.get(start, 0) - now_ms
        resumed = self._suspended - suspended
        self._suspended = suspended
        for start in filter(self._network.has, sorted(resumed)):
            self._network.resume(start, self._seconds(now_ms))
            self._counted_ms[start] = now_ms
            self._stood_ms[start] += now_ms
        for start in sorted(running - self._followed):
            if start[1] > now_ms:
                self._coming.add(start)
            else:
                self._start(sim, *start)
        self._followed = running
        self._end_jobs(sim, now_ms)

    def halt(self, sim: Sim, rows: Collection[int]) -> None:
        """Stop jobs that the engine is about to stop so that their sizes change.

        Each will continue with the part of its present step that is left.

        Args:
            sim: The engine's state.
            rows: Rows of the jobs.
        """
        now_ms = int(sim.clock.now)
        self._end_jobs(sim, now_ms)
        for start in [one for one in self._followed if one[0] in rows]:
            self._followed.remove(start)
            self._coming.discard(start)
            if self._network.has(start):
                self._stop(start, now_ms, within=True)

    def _known_ends(self, sim: Sim) -> dict[_Start, int]:
        """Return when the engine ends jobs on the network, in ms, if the network does not before."""
        ends = sim["state"]["end"]
        return {start: int(ends[start[0]]) for start in self._network.running}

    def _next_checkpoints(self, sim: Sim) -> dict[_Start, int]:
        """Return when jobs on the network write their next checkpoints, in ms."""
        intervals, cut, found = sim["claim"]["checkpoint"], sim["cut"], {}
        for row, start_ms in self._network.running:
            every = int(intervals[row])
            if every and (row, start_ms) not in self._suspended:
                since_ms, ran_ms = start_ms, 0
                if self._suspends and cut["pauses"][row] > 0:
                    # It has written those up to its last suspension.
                    since_ms, ran_ms = start_ms + int(cut["paused"][row]), int(cut["ran"][row])
                ran_ms = max(self._written_ms - since_ms, ran_ms)
                found[row, start_ms] = since_ms + (ran_ms // every + 1) * every
        return found

    def _write_checkpoints(self, sim: Sim, time_ms: int) -> None:
        """Keep the positions of jobs that write a checkpoint at a time, up to which all have run."""
        due = [start for start, at_ms in self._next_checkpoints(sim).items() if at_ms <= time_ms]
        if due:
            copy = self._network.fork()
            for start in due:
                position = copy.stop(start, self._seconds(time_ms), within=True)
                self._positions[start[0]] = position
        self._written_ms = time_ms

    def spared(self, now_ms: int) -> SparedEnergy | None:
        """Return the energy that jobs have spared up to now; None if it is not counted."""
        if self._spared is None:
            return None
        twin = self.fork()
        for start in twin._network.running:
            twin._stop(start, now_ms)
        return twin._spared

    def _stop(self, start: _Start, now_ms: int, *, within: bool = False) -> None:
        self._note_slowdown(start, now_ms / _MS, stopped=True)
        position = self._network.stop(start, self._seconds(now_ms), within=within)
        row, start_ms = start
        profile, before = self.profiles[row], self._positions.get(row)
        resumes = isinstance(profile, Sequence) and profile.resumes
        further = before is None or position[:2] != before[:2]
        if start_ms < now_ms and (within or (resumes and further)):
            self._positions[row] = position
        self._count(start, now_ms)

    def _count(self, start: _Start, end_ms: int) -> None:
        """Count the energy of a job that is no longer on the network."""
        self._count_up_to(start, end_ms)
        self._nodes.pop(start, None)
        self._counted_ms.pop(start, None)

    def _count_up_to(self, start: _Start, time_ms: int) -> None:
        """Count the energy of a job up to a time, unless it was suspended before."""
        if self._spared is not None and start not in self._suspended:
            nodes, since_ms = self._nodes[start], self._counted_ms.get(start, start[1])
            work = self._network.take_work(self._hosts[nodes])
            profile = self.profiles[start[0]]
            if not (isinstance(profile, Sequence) and profile.full_power):
                self._spared.add((start[0], since_ms), time_ms, nodes, *work)
            self._counted_ms[start] = time_ms

    def set_mode(self, sim: Sim, number: int, name: str, nodes: slice, factor: float) -> None:
        """Put a node group into another mode now.

        Args:
            sim: The engine's state.
            number: Number of the group.
            name: Name of the mode.
            nodes: Its nodes.
            factor: New speed as a multiple of the present one.
        """
        now_ms = int(sim.clock.now)
        self._end_jobs(sim, now_ms)
        if self._spared is not None:
            self._network.count(self._seconds(now_ms))
            for start in self._network.running:
                self._count_up_to(start, now_ms)
            self._spared.set_mode(number, name, factor)
        self._network.set_speed(self._hosts[nodes], factor, self._seconds(now_ms))

    def _start(self, sim: Sim, row: int, start_ms: int) -> None:
        if not self._network.running:
            self._origin_ms = start_ms  # so that times stay exact in a long simulation
            if self._first_ms is None:
                self._first_ms = start_ms
            self._network.begin_meter(self._seconds(self._first_ms))
        profile = self.profiles[row]
        assert profile is not None
        nodes, held = ranks_of_job(sim, row, self._whole)
        hosts, position = self._hosts[nodes], self._positions.get(row)
        rate, wait_s = 1.0, 0.0
        if self._sizes is not None:
            rate = self._sizes.rate(row, len(nodes))
            wait_s = 0.0 if position is None else self._sizes.resize_s(row)
        with self._lock:
            try:
                phases = self._builder.build(profile, hosts, self._network.speed, rate, held)
            except ConfigError as error:
                raise ConfigError(f"job {self._names[row]}: {error}") from error
            self._alone_s[row, start_ms] = wait_s + self._empty.run_s(phases, position)
        self._network.start((row, start_ms), self._seconds(start_ms), phases, position, wait_s)
        if self._spared is not None:
            self._nodes[row, start_ms] = nodes

    def _end_jobs(self, sim: Sim, time_ms: int) -> None:
        """Advance the network; put the ends of its jobs into the engine."""
        network = self._network
        found = self._advance_network(self._seconds(time_ms))
        while network.next_s < math.inf and self._whole_ms(network.next_s) <= time_ms:
            found += self._advance_network(network.next_s)
        for ended in found:
            row, _ = ended.job
            self._note_slowdown(ended.job, ended.time_s + self._origin_ms / _MS, stopped=False)
            PUT_END(sim.address, row, max(self._whole_ms(ended.time_s), int(sim.clock.now)))
            self._count(ended.job, int(sim["state"]["end"][row]))

    def _advance_network(self, until_s: float) -> list[Ended]:
        network, origin_s = self._network, self._origin_ms / _MS
        if self.watched is None:
            return network.advance(until_s)
        found = network.advance(-math.inf)  # only lets jobs start
        self.watched.look(network, origin_s)
        while network.next_s <= until_s:
            found += network.advance(network.next_s)
            self.watched.look(network, origin_s)
        return found

    def _note_slowdown(self, start: _Start, end_s: float, *, stopped: bool) -> None:
        alone_s, stood_ms = self._alone_s.pop(start), self._stood_ms.pop(start, 0)
        if stood_ms < 0:  # it is suspended
            stood_ms += round(end_s * _MS)
        run_s = end_s - (start[1] + stood_ms) / _MS
        self._last_s = max(self._last_s, end_s)
        self.slowdown[start[0]] = contention_slowdown(run_s, alone_s, stopped=stopped)

    def _seconds(self, time_ms: int) -> float:
        """Return a time of the simulation as one of the network."""
        return (time_ms - self._origin_ms) / _MS

    def _whole_ms(self, time_s: float) -> int:
        return self._origin_ms + math.ceil(time_s * _MS - _EXACT_MS)
