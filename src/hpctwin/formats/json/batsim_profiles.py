"""Profiles in Batsim's workloads and the traces that they name, in all its versions.

Source:
    https://batsim.readthedocs.io/en/latest/input-workload.html; versions before 5 called the same
    profiles otherwise, and spread communication over ranks in another way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hpctwin.errors import TraceError, near
from hpctwin.formats.json.jobs import JsonRecord
from hpctwin.model.files import cause
from hpctwin.model.workload.demands import MAX_AMOUNT
from hpctwin.network.profiles import (
    SMPI_ACTIONS,
    Action,
    Delay,
    HomogeneousTask,
    ParallelTask,
    Profile,
    Sequence,
    SmpiTrace,
    Staging,
    StorageTransfer,
    Usage,
    UsageTrace,
    parts_of,
)
from hpctwin.network.rank_tasks import RankTasks

_MOST_REPEATS = 1e9
_MOST_DEPTH = 50
_NAMES = {
    "delay": ("delay", "DelayProfile"),
    "task": ("msg_par", "parallel", "ptask", "ParallelTaskProfile"),
    "homogeneous": (
        "msg_par_hg", "parallel_homogeneous", "ptask_homogeneous", "ParallelTaskHomogeneousProfile",
    ),
    "total": ("msg_par_hg_tot", "parallel_homogeneous_total"),
    "transfer": (
        "parallel_homogeneous_pfs", "ptask_on_storage_homogeneous",
        "ParallelTaskOnStorageHomogeneousProfile",
    ),
    "old_transfer": ("msg_par_hg_pfs", "msg_par_hg_pfs0", "msg_par_hg_pfs_tiers"),
    "staging": ("data_staging", "ParallelTaskDataStagingBetweenStoragesProfile"),
    "sequence": ("composed", "SequentialCompositionProfile"),
    "smpi": ("smpi",),
    "usage": ("usage_trace",),
    "replay": ("TraceReplayProfile",),
}  # fmt: skip
"""Names of each kind of profile, from the oldest version on."""
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}
_STRATEGIES = {
    "DefinedAmountsUsedForEachValue": False,
    "DefinedAmountsSpreadUniformly": True,
    "defined_amount_used_for_each_value": False,
    "defined_amount_spread_uniformly": True,
}
"""Whether amounts are totals, by ``generation_strategy``; the last two are of drafts of version 5."""
_UNSUPPORTED = {
    "send": "messages to the scheduler are not supported",
    "recv": "messages from the scheduler are not supported",
    "ForkJoinCompositionProfile": "Batsim itself does not run it",
    "ParallelTaskMergeCompositionProfile": "Batsim itself does not run it",
}


class ProfileReader:
    """Reads the profiles of one workload, each when a job first needs it.

    Args:
        path: File of the workload.
        profiles: Profiles by name.
    """

    def __init__(self, path: Path, profiles: Mapping[str, Any]) -> None:
        self._path, self._profiles = path, profiles
        self._found: dict[tuple[str, int], Profile] = {}
        self._traces: dict[tuple[Any, str], Any] = {}
        self.records: dict[str, JsonRecord] = {}
        """Profiles that jobs use, by name."""

    def profile(self, job: JsonRecord, name: Any, ranks: int) -> Profile:
        """Return a profile for a number of ranks."""
        return self._read(job, "profile", name, ranks, ())

    def _read(
        self, by: JsonRecord, key: str, name: Any, ranks: int, around: tuple[str, ...]
    ) -> Profile:
        if not isinstance(name, str) or name not in self._profiles:
            found = "is missing" if name is None else f"{name!r:.40} is not a profile of the file"
            more = near(name, self._profiles) if isinstance(name, str) else ""
            raise by.fault(key, f"{found}, expected the name of a profile.{more}".rstrip("."))
        if (name, ranks) in self._found:
            return self._found[name, ranks]
        values = self._profiles[name]
        if not isinstance(values, dict):
            raise by.fault(key, f"{name!r:.40} is {values!r:.40}, expected an object")
        if name in around:
            raise by.fault(key, f"{name!r:.40} contains itself: {' > '.join((*around, name))}")
        if len(around) >= _MOST_DEPTH:
            raise by.fault(key, f"{name!r:.40} is nested more than {_MOST_DEPTH} levels deep")
        record = JsonRecord(self._path, f"{by.where}, profile {name!r}", values)
        kind = values.get("type")
        if isinstance(kind, str) and kind in _UNSUPPORTED:
            raise record.fault("type", f"is {kind!r}: {_UNSUPPORTED[kind]}")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise record.fault(
                "type",
                f"is {kind!r:.40}, supported are {', '.join(names[-1] for names in _NAMES.values())}, "
                f"and their older names.{near(kind, _KINDS) if isinstance(kind, str) else ''}".rstrip(
                    "."
                ),
            )
        self.records.setdefault(name, record)
        if _KINDS[kind] == "sequence":
            made: Profile = self._sequence(record, name, ranks, around)
        else:
            made = _MAKERS[_KINDS[kind]](self, record, ranks)
        self._found[name, ranks] = made
        return made

    def _sequence(
        self, record: JsonRecord, name: str, ranks: int, around: tuple[str, ...]
    ) -> Sequence:
        names = record.values.get("seq")
        if not isinstance(names, list) or not names:
            raise record.wrong("seq", "a list of names of profiles")
        repeat = "nb" if "nb" in record.values and "repeat" not in record.values else "repeat"
        times = (
            record.number(repeat, least=1, most=_MOST_REPEATS, whole=True)
            if record.has(repeat)
            else 1
        )
        parts = tuple(self._read(record, "seq", one, ranks, (*around, name)) for one in names)
        return Sequence(parts, int(times), record.flag("resumes"), **_common(record))

    def _delay(self, record: JsonRecord, ranks: int) -> Delay:
        return Delay(record.number("delay"), **_common(record))

    def _task(self, record: JsonRecord, ranks: int) -> ParallelTask:
        cpu, com = (
            record.numbers(key, MAX_AMOUNT) if record.has(key) else None for key in ("cpu", "com")
        )
        given = [len(cpu)] if cpu is not None else []
        if com is not None:
            size = math.isqrt(len(com))
            if size * size != len(com) or size not in (given or [size]):
                rows = f"{given[0]} × {given[0]}" if given else "n × n"
                raise record.fault("com", f"has {len(com)} numbers, expected {rows}")
            given, com = [size], com.reshape(size, size)
        if given and given[0] != ranks:
            raise record.fault(
                "cpu" if cpu is not None else "com",
                f"is for {given[0]} ranks, but the job asks for {ranks}",
            )
        return ParallelTask(cpu, com, **_common(record))

    def _homogeneous(self, record: JsonRecord, ranks: int) -> HomogeneousTask:
        total: Literal["", "pairs"] = "pairs" if _spreads(record) else ""
        cpu, com = (_amount(record, key) for key in ("cpu", "com"))
        return HomogeneousTask(cpu, com, total, **_common(record))

    def _total(self, record: JsonRecord, ranks: int) -> HomogeneousTask:
        # Batsim before 5 spreads both over the ranks, not communication over the pairs of ranks.
        cpu, com = (_amount(record, key) for key in ("cpu", "com"))
        return HomogeneousTask(cpu, com, "ranks", **_common(record))

    def _transfer(self, record: JsonRecord, ranks: int) -> StorageTransfer:
        if not (record.has("bytes_to_read") or record.has("bytes_to_write")):
            raise record.fault(
                "bytes_to_read", "is missing, and so is bytes_to_write; give one of them"
            )
        spread = _spreads(record)
        read, write = (_amount(record, key) for key in ("bytes_to_read", "bytes_to_write"))
        key = "storage" if record.has("storage") else "host"
        return StorageTransfer(read, write, _storage(record, key), spread, **_common(record))

    def _old_transfer(self, record: JsonRecord, ranks: int) -> StorageTransfer:
        size = record.number("size", most=MAX_AMOUNT)
        direction = record.values.get("direction", "to_storage")
        if direction not in ("to_storage", "from_storage"):
            raise record.wrong("direction", "to_storage or from_storage")
        read, write = (size, 0.0) if direction == "from_storage" else (0.0, size)
        return StorageTransfer(read, write, _storage(record, "host"), **_common(record))

    def _staging(self, record: JsonRecord, ranks: int) -> Staging:
        amount = record.number("nb_bytes", most=MAX_AMOUNT)
        return Staging(amount, record.text("from"), record.text("to"), **_common(record))

    def _replay(self, record: JsonRecord, ranks: int) -> Profile:
        kinds = {"SMPI": self._smpi, "FractionalComputation": self._usage}
        kind = record.values.get("trace_type")
        if not isinstance(kind, str) or kind not in kinds:
            raise record.wrong("trace_type", " or ".join(kinds))
        return kinds[kind](record, ranks)

    def _smpi(self, record: JsonRecord, ranks: int) -> Profile:
        return SmpiTrace(self._trace(record, read_smpi_trace), **_common(record))

    def _usage(self, record: JsonRecord, ranks: int) -> Profile:
        return UsageTrace(self._trace(record, read_usage_trace), **_common(record))

    def _trace(self, record: JsonRecord, read: Callable[[Path, str], Any]) -> Any:
        name = record.text("filename" if record.has("filename") else "trace")
        if (read, name) not in self._traces:
            self._traces[read, name] = read(self._path, name)
        return self._traces[read, name]


_MAKERS: dict[str, Callable[[ProfileReader, JsonRecord, int], Profile]] = {
    "delay": ProfileReader._delay,
    "task": ProfileReader._task,
    "homogeneous": ProfileReader._homogeneous,
    "total": ProfileReader._total,
    "transfer": ProfileReader._transfer,
    "old_transfer": ProfileReader._old_transfer,
    "staging": ProfileReader._staging,
    "smpi": ProfileReader._smpi,
    "usage": ProfileReader._usage,
    "replay": ProfileReader._replay,
}


def _common(record: JsonRecord) -> dict[str, Any]:
    """Return the fields that all profiles have."""
    code = record.number("ret", least=-(2**31), most=2**31, whole=True) if record.has("ret") else 0
    expected = "expected_execution_time"
    return {
        "exit_code": int(code),
        "expected_s": record.number(expected) if record.has(expected) else None,
        "extra_data": record.values.get("extra_data"),
    }


def _amount(record: JsonRecord, key: str) -> float:
    return record.number(key, most=MAX_AMOUNT) if record.has(key) else 0.0


def _spreads(record: JsonRecord) -> bool:
    """Return whether amounts are totals over all ranks."""
    said = record.values.get("generation_strategy", "DefinedAmountsUsedForEachValue")
    if not isinstance(said, str) or said not in _STRATEGIES:
        raise record.wrong("generation_strategy", " or ".join([*_STRATEGIES][:2]))
    return _STRATEGIES[said]


def _storage(record: JsonRecord, key: str) -> str:
    return record.text(key) if key in record.values else "pfs"


def unfit(profile: Profile) -> set[str]:
    """Return what a workload's file cannot hold of a profile; traces are separate files."""
    kinds = {"recorded traces in a workload": SmpiTrace | UsageTrace, "tasks of ranks": RankTasks}
    parts = parts_of(profile)
    return {what for what, kind in kinds.items() if any(isinstance(one, kind) for one in parts)}


