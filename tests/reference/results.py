"""What a simulation gives."""

from __future__ import annotations

from dataclasses import dataclass

from hpctwin.model import State


@dataclass(frozen=True)
class ReferenceJob:
    """What became of one row of the workload; times are -1 where there is none.

    ``end_ms`` is set for every job that ended, also for those that ended without starting.
    ``nodes`` are the numbers of the nodes of its last attempt, if that was not undone, ``gpus`` what it had
    of each GPU of each of them, where these are counted one by one.
    """

    row: int
    state: State
    eligible_ms: int
    start_ms: int
    end_ms: int
    requeues: int
    nodes: tuple[int, ...]
    gpus: tuple[tuple[int, int, float], ...] = ()  # node, GPU, share
    preemptions: int = 0
    in_vain_ms: int = 0
    pushed: int = 0
    risen: int = 0


@dataclass(frozen=True)
class Pass:
    """One scheduling pass: its time, who started, and the reservations made in it (row, start)."""

    now_ms: int
    started: tuple[int, ...]
    reservations: tuple[tuple[int, int], ...]
