"""From Slurm's JSON to records; versions 22.05 (strings, plain numbers) and 23.02 on (lists, objects).

What cannot be read is named and left out, never invented.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from hpctwin.errors import HpctwinError
from hpctwin.model import Cluster, Partition
from hpctwin.rms.hostlist import HostlistError, expand
from hpctwin.rms.machine import ListedNode, group_nodes
from hpctwin.rms.records import (
    JobDependency,
    JobRecord,
    JobSpec,
    NodeRecord,
    NodeReservation,
    Snapshot,
)

__all__ = ["OWNED", "Found", "SlurmFormatError", "cluster_snapshot", "start_times"]

OWNED = "hpctwin"
"""Admin comment of jobs that the submit rule holds for the twin."""

LONGEST_S = 365 * 86_400.0
"""Stands for a walltime without limit."""

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
_HELD = {"JobHeldUser", "JobHeldAdmin"}
_KINDS = {"after": "after", "afterany": "afterany", "afterok": "afterok"}


class SlurmFormatError(HpctwinError):
    """Output of a Slurm command that cannot be read at all."""


@dataclass
class Found:
    """A snapshot, and what was not taken into it.

    Args:
        snapshot: jobs and nodes.
        notes: one sentence for each thing left out or assumed.
        owned: ids of the jobs that are held for the twin.
        nice: nice values of the jobs that wait and are not held, by id.
    """

    snapshot: Snapshot
    notes: list[str] = field(default_factory=list)
    owned: set[str] = field(default_factory=set)
    nice: dict[str, float] = field(default_factory=dict)


def cluster_snapshot(
    squeue: bytes, sinfo: bytes, reservations: bytes, partitions: bytes, now_s: float
) -> Found:
    """Everything Slurm knows now.

    Args:
        squeue: of ``squeue --json``.
        sinfo: of ``sinfo --json`` or ``scontrol show nodes --json``.
        reservations: of ``scontrol show reservation -o``.
        partitions: of ``scontrol show partition -o``.
        now_s: the controller's time, seconds since the epoch.

    Raises:
        SlurmFormatError: an output is not what that command writes.
    """
    notes: list[str] = []
    rows = _rows(squeue, "squeue --json", "jobs")
    grouped = group_nodes(_nodes(_node_rows(sinfo), notes))
    known = {node.name: node for node in grouped.nodes}
    owned: set[str] = set()
    nice: dict[str, float] = {}
    jobs: dict[str, JobRecord] = {}
    for row in rows:
        record = _job(row, known, notes, owned)
        if record is not None:
            jobs[record.spec.id] = record
            if record.start_s is None and not record.spec.held and record.spec.id not in owned:
                nice[record.spec.id] = number(row.get("nice")) or 0.0
    snapshot = Snapshot.model_construct(
        cluster="slurm",
        time_s=now_s,
        run="",
        seq=0,
        machine=Cluster(
            name="slurm",
            nodes=grouped.groups,
            partitions=_partitions(grouped.members, _pairs(partitions), notes),
        ),
        nodes=grouped.nodes,
        jobs=tuple(jobs.values()),
        reservations=_reservations(_pairs(reservations), known, notes, now_s),
        own_scheduling=True,
    )
    return Found(snapshot, notes, owned, nice)


def start_times(text: bytes) -> dict[str, float]:
    """Expected starts of ``squeue --start -h -o "%A %S"``, by job number; ``N/A`` is left out."""
    found = {}
    for line in text.decode(errors="replace").splitlines():
        job_id, _, said = line.strip().partition(" ")
        if re.fullmatch(r"[1-9]\d{0,11}", job_id):
            with suppress(ValueError):
                # Slurm writes the local time, without a zone.
                found[job_id] = datetime.fromisoformat(said.strip()).timestamp()
    return found


# --- values ----------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """A number of any version: plain, text, or ``{set, infinite, number}``; None where not set."""
    if isinstance(value, dict):
        if value.get("infinite") is True:
            return math.inf
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}(\.\d+)?", value):
        return float(value)
    return None


def words(value: Any) -> set[str]:
    """State words of any version: a word, several joined by +, or a list of words."""
    if isinstance(value, str):
        return {word.strip("*~#!%$@^-").upper() for word in re.split(r"[+,\s]+", value) if word}
    if isinstance(value, list):
        return {word.upper() for word in value if isinstance(word, str)}
    return set()


def _rows(text: bytes, what: str, key: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SlurmFormatError(f"{what}: not JSON: {error}") from error
    rows = content.get(key) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise SlurmFormatError(f"{what}: no list {key!r} in it")
    return [row for row in rows if isinstance(row, dict)]


def _node_rows(text: bytes) -> list[dict[str, Any]]:
    """Nodes of 22.05; later versions of sinfo group them, and give ``nodes`` by scontrol."""
    try:
        return _rows(text, "sinfo --json", "nodes")
    except SlurmFormatError:
        groups = _rows(text, "sinfo --json", "sinfo")
    result = []
    for group in groups:
        about = group.get("nodes")
        names = about.get("nodes") if isinstance(about, dict) else None
        state = group.get("node", {}).get("state") if isinstance(group.get("node"), dict) else None
        partition = group.get("partition")
        label = partition.get("name") if isinstance(partition, dict) else None
        result += [
            {"name": name, "state": state, "partitions": [label] if label else []}
            for name in (names if isinstance(names, list) else [])
        ]
    return result


def _pairs(text: bytes) -> list[dict[str, str]]:
    """Lines of ``Key=value Key=value`` as `scontrol -o` writes them."""
    lines = text.decode(errors="replace").splitlines()
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
    return [pairs for pairs in found if pairs]


# --- nodes -----------------------------------------------------------------------------------------


def _nodes(rows: list[dict[str, Any]], notes: list[str]) -> list[ListedNode]:
    found: dict[str, ListedNode] = {}
    for row in rows:
        name = row.get("name") or row.get("hostname")
        flags = words(row.get("state_flags")) | words(row.get("state"))
        try:
            record = NodeRecord(name=str(name), state=_node_state(flags))
        except ValidationError:
            notes.append(f"a node without a usable name was left out: {str(name)[:50]!r}")
            continue
        memory = number(row.get("real_memory"))
        labels = row.get("partitions")
        partitions = (
            tuple(sorted(p for p in labels if isinstance(p, str)))
            if isinstance(labels, list)
            else ()
        )
        if record.name in found:
            partitions = tuple(sorted({*partitions, *found[record.name].partitions}))
        found[record.name] = ListedNode(
            record,
            number(row.get("cpus")),
            _gpus(row.get("gres")),
            None if memory is None else memory / 1024,
            partitions,
        )
    if not found:
        raise SlurmFormatError("sinfo --json: no node in it")
    return list(found.values())


def _node_state(flags: set[str]) -> Any:
    if flags & {"DOWN", "FAIL", "ERROR", "POWERED_DOWN", "NOT_RESPONDING", "UNKNOWN", "FUTURE"}:
        return "down"
    if flags & {"DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT", "REBOOT_ISSUED"}:
        return "drained"
    return "up"


def _gpus(gres: Any) -> float | None:
    counts = re.findall(r"gpu(?::[\w.\-]+)*?:(\d{1,6})", gres) if isinstance(gres, str) else []
    return float(sum(map(int, counts))) if counts else None


def _partitions(
    members: dict[str, tuple[str, ...]], rows: list[dict[str, str]], notes: list[str]
) -> tuple[Partition, ...]:
    described = {row["PartitionName"]: row for row in rows if "PartitionName" in row}
    result = []
    for label in sorted(members):
        about = described.get(label, {})
        most = about.get("MaxNodes", "")
        result.append(
            Partition(
                name=label,
                groups=members[label],
                max_walltime=_minutes(about.get("MaxTime", "")),
                max_nodes=int(most) if most.isdigit() and int(most) > 0 else None,
                priority=float(about.get("PriorityTier", "0") or 0),
                default=about.get("Default") == "YES",
            )
        )
        if about.get("State", "UP") != "UP":
            notes.append(f"partition {label} is {about['State']}")
    return tuple(result)


def _minutes(text: str) -> float | None:
    """Slurm's time format ``days-hours:minutes:seconds`` in seconds; None for no limit."""
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6}):(\d{1,2})(?::(\d{1,2}))?", text)
    if not match:
        return None
    days, a, b, c = (int(part or 0) for part in match.groups())
    hours, minutes, seconds = (a, b, c) if match[4] is not None or match[1] else (0, a, b)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return float(total) if total else None