class ProfileWriter:
    """Collects the profiles of a workload's file, each once, under the names of Batsim 3 to 4."""

    def __init__(self) -> None:
        self.profiles: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._known: dict[int, tuple[Profile, str]] = {}

    def name_of(self, profile: Profile) -> str:
        """Return the name of a profile, which is added if it is new."""
        if id(profile) not in self._known:
            values = self._values(profile)
            values |= {"ret": profile.exit_code} if profile.exit_code else {}
            if profile.expected_s is not None:
                values["expected_execution_time"] = profile.expected_s
            if profile.extra_data is not None:
                values["extra_data"] = profile.extra_data
            text = json.dumps(values, sort_keys=True)
            if text not in self._names:
                name = f"{values['type']}_{len(self._names)}"
                if set(values) == {"type", "delay"}:
                    name = f"delay_{values['delay']}"
                self._names[text] = name
                self.profiles[name] = values
            # The profile is kept, so that no other one gets its id.
            self._known[id(profile)] = (profile, self._names[text])
        return self._known[id(profile)][1]

    def _values(self, profile: Profile) -> dict[str, Any]:
        match profile:
            case Delay():
                return {"type": "delay", "delay": profile.duration_s}
            case ParallelTask():
                zeros = np.zeros(profile.ranks)
                cpu = zeros if profile.cpu is None else profile.cpu
                com = np.outer(zeros, zeros) if profile.com is None else profile.com
                return {"type": "parallel", "cpu": cpu.tolist(), "com": com.ravel().tolist()}
            case HomogeneousTask():
                return {"type": "parallel_homogeneous", "cpu": profile.cpu, "com": profile.com}
            case StorageTransfer():
                return {
                    "type": "parallel_homogeneous_pfs",
                    "bytes_to_read": profile.read,
                    "bytes_to_write": profile.write,
                    "storage": profile.storage,
                }
            case Staging():
                return {
                    "type": "data_staging",
                    "nb_bytes": profile.amount,
                    "from": profile.source,
                    "to": profile.target,
                }
            case Sequence():
                names = [self.name_of(part) for part in profile.parts]
                more = {"resumes": True} if profile.resumes else {}
                return {"type": "composed", "repeat": profile.repeat, "seq": names, **more}
        raise TypeError(f"{type(profile).__name__} has no name in Batsim")


