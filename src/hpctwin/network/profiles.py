"""Profiles: a job's computation, communication, reads and writes.

Amounts are those of one run of the job on its nodes: a reader spreads totals. A rank is one of the
processes of a job; rank *i* is on the *i*-th node of the job's allocation unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.network.patterns import Pattern

__all__ = [
    "SMPI_ACTIONS",
    "Action",
    "Delay",
    "HomogeneousTask",
    "ParallelTask",
    "Profile",
    "Sequence",
    "SmpiTrace",
    "SpreadTask",
    "Staging",
    "StorageTransfer",
    "Usage",
    "UsageTrace",
    "parts_of",
    "per_rank",
]

FloatArray = npt.NDArray[np.float64]
Action = tuple[str, tuple[float, ...]]
"""Name and numbers of an action of an SMPI trace, such as ``("send", (1.0, 0.0, 1e6))``."""

SMPI_ACTIONS = {
    "init": 0,
    "finalize": 0,
    "compute": 1,
    "send": 3,
    "recv": 3,
    "bcast": 1,
    "alltoall": 2,
    "barrier": 0,
    "reduce": 2,
}
"""Actions of SMPI traces, and how many numbers each needs at least."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Profile:
    """Profile of a job or of a part of it.

    Args:
        exit_code: Exit code of a normal end; other than 0, the job fails and ends.
        expected_s: Length on an otherwise empty cluster as the file states it, in seconds; None if
            it does not.
        extra_data: Whatever the file adds for its scheduler.
    """

    exit_code: int = 0
    expected_s: float | None = None
    extra_data: Any = None

    @property
    def length_s(self) -> float | None:
        """Length if it is the same on all nodes, in seconds; None if it depends on them."""
        return None

    @property
    def end_code(self) -> int:
        """Exit code of a normal end; that of the first part that fails, if any."""
        return self.exit_code

    @property
    def computes(self) -> bool:
        """Whether it needs the speed of cores."""
        return False

    @property
    def is_total(self) -> bool:
        """Whether its amounts are totals, which any number of ranks may share."""
        return False


@dataclass(frozen=True, eq=False)
class Delay(Profile):
    """Wait without using anything.

    Args:
        duration_s: Time, in seconds.
    """

    duration_s: float

    @property
    def length_s(self) -> float | None:
        """See `Profile`."""
        return self.duration_s

    @property
    def is_total(self) -> bool:
        """See `Profile`."""
        return True


@dataclass(frozen=True, eq=False)
class ParallelTask(Profile):
    """Compute and send at the same time and in proportion.

    Args:
        cpu: Computation of each rank, in flops [ranks]; None for none.
        com: Bytes from each rank to each other [ranks, ranks]; None for none.
    """

    cpu: FloatArray | None
    com: FloatArray | None

    @property
    def ranks(self) -> int:
        """Number of ranks; 0 if there is nothing to do."""
        both = self.cpu if self.cpu is not None else self.com
        return 0 if both is None else len(both)

    @cached_property
    def computes(self) -> bool:
        """See `Profile`."""
        return self.cpu is not None and bool(self.cpu.any())


@dataclass(frozen=True, eq=False)
class HomogeneousTask(Profile):
    """Compute and send the same on each rank.

    Args:
        cpu: Computation of each rank, in flops.
        com: Bytes from each rank to each other one; a rank sends none to itself.
        total: Whether amounts are totals. ``ranks`` divides both by the number of ranks, as Batsim
            before 5 does; ``pairs`` divides bytes by the number of pairs of two ranks.
    """

    cpu: float
    com: float
    total: Literal["", "ranks", "pairs"] = ""

    @property
    def computes(self) -> bool:
        """See `Profile`."""
        return self.cpu > 0

    @property
    def is_total(self) -> bool:
        """See `Profile`."""
        return self.total != ""

    def on(self, ranks: int) -> HomogeneousTask:
        """Return the same with amounts of each rank, for a number of ranks."""
        if not self.total:
            return self
        pairs = ranks * (ranks - 1)
        com = self.com / ranks if self.total == "ranks" else self.com / pairs if pairs else 0.0
        return replace(self, cpu=self.cpu / ranks, com=com, total="")


@dataclass(frozen=True, eq=False)
class SpreadTask(Profile):
    """Compute and send; amounts are of all ranks together.

    Args:
        flops: Computation, in flops; each rank has the same share.
        volume: Bytes; each flow of the pattern has the same share.
        pattern: Which ranks send to which others.
    """

    flops: float = 0.0
    volume: float = 0.0
    pattern: Pattern = Pattern.ALL_TO_ALL

    @property
    def computes(self) -> bool:
        """See `Profile`."""
        return self.flops > 0

    @property
    def is_total(self) -> bool:
        """See `Profile`."""
        return True


