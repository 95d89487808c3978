"""Tasks of ranks that wait for each other only where a task says so, as in ElastiSim.

Each rank does its tasks one after another, on its own node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from hpctwin.network.profiles import Profile

__all__ = [
    "PATTERNS",
    "Access",
    "Busy",
    "Exchange",
    "Gpu",
    "Idle",
    "RankTask",
    "RankTasks",
    "Repeated",
    "bytes_between",
]

FloatArray = npt.NDArray[np.float64]

PATTERNS = (
    "all_to_all", "gather", "scatter", "master_worker", "ring", "ring_clockwise",
    "ring_counter_clockwise",
)  # fmt: skip
"""Patterns of communication: which ranks send to which."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RankTask:
    """A task that all ranks do.

    Args:
        repeat: How many times each rank does it.
        synchronized: Whether each time begins when all ranks have reached it.
    """

    repeat: int = 1
    synchronized: bool = False


@dataclass(frozen=True, eq=False)
class Idle(RankTask):
    """Wait without using anything.

    Args:
        seconds: Time of each rank [ranks].
    """

    seconds: FloatArray


@dataclass(frozen=True, eq=False)
class Busy(RankTask):
    """Compute for a time at the speed of one core, or longer if the core is shared.

    Args:
        seconds: Time of each rank [ranks].
    """

    seconds: FloatArray


@dataclass(frozen=True, eq=False)
class Exchange(RankTask):
    """Compute, and send to other ranks once all ranks have reached the task.

    Args:
        flops: Computation of each rank [ranks]; None for none.
        com: Bytes from each rank to each other [ranks, ranks]; a pattern and its bytes; None for
            none.
        coupled: Whether computation and communication progress together.
    """

    flops: FloatArray | None
    com: FloatArray | tuple[str, float] | None
    coupled: bool = False

    @property
    def together(self) -> bool:
        """Whether it is one parallel task of all ranks."""
        return self.com is not None and (self.coupled or self.flops is None)


@dataclass(frozen=True, eq=False)
class Gpu(RankTask):
    """Compute on GPUs, while GPUs of a node and nodes send to each other.

    Args:
        gpus: GPUs of each rank.
        flops: Computation of each of these GPUs by rank [ranks]; None for none.
        inside: Most bytes that two GPUs of a node send to each other.
        com: As for `Exchange`.
    """

    gpus: int
    flops: FloatArray | None
    inside: float
    com: tuple[str, float] | None


@dataclass(frozen=True, eq=False)
class Access(RankTask):
    """Read from storage or write to it; each rank is one parallel task.

    Args:
        amounts: Bytes of each rank [ranks].
        write: Whether it writes.
        storage: ``shared`` file systems, spread evenly over them, or the burst buffer of the
            ``node``, spread over those of all ranks if the platform says so.
        asynchronous: Whether the rank continues at once. It then waits at the end of the tasks
            around this one.
    """

    amounts: FloatArray
    write: bool
    storage: Literal["shared", "node"]
    asynchronous: bool = False


@dataclass(frozen=True, eq=False)
class Repeated(RankTask):
    """Tasks one after another.

    Args:
        tasks: Tasks in their order.
    """

    tasks: tuple[RankTask, ...]


@dataclass(frozen=True, eq=False)
class RankTasks(Profile):
    """Tasks of each rank. They end when all ranks have done them.

    Args:
        ranks: Number of ranks.
        tasks: Tasks in their order.
    """

    ranks: int
    tasks: tuple[RankTask, ...]

    @cached_property
    def length_s(self) -> float | None:
        """See `Profile`."""
        ends = _after(self.tasks, np.zeros(self.ranks))
        return None if ends is None else float(ends.max(initial=0.0))

    @cached_property
    def computes(self) -> bool:
        """Whether it needs the speed of cores."""
        return any(map(_computes, self.tasks))


def _computes(task: RankTask) -> bool:
    if isinstance(task, Repeated):
        return any(map(_computes, task.tasks))
    return isinstance(task, Exchange) and task.flops is not None and bool(task.flops.any())


def _after(tasks: Iterable[RankTask], time_s: FloatArray) -> FloatArray | None:
    """Return when ranks have done tasks, in seconds [ranks]; None if it depends on nodes."""
    for task in tasks:
        if task.repeat == 0:
            continue
        once = _after_once(task, time_s)
        if once is None:
            return None
        time_s = once
        if task.repeat > 1:
            # From the second time on, each time takes the same.
            twice = _after_once(task, once)
            assert twice is not None
            time_s = once + (task.repeat - 1) * (twice - once)
    return time_s


def _after_once(task: RankTask, time_s: FloatArray) -> FloatArray | None:
    if task.synchronized:
        time_s = np.full(len(time_s), time_s.max())
    if isinstance(task, Idle | Busy):
        return time_s + task.seconds
    return _after(task.tasks, time_s) if isinstance(task, Repeated) else None


def bytes_between(pattern: str, amount: float, ranks: int) -> FloatArray:
    """Return the bytes from each rank to each other of a pattern, as ElastiSim spreads them.

    Args:
        pattern: One of `PATTERNS`.
        amount: Bytes of the pattern.
        ranks: Number of ranks, n.

    Returns:
        Bytes [ranks, ranks], or a single number for all pairs of two ranks:

        - ``all_to_all``: amount / (n (n - 1)) from each rank to each other;
        - ``gather``, ``scatter``: amount / n from each other rank to rank 0, or to it;
        - ``master_worker``: 2 amount / (n - 1) from rank 0 to each other, and back;
        - ``ring``: amount / 2n to each of the two neighbors;
        - ``ring_clockwise``, ``ring_counter_clockwise``: amount / n to the next or last rank.
    """
    if ranks == 1:
        return np.zeros(1)
    if pattern == "all_to_all":
        return np.array([amount / (ranks * (ranks - 1))])
    com = np.zeros((ranks, ranks))
    rank = np.arange(ranks)
    if pattern in ("gather", "master_worker"):
        com[1:, 0] = amount / ranks if pattern == "gather" else 2 * amount / (ranks - 1)
    if pattern in ("scatter", "master_worker"):
        com[0, 1:] = amount / ranks if pattern == "scatter" else 2 * amount / (ranks - 1)
    if pattern in ("ring", "ring_clockwise"):
        com[rank, (rank + 1) % ranks] += amount / (ranks * (2 if pattern == "ring" else 1))
    if pattern in ("ring", "ring_counter_clockwise"):
        com[rank, (rank - 1) % ranks] += amount / (ranks * (2 if pattern == "ring" else 1))
    return com
