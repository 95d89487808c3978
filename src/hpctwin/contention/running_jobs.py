"""Jobs of a simulation that share its network: they start with the engine's, and end them."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from hpctwin.contention.alone import EmptyNetwork, contention_slowdown
from hpctwin.contention.bottlenecks import Bottlenecks
from hpctwin.contention.link_loads import LinkLoads
from hpctwin.contention.network import Ended, Network
from hpctwin.contention.phases import PhaseBuilder, Sharing
from hpctwin.engine.jobs.moving_ends import PUT_END
from hpctwin.engine.operations.creation import prepare
from hpctwin.engine.operations.power_control import nodes_of_job
from hpctwin.engine.state.layout import NEVER
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import ConfigError
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import Profile

__all__ = ["RunningJobs"]

_MS = 1000.0
_EXACT_MS = 1e-6
"""Rounding of times: an end this much after a millisecond still counts as within it."""

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

    Attributes:
        slowdown: Contention slowdown of each job that has ended, by its row; NaN for others.
        watched: Record of one job, which is made while it runs.
    """

    def __init__(
        self,
        platform: Platform,
        profiles: Sequence[Profile | None],
        names: Sequence[Any],
        sharing: Sharing,
        *,
        metered: bool = False,
    ) -> None:
        self._profiles, self._names = profiles, names
        self._uses = np.array([profile is not None for profile in profiles], bool)
        self._hosts = platform.hosts_of("compute_node")
        self._builder = PhaseBuilder(platform, sharing)
        self._lock = threading.Lock()  # the builder is shared with all forks
        self._network = Network(platform, sharing, metered=metered)
        self._empty = EmptyNetwork(platform, sharing)
        self._alone_s: dict[_Start, float] = {}
        self.slowdown = np.full(len(profiles), np.nan)
        self._followed: set[_Start] = set()
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
        return twin

    @property
    def next_ms(self) -> int:
        """Next time at which something happens on the network, in ms; no job ends before it."""
        times = [start_ms for _, start_ms in self._coming]
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
        for start in sorted(begun):
            self._coming.remove(start)
            self._start(sim, *start)
        if begun:
            self._end_jobs(sim, time_ms)

    def follow(self, sim: Sim) -> None:
        """Start jobs that the engine has started, and stop jobs that it has stopped."""
        now_ms = int(sim.clock.now)
        rows = sim.running["job"]
        rows = rows[self._uses[rows]]
        starts = sim["state"]["start"][rows]
        running = set(zip(rows.tolist(), starts.tolist(), strict=True))
        if running == self._followed:
            return
        self._end_jobs(sim, now_ms)
        for start in sorted(self._followed - running):
            self._coming.discard(start)
            if self._network.has(start):
                self._network.stop(start, self._seconds(now_ms))
                self._note_slowdown(start, (now_ms - start[1]) / _MS, stopped=True)
        for start in sorted(running - self._followed):
            if start[1] > now_ms:
                self._coming.add(start)
            else:
                self._start(sim, *start)
        self._followed = running
        self._end_jobs(sim, now_ms)

    def _start(self, sim: Sim, row: int, start_ms: int) -> None:
        if not self._network.running:
            self._origin_ms = start_ms  # so that times stay exact in a long simulation
            if self._first_ms is None:
                self._first_ms = start_ms
            self._network.begin_meter(self._seconds(self._first_ms))
        profile = self._profiles[row]
        assert profile is not None
        hosts = self._hosts[nodes_of_job(sim, row)]
        with self._lock:
            try:
                phases = self._builder.build(profile, hosts)
            except ConfigError as error:
                raise ConfigError(f"job {self._names[row]}: {error}") from error
            self._alone_s[row, start_ms] = self._empty.run_s(phases)
        self._network.start((row, start_ms), self._seconds(start_ms), phases)

    def _end_jobs(self, sim: Sim, time_ms: int) -> None:
        """Advance the network; put the ends of its jobs into the engine."""
        network = self._network
        found = self._advance_network(self._seconds(time_ms))
        while network.next_s < math.inf and self._whole_ms(network.next_s) <= time_ms:
            found += self._advance_network(network.next_s)
        for ended in found:
            row, start_ms = ended.job
            run_s = ended.time_s - self._seconds(start_ms)
            self._note_slowdown(ended.job, run_s, stopped=False)
            PUT_END(sim.address, row, max(self._whole_ms(ended.time_s), int(sim.clock.now)))

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

    def _note_slowdown(self, start: _Start, run_s: float, *, stopped: bool) -> None:
        alone_s = self._alone_s.pop(start)
        self._last_s = max(self._last_s, start[1] / _MS + run_s)
        self.slowdown[start[0]] = contention_slowdown(run_s, alone_s, stopped=stopped)

    def _seconds(self, time_ms: int) -> float:
        """Return a time of the simulation as one of the network."""
        return (time_ms - self._origin_ms) / _MS

    def _whole_ms(self, time_s: float) -> int:
        return self._origin_ms + math.ceil(time_s * _MS - _EXACT_MS)