@dataclass(frozen=True, eq=False)
class StorageTransfer(Profile):
    """Read from a storage and write to it, at the same time and in proportion.

    Args:
        read: Bytes from the storage to each rank.
        write: Bytes from each rank to the storage.
        storage: Name of the storage's host, or a label of it.
        spread: Whether amounts are of all ranks together.
    """

    read: float
    write: float
    storage: str
    spread: bool = False

    @property
    def is_total(self) -> bool:
        """See `Profile`."""
        return self.spread


@dataclass(frozen=True, eq=False)
class Staging(Profile):
    """Move data between two storages; the job's nodes take no part.

    Args:
        amount: Bytes.
        source: Name or label of the storage that has the data.
        target: Name or label of the other storage.
    """

    amount: float
    source: str
    target: str

    @property
    def is_total(self) -> bool:
        """See `Profile`."""
        return True


@dataclass(frozen=True, eq=False)
class Sequence(Profile):
    """Parts one after another.

    Args:
        parts: Parts, in their order.
        repeat: How many times all parts are run.
        resumes: Whether a job with this profile that starts again, after a node failure or for
            another job, continues after the last part that it finished. Parts of parts count.
        full_power: Whether the nodes of a job with this profile draw full power as long as it runs,
            because their load is unknown.
    """

    parts: tuple[Profile, ...]
    repeat: int = 1
    resumes: bool = False
    full_power: bool = False

    @cached_property
    def length_s(self) -> float | None:
        """See `Profile`."""
        total_s = 0.0
        for part in self.parts:
            if part.length_s is None:
                return None
            total_s += part.length_s
            if part.end_code:
                return total_s
        return total_s * self.repeat

    @cached_property
    def end_code(self) -> int:
        """See `Profile`."""
        return next((part.end_code for part in self.parts if part.end_code), self.exit_code)

    @cached_property
    def computes(self) -> bool:
        """See `Profile`."""
        for part in self.parts:
            if part.computes:
                return True
            if part.end_code:
                break
        return False

    @cached_property
    def is_total(self) -> bool:
        """See `Profile`."""
        return all(part.is_total for part in self.parts)


@dataclass(frozen=True, eq=False)
class Usage:
    """Recorded use of one node, one line after another.

    Args:
        usage: Share of the node's cores in use, from 0 to 1 [lines].
        flops: Computation of each core in use [lines].
    """

    usage: FloatArray
    flops: FloatArray


@dataclass(frozen=True, eq=False)
class UsageTrace(Profile):
    """Recorded use of each node.

    Args:
        ranks: Use of the node of each rank.
    """

    ranks: tuple[Usage, ...]

    @cached_property
    def computes(self) -> bool:
        """See `Profile`."""
        return any(bool(rank.flops.any()) for rank in self.ranks)


@dataclass(frozen=True, eq=False)
class SmpiTrace(Profile):
    """Recorded MPI calls of each rank.

    Args:
        ranks: Actions of each rank, in their order.
        placement: Place of each rank in the job's allocation; None for one after another, again
            from the first node if there are more ranks than nodes.
    """

    ranks: tuple[tuple[Action, ...], ...]
    placement: tuple[int, ...] | None = None

    @cached_property
    def computes(self) -> bool:
        """See `Profile`."""
        flops = {"compute": 0, "reduce": 1}
        return any(
            name in flops and numbers[flops[name]] > 0
            for actions in self.ranks
            for name, numbers in actions
        )


def per_rank(profile: Profile, ranks: int) -> Profile:
    """Return a profile whose amounts are those of each rank, for a number of ranks."""
    match profile:
        case Sequence():
            return replace(profile, parts=tuple(per_rank(part, ranks) for part in profile.parts))
        case StorageTransfer(spread=True):
            share = profile.read / ranks, profile.write / ranks
            return replace(profile, read=share[0], write=share[1], spread=False)
        case HomogeneousTask():
            return profile.on(ranks)
        case SpreadTask():
            com = np.zeros((ranks, ranks))
            sources, targets, amounts = profile.pattern.flows(ranks, profile.volume)
            com[sources, targets] = amounts
            cpu = np.full(ranks, profile.flops / ranks)
            return ParallelTask(
                cpu, com, **{one.name: getattr(profile, one.name) for one in fields(Profile)}
            )
    return profile


def parts_of(profile: Profile) -> list[Profile]:
    """Return the parts of a profile that are no sequences, each once."""
    seen: dict[int, Profile] = {}
    left = [profile]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            left += reversed(one.parts) if isinstance(one, Sequence) else ()
    return [one for one in seen.values() if not isinstance(one, Sequence)]
