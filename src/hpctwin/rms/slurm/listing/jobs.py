"""Slurm's jobs from ``squeue --json``: single, array and heterogeneous ones."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from hpctwin.errors import FormatError
from hpctwin.formats.accounting.slurm_values import number
from hpctwin.model.settings import first_fault
from hpctwin.model.text import expand, number_ranges
from hpctwin.rms.records.records import (
    JobDependency,
    JobRecord,
    JobSpec,
    NodePart,
    NodeRecord,
    listed_dependencies,
)
from hpctwin.rms.slurm.listing.allocations import held_in_parts, parts_held
from hpctwin.rms.slurm.listing.resources import Preempting, features_asked
from hpctwin.rms.slurm.listing.sharing import Sharing, tasks_asked
from hpctwin.rms.slurm.listing.values import whole, words

MARK = "hpctwin"
"""Start of the admin comment of the twin's jobs; the requested begin time follows."""
MOST_TASKS = 1000
"""Maximum number of modeled pending tasks per array.

The rest is leased with the last of them.
"""
LAST_TASK = 4_000_000
"""Slurm's largest `MaxArraySize`."""
LONGEST_S = 365 * 86_400.0
"""Stands for a walltime without limit."""
DEADLINE_SLACK_S = 60.0
"""Time between the end of a lease and the last start that meets a job's deadline."""

_RUNNING = {
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "SUSPENDED",
    "STAGE_OUT",
    "STOPPED",
    "SIGNALING",
}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_TURN = {"", "None", "Priority", "Resources", "BeginTime", "Dependency", "Cleaning", "Prolog"}
"""Reasons of jobs that wait for nodes, for their turn, or for a modeled condition."""
_REASONS = (
    (r"JobHeld|JobRequeued|JobHoldMaxRequeue|launch failed", "hold"),
    (r"DependencyNeverSatisfied", "dependency"),
    (r"Licenses", "licence"),
    (r"Reservation", "reservation"),
    (r"PartitionDown|PartitionInactive", "partition"),
    (r"ReqNodeNotAvail|NodeDown|BadConstraints|FrontEndDown|Nodes", "nodes"),
    (r"InvalidAccount|InvalidQOS|QOSNotAllowed|AssociationJobNot|AccountNot", "account"),
    # The limit of an array (``--array=1-9%2``) says nothing about other jobs of its user.
    (r"JobArrayTaskLimit", "policy"),
    (r"QOS|Assoc|Partition|Max|AccountingPolicy|TimeLimit", "limit"),
)
_CONSTRAINTS = (
    ("licenses", "licences"), ("features", "features"), ("required_nodes", "nodes"),
    ("excluded_nodes", "without"), ("tres_per_node", "per node"), ("burst_buffer", "buffer"),
    ("resv_name", "reservation"),
)  # fmt: skip


@dataclass(frozen=True)
class Mine:
    """A pending job of the twin.

    Args:
        parts: Slurm's names for it: a job number, a task (``7_3``), or all parts of a heterogeneous
            job.
        begin_s: Current begin time; 0 for none.
        asked_s: Begin time that its user requested, as the admin comment has it; 0 for none.
        submit_s: Submit time.
        latest_s: Latest end of a lease that still meets its deadline.
        rest: Tasks of the same array that are not modeled.
        requeues: Number of times that it was requeued.
        left: Reason why the twin leaves the job to Slurm; empty if it may act on it.
    """

    parts: tuple[str, ...]
    begin_s: float = 0.0
    asked_s: float = 0.0
    submit_s: float = 0.0
    latest_s: float = math.inf
    rest: tuple[int, ...] = ()
    requeues: int = 0
    left: str = ""