# --- jobs ------------------------------------------------------------------------------------------


def _job(
    row: dict[str, Any], known: dict[str, NodeRecord], notes: list[str], owned: set[str]
) -> JobRecord | None:
    """One job, or None if it has ended or is left alone."""
    state = words(row.get("job_state"))
    running = bool(state & _RUNNING)
    if not running and not state & _WAITING:
        return None
    job_id = number(row.get("job_id"))
    if job_id is None or job_id < 1:
        notes.append(f"a job without a number was left out: {str(row.get('job_id'))[:50]!r}")
        return None
    name = str(int(job_id))
    alone = _why_left_alone(row)
    if alone and not running:
        notes.append(f"job {name} is left alone: {alone}")
        return None
    start_s = number(row.get("start_time")) if running else None
    node_names: tuple[str, ...] = ()
    if running:
        try:
            node_names = tuple(n for n in expand(str(row.get("nodes") or "")) if n in known)
        except HostlistError as error:
            notes.append(f"job {name}: {error}")
        if not start_s:
            notes.append(f"job {name} runs but says no start time; it was left out")
            return None
    comment = row.get("admin_comment")
    reason = str(row.get("state_reason") or "")
    mine = isinstance(comment, str) and comment == OWNED and not running
    held = reason in _HELD or number(row.get("priority")) == 0.0
    if mine:
        owned.add(name)
    try:
        spec = _spec(row, name, held=held and not (mine and reason != "JobHeldAdmin"), notes=notes)
        return JobRecord(
            spec=spec,
            start_s=start_s,
            node_names=node_names,
            requeues=int(number(row.get("restart_cnt")) or 0),
        )
    except (ValidationError, ValueError) as error:
        fault = (
            str(error).splitlines()[0]
            if not isinstance(error, ValidationError)
            else (f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}")
        )
        notes.append(f"job {name} was left out: {fault}")
        return None


