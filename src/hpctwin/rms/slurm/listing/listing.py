"""Jobs of Slurm 23.02 and later: text of all jobs, JSON of new and changed ones.

``squeue --json`` writes 8 KB for a job, most of which never changes. The text has what changes, and
shows which jobs to query in JSON. The text alone is not enough:

- It has neither ``--spread-job`` nor the amounts that a running job holds of each node.
- It does not show whether memory is requested of each CPU or of each node.
- Before 26.05 it does not show whether a job requested a number of nodes.

Slurm 22.05 writes all jobs as JSON, whatever the command asks for, so it is read by JSON alone.

Source:
    Manual page squeue(1), ``-O``; outputs of Slurm 24.11.5 and 26.05.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.errors import CommandError, FormatError
from hpctwin.formats.accounting.slurm_values import number, said
from hpctwin.rms.slurm.listing.resources import MB
from hpctwin.rms.slurm.listing.values import fields_of, limit_s, moment, whole

MOST_PENDING = 1000
"""Maximum number of pending jobs queried in JSON at a time.

Meanwhile the other jobs are as in the text.
"""
MOST_NAMED = 2000
"""Maximum number of jobs that one command names."""
_END = "\x1f"
"""End of each field; no listed field has users' free text, such as a job's name."""


def _time(text: str) -> float | None:
    try:
        return moment(text)
    except ValueError:
        return None


def _minutes(text: str) -> float | None:
    seconds = limit_s(text) if ":" in text or "-" in text else None
    return None if seconds is None else seconds / 60


def _mb(text: str) -> float | None:
    found = number(text.rstrip("KMGTP"))
    return None if found is None else found * MB[text[-1:] if text[-1:] in MB else ""]


def _states(text: str) -> list[str]:
    return [text]


@dataclass(frozen=True)
class _Field:
    key: str
    read: Callable[[str], Any] = said
    changes: bool = False


_SHARED = {"NO": "none", "USER": "user", "MCS": "mcs", "TOPO": "topo"}

FIELDS = {
    "JobID": _Field("job_id", whole),
    "State": _Field("job_state", _states),
    "PriorityLong": _Field("priority", number, True),
    "Reason": _Field("state_reason", said, True),
    "Nice": _Field("nice", number, True),
    "EligibleTime": _Field("eligible_time", _time, True),
    "Dependency": _Field("dependency", said, True),
    "admin_comment": _Field("admin_comment", said, True),
    "SubmitTime": _Field("submit_time", _time),
    "Deadline": _Field("deadline", _time),
    "TimeLimit": _Field("time_limit", _minutes),
    "UserName": _Field("user_name"),
    "UserID": _Field("user_id", whole),
    "Account": _Field("account"),
    "Partition": _Field("partition"),
    "QOS": _Field("qos"),
    "HetJobID": _Field("het_job_id", number),
    "ArrayJobID": _Field("array_job_id", number),
    "ArrayTaskID": _Field("array_task_string", said, True),
    "NodeList": _Field("nodes"),
    "NumNodes": _Field("node_count", number),
    "NumTasks": _Field("tasks", number),
    "NumCPUs": _Field("cpus", number),
    "MinMemory": _Field("memory_per_node", _mb),
    "Feature": _Field("features"),
    "Prefer": _Field("prefer"),
    "ReqNodes": _Field("required_nodes"),
    "ExcNodes": _Field("excluded_nodes"),
    "Licenses": _Field("licenses"),
    "Reservation": _Field("resv_name"),
    "BurstBuffer": _Field("burst_buffer"),
    "RestartCnt": _Field("restart_cnt", number),
    "NTPerNode": _Field("tasks_per_node", number),
    "Contiguous": _Field("contiguous", number),
    "tres-alloc": _Field("tres_req_str"),
    "tres-per-node": _Field("tres_per_node"),
    "tres-per-job": _Field("tres_per_job"),
    "tres-per-task": _Field("tres_per_task"),
    "tres-per-socket": _Field("tres_per_socket"),
    "mem-per-tres": _Field("memory_per_tres"),
    "OverSubscribe": _Field("shared", _SHARED.get),
    "Exclusive": _Field("exclusive"),
}  # fmt: skip
"""Fields of ``squeue -O`` by those of ``squeue --json``.

A field that `changes` while a job is pending is read from the text each time. If anything else
differs, the job is queried in JSON again. ``Exclusive`` exists since 26.05: ``OverSubscribe`` no
longer has it there, nor JSON.
"""
READ = {about.key for about in FIELDS.values()} | {
    "start_time", "end_time", "array_task_id", "max_nodes", "threads_per_core", "core_spec", "thread_spec",
    "sockets_per_node", "cores_per_socket", "tasks_per_socket", "tasks_per_core", "tasks_per_board", "flags",
    "memory_per_cpu", "tres_alloc_str", "job_resources", "gres_detail",
}  # fmt: skip
"""Fields of ``squeue --json`` that are read; the others are not kept."""
_ASKED = ",".join(f"{name}:{_END}" for name in FIELDS)
_EXCLUSIVE, _TASKS = (list(FIELDS).index(name) for name in ("Exclusive", "ArrayTaskID"))


def rows_of(text: bytes, what: str = "squeue --json", key: str = "jobs") -> list[dict[str, Any]]:
    """Return a list that a command of Slurm writes as JSON."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what}: invalid JSON: {error}") from error
    rows = content.get(key) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise FormatError(f"{what}: the list {key!r} is missing")
    return [fields_of(row) for row in rows if isinstance(row, dict)]


