"""Dependencies between jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError

_SHOWN = 12


class DependencyKind(IntEnum):
    """Event of the other job. The names are Slurm's and PBS's, except ``THINK``."""

    AFTER = 0  # it has started, or ended without starting
    AFTERANY = 1  # it has ended in any way
    AFTEROK = 2  # it has completed
    THINK = 3  # as AFTERANY; the user submits the job only then (SWF, fields 17 and 18)


class Said(NamedTuple):
    """One dependency as it is written.

    Args:
        word: Kind, such as ``afterok`` or ``singleton``.
        on: Id of the other job, or a count; empty if it names none.
        delay: Number after ``+``, in the unit of the text.
        kind: Engine's kind; None if it has none.
        waits: Whether the other job is the waiting one, as for ``before``.
        lost: Part of its meaning that is not modeled; empty if none.
    """

    word: str
    on: str
    delay: float
    kind: DependencyKind | None
    waits: bool
    lost: str


_AS = {
    "": DependencyKind.AFTER, "start": DependencyKind.AFTER, "any": DependencyKind.AFTERANY,
    "ok": DependencyKind.AFTEROK, "notok": DependencyKind.AFTERANY, "corr": DependencyKind.AFTEROK,
    "burstbuffer": DependencyKind.AFTERANY,
}  # fmt: skip
_WORD = re.compile(r"(after|before)(|start|any|ok|notok|corr|burstbuffer)(?:array)?")
_OTHERS = ("singleton", "expand", "on", "synccount", "syncwith", "runone")
_LOST = {
    "notok": "taken as afterany",
    "burstbuffer": "taken as afterany",
    "corr": "treated as afterok on the whole array",
}


def parse_dependencies(text: str, *, known: Callable[[str], bool] = lambda _: False) -> list[Said]:
    """Read a list of dependencies as in sbatch(1), qsub(1B) and Torque's qsub.

    Args:
        text: Text such as ``afterok:12:13,afterany:14``, ``after:12+5?singleton``,
            ``before:12,on:2`` or ``think:12+600``. Additions of squeue, such as ``(unfulfilled)``,
            are ignored. Parts may be separated by ``;``, too.
        known: Whether a text is the id of a job, even if it contains a separator.

    Raises:
        ValueError: A part is no dependency.
    """
    found: list[Said] = []
    one_of = "?" in text and not known(text)
    for part in re.split(r"[,;?]", re.sub(r"\([^)]*\)", "", text)):
        word, colon, rest = (one.strip() for one in part.strip().strip("\"'").partition(":"))
        if not word:
            continue
        if not colon and re.match(r"\d", word):
            word, rest = "afterany", word  # sbatch: the default type
        word = word.lower()
        match = _WORD.fullmatch(word)
        if match is None and word not in (*_OTHERS, "think"):
            raise ValueError(f"{part.strip()[:50]!r} is not a dependency")
        if match is None and word != "think":
            lost = "" if word in ("singleton", "on") else "ignored"
            found.append(Said(word, rest, 0.0, None, False, lost))
            continue
        for one in [rest] if known(rest) else rest.split(":"):
            on = re.fullmatch(r"(.*?)(?:\+(\d+(?:\.\d+)?))?", one.strip(), re.DOTALL)
            if on is None or not on[1]:
                raise ValueError(f"{part.strip()[:50]!r} names no job")
            name, delay = (one, 0.0) if known(one) else (on[1], float(on[2] or 0))
            if match is None:
                found.append(Said(word, name, delay, DependencyKind.THINK, False, ""))
                continue
            kind, lost = _AS[match[2]], _LOST.get(match[2], "")
            found.append(Said(word, name, delay, kind, match[1] == "before", lost))
    if one_of and len(found) > 1:
        kind, lost = (
            DependencyKind.AFTERANY,
            "one of several ('?'), treated as afterany on all of them",
        )
        found = [one._replace(kind=one.kind and kind, lost=lost) for one in found]
    return found


_ID = re.compile(r"(\d+)(?:_(\d+)|\[(\d+)\]|_\*|_?\[[^\]]*\](?:\[\d+\])?)?(?:[.@][\w.@-]*)?")


def finder(ids: Iterable[Any]) -> Callable[[str], list[int]]:
    """Return a function that finds the rows of jobs by an id as users write it.

    For an array (``12``, ``12[]``, ``12_[1-4]``) it finds all existing tasks, ``12_3`` and
    ``12[3]``. The name of the server (``12.pbs01``) is ignored if no job has it.
    """
    row_of = {str(job): row for row, job in enumerate(ids)}
    by_number: dict[tuple[str, str | None], list[int]] = {}

    def find(name: str) -> list[int]:
        if name in row_of:
            return [row_of[name]]
        if not by_number:
            for text, row in row_of.items():
                if (one := _ID.fullmatch(text)) is not None:
                    number, task = one[1], one[2] or one[3]
                    for key in {(number, task), (number, None)}:
                        by_number.setdefault(key, []).append(row)
        said = _ID.fullmatch(name)
        return [] if said is None else by_number.get((said[1], said[2] or said[3]), [])

    return find


def singletons(names: Sequence[Any], alone: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield rows of waiting jobs, and of the jobs they wait for, by ``singleton``.

    Args:
        names: Name and user of each job, in the order of submission.
        alone: Whether each has the dependency.
    """
    before: dict[Any, list[int]] = {}
    for row, (name, waits) in enumerate(zip(names, alone, strict=True)):
        earlier = before.setdefault(name, [])
        if waits:
            yield from ((row, on) for on in earlier)
            earlier.clear()  # later jobs wait for this one, and so for all before it
        earlier.append(row)


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Edges between rows of a workload.

    Args:
        job: int64 rows of the waiting jobs.
        on: int64 rows of the jobs they wait for.
        kind: int8, `DependencyKind`.
        delay_ms: int64, time that must pass after the event; for ``THINK`` the think time.
    """

    job: npt.NDArray[np.int64]
    on: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    delay_ms: npt.NDArray[np.int64]

    @classmethod
    @cache
    def none(cls) -> Dependencies:
        """Return no dependencies."""
        return cls.of([])

    @classmethod
    def of(cls, edges: list[tuple[int, int, DependencyKind, int]]) -> Dependencies:
        """Return dependencies from edges: (job row, row it waits for, kind, delay in ms)."""
        columns = list(zip(*edges, strict=True)) if edges else [(), (), (), ()]
        return cls(
            np.array(columns[0], np.int64),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.int8),
            np.array(columns[3], np.int64),
        )

    def __len__(self) -> int:
        return len(self.job)

    def reindexed(self, order: npt.NDArray[Any]) -> Dependencies:
        """Return the edges after the rows were permuted or selected by ``order``."""
        if not len(self):
            return self
        new_row = np.full(int(max(self.job.max(), self.on.max(), order.max(initial=0))) + 1, -1)
        new_row[order] = np.arange(len(order))
        job, on = new_row[self.job], new_row[self.on]
        kept = (job >= 0) & (on >= 0)
        return Dependencies(job[kept], on[kept], self.kind[kept], self.delay_ms[kept])

    def thinks(self, size: int) -> npt.NDArray[np.bool_]:
        """Return which of ``size`` jobs are submitted after their dependencies [jobs]."""
        found = np.zeros(size, np.bool_)
        found[self.job[self.kind == DependencyKind.THINK]] = True
        return found

    def levels(self, size: int) -> npt.NDArray[np.int64]:
        """Return the longest chain of jobs that wait for each of ``size`` jobs.

        The length is the number of dependencies in the chain.
        """
        level = np.zeros(size, np.int64)
        if not len(self):
            return level
        unheard = np.bincount(self.on, minlength=size)
        by_job = np.argsort(self.job, kind="stable")
        first = np.searchsorted(self.job[by_job], np.arange(size + 1))
        waits_on = self.on[by_job]
        ready = np.flatnonzero(unheard[self.job] == 0)
        open_rows = list(np.unique(self.job[ready]))
        while open_rows:
            row = open_rows.pop()
            for on in waits_on[first[row] : first[row + 1]]:
                level[on] = max(level[on], level[row] + 1)
                unheard[on] -= 1
                if unheard[on] == 0:
                    open_rows.append(on)
        return level


@dataclass(frozen=True, eq=False)
class Columns:
    """Arrays of the same length."""

    def where(self, which: npt.NDArray[Any]) -> Self:
        """Return some of the rows."""
        return type(self)(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    def and_then(self, other: Self) -> Self:
        """Return these rows, and others after them."""
        return type(self)(
            **{
                f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)])
                for f in fields(self)
            }
        )


@dataclass(frozen=True, eq=False)
class NamedEdges(Columns):
    """Same as `Dependencies`, but by ids: the other job may be in another batch.

    Args:
        job: Ids of the waiting jobs.
        on: Ids of the jobs they wait for.
        kind: `DependencyKind`.
        delay_ms: Time that must pass after the event, in ms.
    """

    job: npt.NDArray[Any]
    on: npt.NDArray[Any]
    kind: npt.NDArray[np.int8]
    delay_ms: npt.NDArray[np.int64]

    @classmethod
    def of(cls, edges: Dependencies, ids: npt.NDArray[Any]) -> Self:
        """Return dependencies between the rows of a workload, by the ids of its jobs."""
        return cls(ids[edges.job], ids[edges.on], edges.kind, edges.delay_ms)

    def __len__(self) -> int:
        return len(self.job)


def doomed_by(dependencies: Dependencies, fails: npt.NDArray[np.bool_]) -> dict[int, int]:
    """Return jobs that never start because a job fails.

    Each waits by ``afterok`` for the failing job, or for another such job.

    Args:
        fails: Whether each job will not complete [jobs].

    Returns:
        For the row of each such job, the row of the job it waits for on the way to the failing one.
    """
    strict = dependencies.kind == DependencyKind.AFTEROK
    job, on = dependencies.job[strict], dependencies.on[strict]
    by_on = np.argsort(on, kind="stable")
    first = np.searchsorted(on[by_on], np.arange(len(fails) + 1))
    waiting = job[by_on]
    found: dict[int, int] = {}
    failing = np.flatnonzero(fails).tolist()
    while failing:
        row = failing.pop()
        for other in waiting[first[row] : first[row + 1]].tolist():
            if other not in found:
                found[other] = row
                failing.append(other)
    return found


def check_acyclic(dependencies: Dependencies, job_id: npt.NDArray[Any]) -> None:
    """Check that no job waits for itself, in chains of any length.

    Raises:
        WorkloadError: There is a cycle; the message names its jobs in order.
    """
    if not len(dependencies):
        return
    open_edges = np.bincount(dependencies.job, minlength=len(job_id))
    by_on = np.argsort(dependencies.on, kind="stable")
    first = np.searchsorted(dependencies.on[by_on], np.arange(len(job_id) + 1))
    waiting = dependencies.job[by_on]
    ready = list(np.flatnonzero(open_edges == 0))
    while ready:
        row = ready.pop()
        for other in waiting[first[row] : first[row + 1]]:
            open_edges[other] -= 1
            if open_edges[other] == 0:
                ready.append(other)
    stuck = np.flatnonzero(open_edges > 0)
    if not len(stuck):
        return
    in_cycle = set(stuck.tolist())
    waits_for = {
        int(job): int(on)
        for job, on in zip(dependencies.job, dependencies.on, strict=True)
        if int(on) in in_cycle and int(job) in in_cycle
    }
    place: dict[int, int] = {}
    at = int(stuck[0])
    while at not in place:
        place[at] = len(place)
        at = waits_for[at]
    cycle = [*list(place)[place[at] :], at]
    chain = chain_text([str(job_id[row]) for row in cycle])
    raise WorkloadError(f"dependencies form a cycle: {chain} (each waits for the next)")


def chain_text(names: Sequence[str]) -> str:
    """Return a chain of waiting jobs for a message, without the middle of a long one."""
    if len(names) > _SHOWN:
        half = _SHOWN // 2
        between = f"… {len(names) - 2 * half:,} more …"
        names = [*names[:half], between, *names[-half:]]
    return " → ".join(names)


def waiting_chain(waits: Mapping[str, str], job: str) -> list[str]:
    """Return a chain of jobs down to a job; each waits for the next.

    It begins with a job that no other waits for, as far as known.
    """
    chain = {job: None}
    last = job
    while last in waits and waits[last] not in chain:
        last = waits[last]
        chain[last] = None
    return list(chain)[::-1]
