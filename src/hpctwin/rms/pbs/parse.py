"""A snapshot from what PBS's commands write."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from hpctwin.model import Cluster, Partition
from hpctwin.rms.machine import ListedNode, group_nodes
from hpctwin.rms.pbs.output import PbsFormatError, read_output
from hpctwin.rms.pbs.request import (
    memory_gb,
    nodes_needed,
    parse_duration,
    parse_select,
    vnodes,
)
from hpctwin.rms.records import (
    JobDependency,
    JobRecord,
    JobSpec,
    NodeRecord,
    NodeReservation,
    Snapshot,
)

__all__ = [
    "Found",
    "LargestNode",
    "cluster_snapshot",
    "job_record",
    "own_estimates",
    "server_attributes",
]

LONGEST_S = 365 * 86_400.0
"""Stands for a walltime without limit."""

_RUNNING, _WAITING = {"R", "E", "S", "U"}, {"Q", "W", "H", "T"}
_STATE_NUMBERS = {"0": "T", "1": "Q", "2": "H", "3": "W", "4": "R", "5": "E"}
"""Job states as hooks give them."""
_DOWN = {
    "down", "state-unknown", "unknown", "stale", "unresolvable", "provisioning",
    "wait-provisioning", "initializing", "sleep", "deleted",
}  # fmt: skip
_DRAINED = {"offline", "offline_by_mom", "maintenance"}
_KINDS = {"after": "after", "afterany": "afterany", "afterok": "afterok"}
_OTHER_WAY = {"before", "beforeany", "beforeok", "beforenotok"}
"""Said of the job waited for, too; the job that waits says it with after…"""


class LargestNode(NamedTuple):
    """What the largest node has: chunks that may share nodes are put together by it."""

    cores: float = 0.0
    gpus: float = 0.0


@dataclass
class Found:
    """A snapshot, and what was not taken into it.

    Args:
        snapshot: jobs and nodes.
        largest: what the largest node has.
        notes: one sentence for each thing left out or assumed.
    """

    snapshot: Snapshot
    largest: LargestNode
    notes: list[str] = field(default_factory=list)


def cluster_snapshot(
    qstat: bytes, pbsnodes: bytes, queues: bytes, reservations: bytes, now_s: float
) -> Found:
    """Everything PBS knows now.

    Args:
        qstat: of ``qstat -f -t -F json``.
        pbsnodes: of ``pbsnodes -a -v -F json``.
        queues: of ``qstat -Q -f -F json``.
        reservations: of ``pbs_rstat -f``.
        now_s: seconds since the epoch, if PBS does not say.

    Raises:
        PbsFormatError: an output is not what that command writes.
    """
    notes: list[str] = []
    jobs_about = read_output(qstat, "qstat -f -t -F json", notes)
    nodes_about = read_output(pbsnodes, "pbsnodes -a -v -F json", notes)
    queues_about = _objects(read_output(queues, "qstat -Q -f -F json", notes), "Queue")
    open_queues = {
        name: about
        for name, about in queues_about.items()
        if str(about.get("queue_type", "Execution")).lower().startswith("e")
        and not _is_reservation(name)
    }
    listed = _nodes(_objects(nodes_about, "nodes"), open_queues, notes)
    if not listed:
        raise PbsFormatError("pbsnodes -a -v -F json: no node in it that has cores")
    grouped = group_nodes(listed)
    known = {node.name: node for node in grouped.nodes}
    largest = LargestNode(
        max(node.cores or 0.0 for node in listed), max(node.gpus or 0.0 for node in listed)
    )
    stopped = {name for name, about in open_queues.items() if _false(about.get("started"))}
    notes += [f"queue {name} is stopped: its jobs are taken for held" for name in sorted(stopped)]
    rows = _objects(jobs_about, "Jobs")
    jobs = {}
    for job_id, row in rows.items():
        record = _listed_job(job_id, row, rows, open_queues, known, largest, notes)
        if record is None:
            continue
        if record.start_s is None and record.spec.partition in stopped:
            spec = record.spec.model_copy(update={"held": True})
            record = record.model_copy(update={"spec": spec})
        jobs[record.spec.id] = record
    stamp = jobs_about.get("timestamp")
    snapshot = Snapshot.model_construct(
        cluster="pbs",
        time_s=float(stamp) if isinstance(stamp, int) and stamp > 0 else now_s,
        run="",
        seq=0,
        machine=Cluster(
            name="pbs",
            nodes=grouped.groups,
            partitions=tuple(_partitions(open_queues, grouped.members, notes)),
        ),
        nodes=grouped.nodes,
        jobs=tuple(jobs.values()),
        reservations=_reservations(reservations, known, notes, now_s),
        own_scheduling=True,
    )
    return Found(snapshot, largest, notes)


def server_attributes(text: bytes) -> dict[str, Any]:
    """Attributes of the server, of ``qstat -B -f -F json``.

    Raises:
        PbsFormatError: it is not what that command writes.
    """
    about = read_output(text, "qstat -B -f -F json", [])
    servers = list(_objects(about, "Server").values())
    if not servers:
        raise PbsFormatError("qstat -B -f -F json: no server in it")
    return {**servers[0], "pbs_version": str(about.get("pbs_version", ""))}


def own_estimates(text: bytes) -> dict[str, float]:
    """When PBS estimates that jobs will start, by job id, of ``qstat -f -F json``.

    Raises:
        PbsFormatError: it is not what that command writes.
    """
    rows = _objects(read_output(text, "qstat -f -F json", []), "Jobs")
    times = {
        job_id: _time(_resources(row.get("estimated")).get("start_time"))
        for job_id, row in rows.items()
    }
    return {job_id: time_s for job_id, time_s in times.items() if time_s is not None}


def job_record(
    job_id: str,
    row: Mapping[str, Any],
    known: Mapping[str, NodeRecord],
    largest: LargestNode,
    notes: list[str],
) -> JobRecord | None:
    """One job, of its attributes as qstat or a hook gives them; None if it has ended.

    Args:
        job_id: its id.
        row: its attributes. Resources may be an object or text, times text or seconds.
        known: nodes by name.
        largest: see `LargestNode`.
        notes: what was assumed is added.

    Raises:
        ValueError: the attributes do not say what is needed.
    """
    state = str(row.get("job_state", ""))
    state = _STATE_NUMBERS.get(state, state)
    running = state in _RUNNING
    if not running and state not in _WAITING:
        return None
    # A job on its way to its nodes runs already, but has no start time yet.
    start_s = (_time(row.get("stime")) or _time(row.get("mtime"))) if running else None
    names = vnodes(str(row.get("exec_vnode", ""))) if running else ()
    if running and start_s is None:
        raise ValueError("it runs but says no start time")
    run_count = _integer(row.get("run_count"))
    return JobRecord(
        spec=_spec(job_id, row, state, len(names), largest, notes),
        start_s=start_s,
        node_names=tuple(name for name in names if name in known),
        requeues=max(0, run_count - 1) if running else run_count,
    )


# --- values ----------------------------------------------------------------------------------------


def _objects(content: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """The objects under a key; no such key: there are none."""
    found = content.get(key)
    if not isinstance(found, dict):
        return {}
    return {name: about for name, about in found.items() if isinstance(about, dict)}


def _resources(value: Any) -> dict[str, Any]:
    """Resources of an object, or of text such as ``ncpus=2,select=2:ncpus=1``."""
    if isinstance(value, dict):
        return value
    parts = re.split(r",(?=[\w.]+=)", value) if isinstance(value, str) and value else []
    return dict(part.split("=", 1) for part in parts if "=" in part)


def _time(value: Any) -> float | None:
    """Seconds since the epoch; PBS writes local time, or seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 < value < 1e11 else None
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"\d{1,11}", value):
        return float(value) or None
    try:
        return time.mktime(time.strptime(value, "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None


def _integer(value: Any) -> int:
    return int(value) if re.fullmatch(r"\d{1,9}", str(value)) else 0


def _false(value: Any) -> bool:
    return str(value).lower() in ("false", "0", "f", "n", "no")


def _is_reservation(queue: str) -> bool:
    return re.fullmatch(r"[RSM]\d+", queue) is not None


# --- nodes and queues --------------------------------------------------------------------------------


def _nodes(
    rows: Mapping[str, dict[str, Any]], queues: Mapping[str, Any], notes: list[str]
) -> list[ListedNode]:
    bound = {row.get("queue") for row in rows.values()}
    # A queue that has nodes of its own uses no others.
    shared = tuple(sorted(queue for queue in queues if queue not in bound))
    listed = []
    for name, row in rows.items():
        has = _resources(row.get("resources_available"))
        cores = _integer(has.get("ncpus"))
        if cores == 0:
            # The vnode of a host whose cores are all in other vnodes, or one that is not known yet.
            continue
        try:
            record = NodeRecord.model_validate({"name": name, "state": _node_state(row)})
        except ValidationError:
            notes.append(f"a node without a usable name was left out: {name[:50]!r}")
            continue
        own = row.get("queue")
        partitions = (own,) if isinstance(own, str) and own in queues else shared
        listed.append(
            ListedNode(
                record,
                float(cores),
                float(_integer(has.get("ngpus"))),
                memory_gb(has.get("mem", "")),
                partitions if not own or own in queues else (),
            )
        )
    return listed


def _node_state(row: Mapping[str, Any]) -> str:
    words = {word.strip().lower() for word in str(row.get("state", "")).split(",")}
    if words & _DOWN:
        return "down"
    return "drained" if words & _DRAINED else "up"


def _partitions(
    queues: Mapping[str, dict[str, Any]], members: Mapping[str, tuple[str, ...]], notes: list[str]
) -> list[Partition]:
    result = []
    for name, about in queues.items():
        if name not in members:
            notes.append(f"queue {name} has no nodes: its jobs never start")
            continue
        most = _resources(about.get("resources_max"))
        least = _resources(about.get("resources_min"))
        widest = _integer(most.get("nodect"))
        result.append(
            Partition(
                name=name,
                groups=members[name],
                min_nodes=max(1, _integer(least.get("nodect"))),
                max_nodes=widest or None,
                max_walltime=parse_duration(most.get("walltime")) or None,
                priority=float(_integer(about.get("Priority"))),
            )
        )
        limits = sorted(key for key in about if key.startswith("max_run"))
        if limits:
            notes.append(f"queue {name} has limits that are not modelled: {', '.join(limits)}")
    return result


# --- jobs ------------------------------------------------------------------------------------------


def _listed_job(
    job_id: str,
    row: dict[str, Any],
    rows: Mapping[str, Any],
    queues: Mapping[str, Any],
    known: Mapping[str, NodeRecord],
    largest: LargestNode,
    notes: list[str],
) -> JobRecord | None:
    """One job of qstat, or None if it has ended or is left alone."""
    if job_id.partition(".")[0].endswith("[]"):
        stem = job_id.partition("[")[0] + "["
        if not any(other != job_id and other.startswith(stem) for other in rows):
            notes.append(f"job {job_id[:40]} is left alone: it is an array, its subjobs not listed")
        return None
    queue = str(row.get("queue", ""))
    try:
        record = job_record(job_id, row, known, largest, notes)
    except ValidationError as error:
        fault = error.errors()[0]
        notes.append(f"job {job_id[:40]} was left out: {fault['loc']}: {fault['msg']}")
        return None
    except ValueError as error:
        notes.append(f"job {job_id[:40]} was left out: {error}")
        return None
    if record is None or record.start_s is not None or queue in queues:
        return record
    why = "a reservation's queue" if _is_reservation(queue) else f"queue {queue[:40]!r}"
    notes.append(f"job {job_id[:40]} is left alone: it waits in {why}, from which nothing starts")
    return None


def _spec(
    job_id: str,
    row: Mapping[str, Any],
    state: str,
    holds: int,
    largest: LargestNode,
    notes: list[str],
) -> JobSpec:
    asks = _resources(row.get("Resource_List"))
    select = asks.get("select", row.get("schedselect"))
    if select is None and "ncpus" in asks:
        select = f"ncpus={asks['ncpus']}"
    if select is None and not holds:
        raise ValueError("it says no select")
    chunks = parse_select(str(select)) if select is not None else ()
    submit_s = _time(row.get("qtime")) or _time(row.get("ctime"))
    if submit_s is None:
        raise ValueError("it says no time of submission")
    holds_types = set(str(row.get("Hold_Types", "n"))) - {"n"}
    dependencies = _dependencies(row.get("depend"), job_id, notes)
    # A hold of the system keeps a job from starting before those that it depends on.
    held = bool(holds_types - {"s"}) or ("s" in holds_types and not dependencies)
    not_before_s = _time(row.get("Execution_Time")) if state == "W" else None
    priority = str(row.get("Priority", "0"))
    owner = row.get("euser") or str(row.get("Job_Owner", "")).partition("@")[0]
    return JobSpec(
        id=job_id,
        submit_s=submit_s,
        nodes=holds
        or nodes_needed(chunks, str(asks.get("place", "free")), largest.cores, largest.gpus),
        walltime_s=min(parse_duration(asks.get("walltime")) or LONGEST_S, LONGEST_S),
        not_before_s=not_before_s,
        user=str(owner)[:128],
        account=str(row.get("Account_Name") or row.get("project") or "")[:128],
        partition=str(row.get("queue", ""))[:128],
        priority=float(priority) if re.fullmatch(r"-?\d{1,6}", priority) else 0.0,
        cores=max((chunk.cores for chunk in chunks), default=0.0),
        gpus=max((chunk.gpus for chunk in chunks), default=0.0),
        memory_gb=max((chunk.memory_gb for chunk in chunks), default=0.0),
        dependencies=dependencies if state not in _RUNNING else (),
        held=held,
    )


def _dependencies(text: Any, job_id: str, notes: list[str]) -> tuple[JobDependency, ...]:
    """Of text such as ``afterok:12.vm@vm:13.vm@vm,beforeany:20.vm@vm``."""
    result = []
    for part in str(text).split(",") if isinstance(text, str) and text else []:
        kind, *others = part.split(":")
        if kind in _OTHER_WAY:
            continue
        if kind not in _KINDS or not others:
            notes.append(
                f"job {job_id} has a dependency that is not modelled, and waits: {part[:50]!r}"
            )
            result.append(JobDependency(on="0", kind="afterany"))
            continue
        result += [
            JobDependency.model_validate({"on": other.partition("@")[0], "kind": _KINDS[kind]})
            for other in others
        ]
    return tuple(result)


# --- reservations ----------------------------------------------------------------------------------


def _reservations(
    text: bytes, known: Mapping[str, NodeRecord], notes: list[str], now_s: float
) -> tuple[NodeReservation, ...]:
    """Of ``pbs_rstat -f``: blocks that begin with ``Resv ID:``."""
    result = []
    blocks = re.split(r"^Resv ID:", text.decode("utf-8", errors="replace"), flags=re.MULTILINE)
    for block in blocks[1:]:
        name = block.partition("\n")[0].strip()
        about = dict(re.findall(r"^\s*([\w.]+) = (.*)$", block, flags=re.MULTILINE))
        start_s, end_s = _time(about.get("reserve_start")), _time(about.get("reserve_end"))
        nodes = tuple(n for n in vnodes(about.get("resv_nodes", "")) if n in known)
        if start_s is None or end_s is None or not nodes:
            notes.append(f"reservation {name[:40]} was left out: it says no span or no nodes")
            continue
        if end_s > max(now_s, start_s):
            result.append(
                NodeReservation(name=name[:128], start_s=start_s, end_s=end_s, node_names=nodes)
            )
    return tuple(result)
