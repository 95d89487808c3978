"""Common parts of the JSON formats: lists of jobs, with each value checked."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hpctwin.errors import TraceError
from hpctwin.formats.files import write_bytes
from hpctwin.model import MS_PER_S

T = TypeVar("T")
FloatArray = npt.NDArray[np.float64]

SHORTEST_S = 0.001
_NO_LIMIT_S = 1e9
"""Walltime of a job without one whose length depends on its nodes."""
_LIMIT = 1e12  # keeps sums of milliseconds far inside int64; 30,000 years as seconds


@dataclass(frozen=True)
class JsonRecord:
    """A JSON object; errors about its values say what is wrong and where.

    Args:
        path: File.
        where: Name of the object in messages, such as ``job 12``.
        values: The object.
    """

    path: Path
    where: str
    values: Mapping[str, Any]

    def has(self, key: str) -> bool:
        """Return whether the key exists and is not null."""
        return self.values.get(key) is not None

    def number(
        self, key: str, *, least: float = 0, most: float = _LIMIT, whole: bool = False
    ) -> float:
        """Return a number from ``least`` to ``most``."""
        expected = f"{'a whole number' if whole else 'a number'}, {least:g} or more"
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, expected)
        if not (least <= value <= most and math.isfinite(value)) or (whole and value % 1):
            raise self.wrong(key, f"{expected}, up to {most:g}")
        return float(value)

    def numbers(self, key: str, most: float) -> FloatArray:
        """Return a list of numbers from 0 to ``most``."""
        values = self.values.get(key)
        if not isinstance(values, list):
            raise self.wrong(key, "a list of numbers")
        for one in values:
            number = isinstance(one, int | float) and not isinstance(one, bool)
            if not (number and 0 <= one <= most):
                raise self.fault(key, f"has {one!r:.40}, expected numbers from 0 to {most:g}")
        return np.array(values, np.float64)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return true or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, expected: str = "a name") -> str:
        """Return a text that is not empty; ``expected`` names it in messages."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, expected)
        return value

    def unread(self, known: Iterable[str]) -> list[str]:
        """Return the keys that are not read."""
        return [str(key) for key in self.values if key not in known]

    def wrong(self, key: str, expected: str) -> TraceError:
        """Return the error about a value that is missing or is not the expected one."""
        value = self.values.get(key)
        found = "is missing" if value is None else f"is {value!r:.40}"
        return self.fault(key, f"{found}, expected {expected}")

    def fault(self, key: str, what: str) -> TraceError:
        """Return the error about a key."""
        return TraceError(self.path, f"{self.where}: {key} {what}", field=key)


def read_jobs(
    path: Path,
    document: Any,
    id_key: str,
    read_one: Callable[[JsonRecord], T],
    *,
    skip_invalid: bool,
) -> tuple[list[int | str], list[T], tuple[str, ...]]:
    """Read the list ``jobs`` of a document.

    Returns:
        Ids, results of ``read_one``, and the messages.

    Raises:
        TraceError: There is no such list, or a job is faulty and ``skip_invalid`` is false.
    """
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise TraceError(path, "expected an object with a list 'jobs'", field="jobs")
    ids: dict[int | str, None] = {}
    found: list[T] = []
    skipped: list[str] = []
    for position, job in enumerate(jobs):
        try:
            if not isinstance(job, dict):
                raise TraceError(path, f"jobs[{position}] is {job!r:.40}, expected an object")
            job_id = _job_id(JsonRecord(path, f"jobs[{position}]", job), id_key)
            if job_id in ids:
                raise TraceError(path, f"job {job_id} occurs twice in the file", field=id_key)
            one = read_one(JsonRecord(path, f"job {job_id}", job))
        except TraceError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
            continue
        ids[job_id] = None
        found.append(one)
    return list(ids), found, tuple(skipped)


def not_read(
    what: str, records: Iterable[JsonRecord], known: Iterable[str]
) -> Iterator[tuple[str, int]]:
    """Yield a sentence on each field that is not read, and its number of records."""
    counts = Counter(key for record in records for key in record.unread(known))
    for key, count in counts.items():
        yield f"field {key[:40]!r} of {what}, ignored", count


def job_times(
    lengths_s: Sequence[float | None], walltimes_s: Sequence[float | None]
) -> tuple[list[float], list[float], dict[str, int]]:
    """Return run times and walltimes of jobs with profiles, and read notes on added walltimes.

    Args:
        lengths_s: Length of each job, in seconds; None if it depends on its nodes.
        walltimes_s: Walltime of each job, in seconds; None or 0 for none.
    """
    both = list(zip(lengths_s, walltimes_s, strict=True))
    walltimes = [
        limit or (_NO_LIMIT_S if length is None else max(length, SHORTEST_S))
        for length, limit in both
    ]
    without = [length for length, limit in both if not limit]
    notes = {
        "job without walltime, given its run time": len(without) - without.count(None),
        f"job without walltime, given a walltime of {_NO_LIMIT_S:g} s": without.count(None),
    }
    runtimes = [
        limit if length is None else length
        for length, limit in zip(lengths_s, walltimes, strict=True)
    ]
    return runtimes, walltimes, notes


def job_ids(ids: list[int | str]) -> npt.NDArray[Any]:
    """Return ids as a column: integers if all are, else text."""
    if all(isinstance(job, int) for job in ids):
        return np.array(ids, np.int64)
    return np.array([str(job) for job in ids], np.str_)


def machine_size(path: Path, document: Mapping[str, Any]) -> int | None:
    """Return the number of nodes that the document states as ``nb_res``."""
    if document.get("nb_res") is None:
        return None
    return int(JsonRecord(path, "the workload", document).number("nb_res", least=1, whole=True))


def plain_seconds(ms: int) -> int | float:
    """Return milliseconds as seconds, as an integer if there is no fraction."""
    return ms // MS_PER_S if ms % MS_PER_S == 0 else ms / MS_PER_S


def write_json(path: Path, document: Any) -> None:
    """Write a document, one job per line."""
    jobs = ",\n    ".join(json.dumps(job, ensure_ascii=False) for job in document["jobs"])
    rest = {key: value for key, value in document.items() if key != "jobs"}
    head = "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in rest.items())
    write_bytes(path, f'{{\n{head}  "jobs": [\n    {jobs}\n  ]\n}}\n'.encode())


def _job_id(record: JsonRecord, key: str) -> int | str:
    value = record.values.get(key)
    # JSON can express half a character (\ud800), which cannot be written to a file.
    if isinstance(value, str) and value and value.isprintable():
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62:
        return value
    raise record.wrong(key, "a whole number or printable text")