_MOST_BYTES = 1 << 28
"""Limit of one trace file."""


def read_smpi_trace(workload: Path, name: str) -> tuple[tuple[Action, ...], ...]:
    """Return the actions of each rank of an SMPI trace.

    Args:
        name: File that lists the ranks' traces, relative to it.

    Raises:
        TraceError: A file cannot be read or has an unknown action; the message names the line.
    """
    return tuple(tuple(_actions(path)) for path in _ranks(workload, name))


def read_usage_trace(workload: Path, name: str) -> tuple[Usage, ...]:
    """Return the recorded use of the node of each rank; otherwise like `read_smpi_trace`.

    Raises:
        TraceError: See `read_smpi_trace`.
    """
    found = []
    for path in _ranks(workload, name):
        rows = []
        for line, words in _lines(path):
            if len(words) != 4 or words[1] != "m_usage":
                raise TraceError(path, "expected 'RANK m_usage USAGE FLOPS'", line=line)
            usage, flops = _numbers(path, line, words[2:])
            if usage > 1:
                raise TraceError(path, f"usage is {usage:g}, expected 0 to 1", line=line)
            rows.append((usage, flops))
        table = np.array(rows, np.float64).reshape(-1, 2)
        found.append(Usage(table[:, 0], table[:, 1]))
    return tuple(found)