@dataclass
class Jobs:
    """Content of the rows.

    Args:
        records: Jobs by id; a task's is ``7_3``, a heterogeneous job's that of its first part.
        mine: Pending jobs that the submit rule has marked as the twin's.
        names: Ids by Slurm's own number, if the two differ.
        nice: Nice values of pending jobs that are not held.
        rough: Jobs whose request is not modeled on shared nodes, with that request.
        notes: One sentence for each thing omitted or assumed.
        preempting: Partitions and QOS whose jobs preempt others, and so are not the twin's.
        sharing: How parts of nodes are allocated; None if jobs have whole nodes.
        in_parts: GPUs that jobs block by using parts of them; see `held_in_parts`.
        lying: Core layouts of nodes; see `features_asked`.
    """

    records: dict[str, JobRecord] = field(default_factory=dict)
    mine: dict[str, Mine] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    nice: dict[str, float] = field(default_factory=dict)
    rough: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    preempting: Preempting = field(default_factory=Preempting)
    sharing: Sharing | None = None
    in_parts: Mapping[int, Mapping[str, Collection[int]]] = field(default_factory=dict)
    lying: Mapping[str, Collection[int]] = field(default_factory=dict)


def read_jobs(
    rows: Sequence[dict[str, Any]],
    known: Mapping[str, NodeRecord],
    closed: Mapping[str, str],
    preempting: Preempting,
    sharing: Sharing | None = None,
    lying: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> Jobs:
    """Return the jobs that have not ended.

    Args:
        closed: States of the partitions that start no jobs.
        preempting: Partitions and QOS whose jobs are left to Slurm.
        sharing: How parts of nodes are allocated; None if jobs have whole nodes.
        lying: Core layouts of nodes; see `features_asked`.
    """
    in_parts = {} if sharing is None else held_in_parts(rows)
    jobs = Jobs(preempting=preempting, sharing=sharing, in_parts=in_parts, lying=lying)
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        state = words(row.get("job_state"))
        if not state & _RUNNING and not state & _WAITING:
            continue
        job_id = whole(row.get("job_id"))
        if job_id < 1:
            said = str(row.get("job_id"))[:50]
            jobs.notes.append(f"a job without a job number is omitted: {said!r}")
            continue
        leader = whole(row.get("het_job_id"))
        if leader > 0:
            parts.setdefault(str(leader), []).append(row)
        else:
            _one(row, str(job_id), jobs, known, closed)
    for name, several in parts.items():
        _heterogeneous(name, several, jobs, known, closed)
    arrays: dict[str, list[str]] = {}
    for name in jobs.records:
        base, _, task = name.partition("_")
        if task:
            arrays.setdefault(base, []).append(name)
    for name, record in jobs.records.items():
        if record.spec.dependencies:
            edges = _on_tasks(record.spec.dependencies, arrays)
            spec = record.spec.model_copy(update={"dependencies": edges})
            jobs.records[name] = record.model_copy(update={"spec": spec})
    return jobs


def targets(ids: Iterable[str], mine: Mapping[str, Mine], *, rest: bool) -> list[str]:
    """Return ``scontrol update JobId=`` values; tasks of one array are joined.

    Args:
        rest: Whether to include the tasks that are not modeled.
    """
    found: list[str] = []
    tasks: dict[str, set[int]] = {}
    for job_id in ids:
        one = mine[job_id]
        for part in one.parts:
            base, _, task = part.partition("_")
            if task:
                tasks.setdefault(base, set()).add(int(task))
                tasks[base].update(one.rest if rest else ())
            else:
                found.append(part)
    return found + [f"{base}_[{number_ranges(sorted(numbers))}]" for base, numbers in tasks.items()]


def tasks_of(text: str) -> list[int]:
    """Return the numbers of tasks in ``1-3,7,10-20:2%4``.

    Raises:
        ValueError: The text is no such list.
    """
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", part.strip())
        if match is None:
            raise ValueError(
                f"array_task_string {text[:50]!r} is invalid; expected one such as 1-3,7"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LAST_TASK:
            raise ValueError(f"array_task_string {text[:50]!r} exceeds task {LAST_TASK}")
        found += range(first, last + 1, max(1, int(match[3] or 1)))
    return found


def _one(
    row: dict[str, Any],
    raw: str,
    jobs: Jobs,
    known: Mapping[str, NodeRecord],
    closed: Mapping[str, str],
) -> None:
    """Add a job, or the tasks of an array."""
    array = whole(row.get("array_job_id"))
    if array < 1:
        _add(raw, (raw,), [row], jobs, known, closed)
        return
    base, task = str(array), number(row.get("array_task_id"))
    text = str(row.get("array_task_string") or "")
    if task is not None and not text:
        name = f"{base}_{whole(task)}"
        jobs.names[raw] = name
        _add(name, (name,), [row], jobs, known, closed)
        return
    try:
        numbers = tasks_of(text)
    except ValueError as error:
        jobs.notes.append(f"array {base} is not controlled: {error}")
        return
    rest = tuple(numbers[MOST_TASKS:])
    if rest:
        jobs.notes.append(f"array {base}: {len(rest)} of its pending tasks are ignored")
    for one in numbers[:MOST_TASKS]:
        name = f"{base}_{one}"
        left = rest if one == numbers[:MOST_TASKS][-1] else ()
        _add(name, (name,), [row], jobs, known, closed, left)


def _heterogeneous(
    name: str,
    rows: list[dict[str, Any]],
    jobs: Jobs,
    known: Mapping[str, NodeRecord],
    closed: Mapping[str, str],
) -> None:
    """Add one job with all its parts: they begin together."""
    rows = sorted(rows, key=lambda row: whole(row.get("job_id")))
    parts = tuple(str(whole(row.get("job_id"))) for row in rows)
    for part in parts:
        jobs.names[part] = name
    _add(name, parts, rows, jobs, known, closed)
    if len({str(row.get("partition")) for row in rows}) > 1:
        jobs.notes.append(
            f"job {name} is heterogeneous: all components are assigned to its first partition"
        )


def _add(
    name: str,
    parts: tuple[str, ...],
    rows: list[dict[str, Any]],
    jobs: Jobs,
    known: Mapping[str, NodeRecord],
    closed: Mapping[str, str],
    rest: tuple[int, ...] = (),
) -> None:
    row = rows[0]
    runs = any(words(one.get("job_state")) & _RUNNING for one in rows)
    node_names: dict[str, None] = {}
    start_s = number(row.get("start_time")) if runs else None
    if runs:
        try:
            for one in rows:
                node_names |= dict.fromkeys(expand(str(one.get("nodes") or "")))
        except FormatError as error:
            jobs.notes.append(f"job {name}: {error}")
        if not start_s:
            jobs.notes.append(f"job {name} is omitted: it runs, but its start time is missing")
            return
    try:
        spec = _spec(rows, name, runs, closed, jobs)
        names = tuple(n for n in node_names if n in known)
        held: dict[str, NodePart] = {}
        if spec.shares and jobs.sharing is not None:
            for one in rows:
                in_parts = jobs.in_parts.get(whole(one.get("job_id")), {})
                held |= parts_held(one, jobs.sharing, in_parts)
        record = JobRecord(
            spec=spec,
            start_s=start_s,
            node_names=names,
            parts=tuple(held[n] for n in names) if held.keys() >= set(names) else (),
            requeues=whole(row.get("restart_cnt")),
        )
    except ValueError as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else str(error)
        jobs.notes.append(f"job {name} is omitted: {fault}")
        return
    jobs.records[name] = record
    if runs:
        return
    if not spec.held:
        jobs.nice[name] = number(row.get("nice")) or 0.0
    comment = re.fullmatch(MARK + r"(?::(\d{1,11}))?", str(row.get("admin_comment") or ""))
    left = jobs.rough.get(name, "")
    # A job in a reservation has dedicated nodes, and a job that preempts takes them: Slurm starts
    # both.
    if row.get("resv_name"):
        left = "in a reservation"
    elif any(jobs.preempting.holds(one) for one in rows):
        left = "preempts"
    if comment is not None:
        deadline_s = number(row.get("deadline")) or math.inf
        jobs.mine[name] = Mine(
            parts,
            begin_s=max(number(one.get("eligible_time")) or 0.0 for one in rows),
            asked_s=float(comment[1] or 0),
            submit_s=spec.submit_s,
            latest_s=deadline_s - spec.walltime_s - DEADLINE_SLACK_S,
            rest=rest,
            requeues=record.requeues,
            left=left,
        )


def _spec(
    rows: list[dict[str, Any]],
    name: str,
    runs: bool,
    closed: Mapping[str, str],
    jobs: Jobs,
) -> JobSpec:
    row = rows[0]
    counts = [whole(one.get("node_count")) for one in rows]
    submit_s = number(row.get("submit_time"))
    if not all(counts) or not submit_s:
        raise ValueError("its number of nodes or submit time is missing")
    limits = [number(one.get("time_limit")) for one in rows]
    walltime_s = max(LONGEST_S if not x or x == math.inf or x < 0 else x * 60 for x in limits)
    begin_s = number(row.get("eligible_time"))
    waits_for_time = not runs and str(row.get("state_reason")) == "BeginTime"
    user = row.get("user_name") or row.get("user_id")
    partition = str(row.get("partition") or "").split(",")[0]
    features = features_asked(rows, jobs.lying)
    tasks: dict[str, Any] = {}
    sizes = None if jobs.sharing is None else jobs.sharing.partitions.get(partition)
    if jobs.sharing is not None and sizes is not None:
        rough: list[str] = []
        tasks = tasks_asked(rows, jobs.sharing, sizes, rough)
        if features is None:
            rough.append("features with counts, or one of several features for all nodes")
        if rough and not runs:
            jobs.rough[name] = rough[0]
    modelled = {*(["tres_per_node"] if tasks else []), *([] if features is None else ["features"])}
    held = str(row.get("state_reason")).startswith("JobHeld") or number(row.get("priority")) == 0
    return JobSpec(
        id=name,
        submit_s=submit_s,
        **{"nodes": sum(counts), **tasks},
        walltime_s=min(walltime_s, LONGEST_S),
        not_before_s=begin_s if waits_for_time and begin_s else None,
        user=str(user) if isinstance(user, str | int) else "",
        account=str(row.get("account") or ""),
        partition=partition,
        qos=str(row.get("qos") or ""),
        priority=float(number(row.get("priority")) or 0.0),
        dependencies=listed_dependencies(row.get("dependency"), name, jobs.notes, _other_job),
        held=held and not runs,
        reason="" if runs else _reason(row, closed.get(partition)),
        features=features or "",
        constraints=_constraints(rows, modelled),
    )


def _reason(row: dict[str, Any], closed: str | None) -> str:
    """Return why Slurm would not start a pending job whatever nodes are free.

    The reason is in hpctwin's words and Slurm's own.
    """
    said = str(row.get("state_reason") or "")
    if row.get("resv_name"):
        return f"reservation: {row['resv_name']}"[:128]
    if closed is not None:
        return f"partition: {closed}"[:128]
    if said in _TURN:
        return ""
    for pattern, word in _REASONS:
        if re.match(pattern, said):
            return f"{word}: {said}"[:128]
    return f"policy: {said}"[:128]


def _constraints(rows: list[dict[str, Any]], modelled: Collection[str]) -> str:
    """Return a job's other requests, except for some fields."""
    said = [
        f"{word}={row[key]}"
        for row in rows
        for key, word in _CONSTRAINTS
        if row.get(key) and key not in modelled
    ]
    return " ".join(said)[:128]


def _other_job(text: str) -> str | None:
    """Return the id of a job or task in ``12_*`` or ``12_3``; None for a part of a job."""
    match = re.fullmatch(r"(\d{1,12}(?:_\d+)?)(?:_\*)?", text)
    return match and match[1]


def _on_tasks(
    edges: Sequence[JobDependency], arrays: Mapping[str, Sequence[str]]
) -> tuple[JobDependency, ...]:
    """Return dependencies in which a whole array is replaced by each of its tasks."""
    result: list[JobDependency] = []
    for edge in edges:
        tasks = arrays.get(edge.on)
        result += [edge.model_copy(update={"on": i}) for i in tasks] if tasks else [edge]
    return tuple(result)