@dataclass
class Listing:
    """Jobs of Slurm, with the knowledge from query to query.

    Args:
        run: Function that runs a command and returns its output.
    """

    run: Callable[[str, Sequence[str]], bytes]
    _known: dict[int, tuple[tuple[str, ...], dict[str, Any]]] = field(default_factory=dict)

    def look(self) -> tuple[list[dict[str, Any]], int]:
        """Return the jobs that have not ended, as rows of ``squeue --json``.

        Text and JSON are from two moments: a job that changes in between is as the later one shows
        it. A job that is missing from JSON stays as it was and is queried again the next time.

        Returns:
            The rows, and the number of pending jobs that are known from the text alone.
        """
        listed = self._listed()
        stale = [job for job, cells in listed.items() if self._of(job)[0] != _fixed(cells)]
        stale.sort(key=lambda job: (_pending(listed[job]), -_priority(listed[job])))
        running = sum(not _pending(listed[job]) for job in stale)
        asked = stale[: running + MOST_PENDING]
        fresh = self._json(asked)
        for job in fresh.keys() & set(stale):
            self._known[job] = (_fixed(listed[job]), fresh[job])
        self._known = {job: one for job, one in self._known.items() if job in listed}
        rows = []
        for job, cells in listed.items():
            row = fresh.get(job) or {
                **(self._of(job)[1] or _row(cells)),
                **_row(cells, changes=True),
            }
            rows.append({**row, "exclusive": said(cells[_EXCLUSIVE])})
        # A task of an array that has started since the text was queried.
        rows += [row for job, row in fresh.items() if job not in listed]
        return rows, len(stale) - len(asked)

    def _of(self, job: int) -> tuple[tuple[str, ...], dict[str, Any]]:
        return self._known.get(job, ((), {}))

    def _listed(self) -> dict[int, tuple[str, ...]]:
        """Query the text: the fields of each job by its number.

        Without ``-r``, squeue writes pending tasks of an array as one job even if they are several
        records with separate begin times and reasons, such as ``BeginTime,None``.
        """
        text = self.run("squeue", ["-h", "-a", "-r", "-O", _ASKED]).decode(errors="replace")
        found: dict[int, tuple[str, ...]] = {}
        tasks: dict[int, list[str]] = {}
        for line in text.split(f"{_END}\n"):
            cells = tuple(cell.strip() for cell in line.split(_END))
            if len(cells) == len(FIELDS) and cells[0].isdecimal():
                found[int(cells[0])] = cells
                tasks.setdefault(int(cells[0]), []).append(cells[_TASKS])
            elif line.strip():
                raise FormatError(f"squeue -O: expected {len(FIELDS)} fields in {line[:80]!r}")
        for job, numbers in tasks.items():
            if len(numbers) > 1:
                cells = found[job]
                found[job] = (*cells[:_TASKS], ",".join(numbers), *cells[_TASKS + 1 :])
        return found

    def _json(self, jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Query jobs in JSON: rows by number."""
        found: dict[int, dict[str, Any]] = {}
        for first in range(0, len(jobs), MOST_NAMED):
            names = ",".join(map(str, jobs[first : first + MOST_NAMED]))
            try:
                rows = rows_of(self.run("squeue", ["-a", "--json", "-j", names]))
            except CommandError:
                # The only named job has ended, and Slurm has forgotten it.
                continue
            for row in rows:
                job = whole(row.get("job_id"))
                found[job] = {key: value for key, value in row.items() if key in READ}
        return found


def _fixed(cells: Sequence[str]) -> tuple[str, ...]:
    pairs = zip(FIELDS.values(), cells, strict=True)
    return tuple(cell for about, cell in pairs if not about.changes)


def _row(cells: Sequence[str], *, changes: bool = False) -> dict[str, Any]:
    """Return a line as a row of ``squeue --json``, or only its changing fields."""
    pairs = zip(FIELDS.values(), cells, strict=True)
    row = {about.key: about.read(cell) for about, cell in pairs if about.changes or not changes}
    if not row["array_task_string"]:
        row["array_job_id"] = 0
    elif not _pending(cells):
        row |= {"array_task_id": number(row["array_task_string"]), "array_task_string": ""}
    return row


def _pending(cells: Sequence[str]) -> bool:
    return cells[1] == "PENDING"


def _priority(cells: Sequence[str]) -> float:
    return number(cells[2]) or 0.0