def _actions(path: Path) -> Iterator[Action]:
    for line, words in _lines(path):
        if len(words) < 2 or words[1] not in SMPI_ACTIONS:
            said = words[1][:40] if len(words) > 1 else ""
            raise TraceError(
                path,
                f"action {said!r} is not supported; supported are {', '.join(SMPI_ACTIONS)}."
                f"{near(said, SMPI_ACTIONS)}",
                line=line,
            )
        least = SMPI_ACTIONS[words[1]]
        if len(words) - 2 < least:
            raise TraceError(path, f"{words[1]} needs {least} numbers", line=line)
        yield words[1], _numbers(path, line, words[2:])


def _ranks(workload: Path, name: str) -> list[Path]:
    """Return the files that a file lists; all must be in the workload's folder or below."""
    folder = workload.parent.resolve()
    listed = _inside(workload, folder, workload.parent / name)
    ranks = [
        _inside(listed, folder, listed.parent / " ".join(words)) for _, words in _lines(listed)
    ]
    if not ranks:
        raise TraceError(listed, "lists no trace, expected one file for each rank")
    return ranks


def _inside(by: Path, folder: Path, path: Path) -> Path:
    if not path.resolve().is_relative_to(folder):
        raise TraceError(
            by,
            f"names the trace {str(path)[:200]!r}, which is not in the workload's folder; copy it there",
        )
    return path


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line that is neither empty nor a comment."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise TraceError(path, f"is larger than {_MOST_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(path, "not a text file") from error
    except (OSError, ValueError) as error:
        raise TraceError(path, cause(error)) from error
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words


def _numbers(path: Path, line: int, words: list[str]) -> tuple[float, ...]:
    found = []
    for word in words:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise TraceError(path, f"{word[:40]!r} must be a number, 0 or more", line=line)
        found.append(value)
    return tuple(found)