def _why_left_alone(row: dict[str, Any]) -> str | None:
    if number(row.get("het_job_id")):
        return "it is part of a heterogeneous job"
    if row.get("array_task_string"):
        return "it is an array whose tasks Slurm has not split off yet"
    return None


def _spec(row: dict[str, Any], name: str, *, held: bool, notes: list[str]) -> JobSpec:
    nodes = number(row.get("node_count"))
    submit_s = number(row.get("submit_time"))
    if not nodes or not submit_s:
        raise ValueError("it says no number of nodes or no submit time")
    limit = number(row.get("time_limit"))
    walltime_s = LONGEST_S if limit is None or limit == math.inf or limit <= 0 else limit * 60
    begin_s = number(row.get("eligible_time"))
    waits_for_time = str(row.get("state_reason")) == "BeginTime"
    user = row.get("user_name") or row.get("user_id")
    return JobSpec(
        id=name,
        submit_s=submit_s,
        nodes=int(nodes),
        walltime_s=min(walltime_s, LONGEST_S),
        not_before_s=begin_s if waits_for_time and begin_s else None,
        user=str(user) if isinstance(user, str | int) else "",
        account=str(row.get("account") or ""),
        partition=str(row.get("partition") or "").split(",")[0],
        qos=str(row.get("qos") or ""),
        priority=float(number(row.get("priority")) or 0.0),
        dependencies=_dependencies(row.get("dependency"), name, notes),
        held=held,
    )


def _dependencies(text: Any, name: str, notes: list[str]) -> tuple[JobDependency, ...]:
    """Of text such as ``afterok:12(unfulfilled),afterany:13+5(unfulfilled)``."""
    result = []
    for part in re.split(r"[,?]", text) if isinstance(text, str) and text else []:
        kind, *others = re.sub(r"\(.*?\)", "", part).split(":")
        if kind not in _KINDS or not others:
            notes.append(
                f"job {name} has a dependency that is not modelled, and waits: {part[:50]!r}"
            )
            result.append(JobDependency(on="0", kind="afterany"))
            continue
        for other in others:
            match = re.fullmatch(r"(\d{1,12})(?:_\*|_\d+)?(?:\+(\d{1,6}))?", other)
            if match:
                delay_s = 60.0 * int(match[2] or 0)
                result.append(
                    JobDependency.model_validate(
                        {"on": match[1], "kind": _KINDS[kind], "delay_s": delay_s}
                    )
                )
    return tuple(result)


# --- reservations ----------------------------------------------------------------------------------


def _reservations(
    rows: list[dict[str, str]], known: dict[str, NodeRecord], notes: list[str], now_s: float
) -> tuple[NodeReservation, ...]:
    result = []
    for row in rows:
        name = row.get("ReservationName")
        if not name:
            continue
        try:
            # Slurm writes the controller's local time, without a zone.
            start_s = datetime.fromisoformat(row.get("StartTime", "")).timestamp()
            end_s = datetime.fromisoformat(row.get("EndTime", "")).timestamp()
            nodes = tuple(n for n in expand(row.get("Nodes", "")) if n in known)
            if end_s > now_s and nodes:
                result.append(
                    NodeReservation(name=name, start_s=start_s, end_s=end_s, node_names=nodes)
                )
        except (ValueError, HostlistError) as error:
            notes.append(f"reservation {name} was left out: {str(error).splitlines()[0]}")
    return tuple(result)
