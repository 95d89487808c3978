"""Bottlenecks of one job on the network, and the jobs that share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.contention.network import Network, RunningUses
from hpctwin.engine.network.records import DELAY, DELAYED, FORK, LATENT, REPEAT, RUNNING, TASK

__all__ = ["Bottlenecks", "PhaseRecord"]

_KINDS = {DELAY: "delay", TASK: "parallel task", FORK: "separate ranks"}
_ALIKE = 1e-6
"""Relative difference up to which two amounts count as equal."""


@dataclass
class PhaseRecord:
    """A phase of the job, with all its repetitions.

    Args:
        number: Number of the phase, from 1.
        kind: ``delay``, ``parallel task``, or ``separate ranks`` of recorded calls and tasks of ranks.
        begin_s, end_s: Its first begin and last end, in seconds.
        run_s: Time that it took, in seconds.
        lost_s: Part of it that it would not have taken alone, in seconds.
        bottlenecks: The same by link that held it back.
        sharers: The same by job, in proportion to what each carried over these links. Jobs are rows.
    """

    number: int
    kind: str
    begin_s: float
    end_s: float
    run_s: float = 0.0
    lost_s: float = 0.0
    bottlenecks: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sharers: dict[int, float] = field(default_factory=lambda: defaultdict(float))


class Bottlenecks:
    """A record of one job, made while it runs.

    Args:
        row: Row of the job.

    Attributes:
        phases: Its phases so far, by number; of its last start, if it started again.
    """

    def __init__(self, row: int) -> None:
        self.row = row
        self.phases: dict[int, PhaseRecord] = {}
        self._start: Any = None
        self._since_s = 0.0
        self._now: tuple[int, float, dict[str, float], dict[int, float]] | None = None

    def look(self, network: Network, origin_s: float) -> None:
        """Record what holds until the next event.

        Args:
            network: Network that has just advanced.
            origin_s: Time at which its clock is 0, in seconds.
        """
        now_s = origin_s + network.now_s
        if self._now is not None:
            self._charge(now_s)
        self._since_s, self._now = now_s, None
        start = next((key for key in network.running if key[0] == self.row), None)
        if start is None:
            return
        if start != self._start:
            self._start, self.phases = start, {}
        self._look_at_phase(network, now_s)

    def _charge(self, now_s: float) -> None:
        assert self._now is not None
        number, lost, bottlenecks, sharers = self._now
        span_s, phase = now_s - self._since_s, self.phases[number]
        phase.end_s = now_s
        phase.run_s += span_s
        phase.lost_s += lost * span_s
        for name, part in bottlenecks.items():
            phase.bottlenecks[name] += part * span_s
        for row, part in sharers.items():
            phase.sharers[row] += part * span_s

    def _look_at_phase(self, network: Network, now_s: float) -> None:
        own = network.tables_of(self._start)
        at = own["strands"]["step"][0] - own["strands"]["begin"][0]
        kinds = own["steps"]["kind"][: at + 1]
        number = int(np.count_nonzero(kinds != REPEAT))
        if number not in self.phases:
            kind = _KINDS.get(kinds[-1], "")
            self.phases[number] = PhaseRecord(number, kind, now_s, now_s)
        phases = own["strands"]["phase"]
        active = np.count_nonzero(np.isin(phases, (DELAYED, LATENT, RUNNING)))
        lost = 0.0
        bottlenecks: dict[str, float] = defaultdict(float)
        sharers: dict[int, float] = defaultdict(float)
        if (phases == RUNNING).any():
            uses = network.running_uses()
            for strand in np.unique(uses.strand[uses.job == uses.jobs.index(self._start)]):
                for part, name, others in _lost(uses, int(strand)):
                    lost += part / active
                    bottlenecks[name] += part / active
                    for key, share in others:
                        sharers[key[0]] += share * part / active
        self._now = number, lost, bottlenecks, sharers


def _lost(uses: RunningUses, strand: int) -> Iterator[tuple[float, str, list[tuple[Any, float]]]]:
    """Yield what a task loses at each of its bottlenecks: per second, name, and other jobs.

    A bottleneck of a task is a resource at which no other task gets more, and that is used most.
    """
    own = uses.strand == strand
    lost = 1.0 - uses.rate[own][0] / uses.alone_rate(own)
    if lost <= _ALIKE:
        return
    found = []
    for resource in np.unique(uses.resource[own]):
        there = uses.resource == resource
        by_strand = np.bincount(uses.strand[there], uses.taken[there])
        largest = by_strand[strand] >= by_strand.max() * (1 - _ALIKE)
        used = uses.taken[there].sum() / uses.capacity[resource]
        found.append((used + largest, resource, there))
    most = max(score for score, _, _ in found)
    chosen = [(resource, there) for score, resource, there in found if score >= most - _ALIKE]
    for resource, there in chosen:
        yield lost / len(chosen), uses.names[resource], _others(uses, there, strand)


def _others(
    uses: RunningUses, there: npt.NDArray[np.bool_], strand: int
) -> list[tuple[Any, float]]:
    """Return the other jobs on a resource, with their share of what these get."""
    mine = uses.job[uses.strand == strand][0]
    taken = np.bincount(uses.job[there], uses.taken[there], len(uses.jobs))
    taken[mine] = 0.0
    total = taken.sum()
    return [(uses.jobs[job], taken[job] / total) for job in np.flatnonzero(taken).tolist()]
