"""Snapshot from the output of PBS's commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from hpctwin.errors import FormatError
from hpctwin.model import Cluster, Partition
from hpctwin.model.requests.pbs_requests import (
    amount_said,
    is_consumable,
    memory_gb,
    parse_duration,
)
from hpctwin.model.settings import first_fault
from hpctwin.model.text import count_text
from hpctwin.rms.pbs.listing.jobs import (
    STATES,
    LargestNode,
    LeaseMark,
    array_of,
    as_subjob,
    counts,
    how_it_lies,
    how_shared,
    job_mark,
    job_record,
    roughly,
    selected,
    state_of,
    unequal,
)  # fmt: skip
from hpctwin.rms.pbs.listing.node_attributes import is_parent, properties_of
from hpctwin.rms.pbs.listing.output import (
    integer,
    is_false,
    objects,
    read_output,
    resources,
    time_s,
    vnodes,
)
from hpctwin.rms.records.records import JobRecord, NodeRecord, NodeReservation, Snapshot
from hpctwin.rms.site import ListedNode, group_nodes

_AMOUNTS = {"ncpus", "mem", "ngpus", "vmem", "mpiprocs", "ompthreads"}
_DOWN = {
    "down", "state-unknown", "unknown", "nohierarchy", "stale", "unresolvable", "provisioning",
    "wait-provisioning", "initializing", "sleep", "deleted",
}  # fmt: skip
_DRAINED = {"offline", "offline_by_mom", "maintenance"}
_UP = {
    "free", "busy", "job-busy", "job-exclusive", "job-sharing", "resv-exclusive", "reserve", "time-shared",
    "running", "",
}  # fmt: skip

_LIMITS = re.compile("max_(run|user_|group_|queued_res)")
"""Limits on running jobs.

New versions of qstat list those of ``max_run_res`` in ``max_queued_res``.
"""


@dataclass
class Found:
    """A snapshot, and what it does not include.

    Args:
        snapshot: Jobs and nodes.
        largest: Size of the largest node.
        notes: One sentence for each thing omitted or assumed.
        marks: Pending jobs that are the twin's.
        left: Reasons why pending jobs that the hook has marked are left to PBS, by job.
        kept: Those of them that PBS's scheduler still skips.
        acted: Queues in which the twin acts.
        routes: Routing queues that lead to one of them.
        strange: Whether jobs are in queues that were not reported.
        limit_counts: Whether running jobs count in the limit of jobs that must wait.
        unequal: Vnodes where the amounts of jobs differ from PBS's totals, with the difference.
        asked: Custom resources of the site that chunks request by amount.
        told: Custom resources of the site for which hpctwin knows whether jobs use them up.
        lies: Select and place of each pending job that has parts of vnodes.
        consumables: Custom resources of the site that vnodes have and jobs use up.
    """

    snapshot: Snapshot
    largest: LargestNode
    notes: list[str] = field(default_factory=list)
    marks: dict[str, LeaseMark] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    acted: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    strange: bool = False
    limit_counts: bool = False
    unequal: dict[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    lies: dict[str, tuple[str, str]] = field(default_factory=dict)
    consumables: frozenset[str] = frozenset()


def cluster_snapshot(
    qstat: bytes,
    pbsnodes: bytes,
    queues: bytes,
    reservations: bytes,
    now_s: float,
    *,
    scheduling: bool = True,
    default_queue: str = "",
    blind: Collection[str] = (),
    used_up: Collection[str] = (),
) -> Found:
    """Return everything that PBS knows now.

    Args:
        qstat: Output of ``qstat -f -t -F json``.
        pbsnodes: Output of ``pbsnodes -a -v -F json``.
        queues: Output of ``qstat -Q -f -F json``.
        reservations: Output of ``pbs_rstat -f``.
        now_s: Time in seconds since the epoch, used if PBS reports none.
        scheduling: Whether PBS's own scheduling is on.
        default_queue: Queue of jobs that name none.
        blind: Names of vnodes that have been `Found.unequal` for some time.
        used_up: Custom resources of the site that jobs use up on vnodes; see `SiteResources`.
    """
    notes: list[str] = []
    jobs_about = read_output(qstat, "qstat -f -t -F json", notes)
    nodes_about = read_output(pbsnodes, "pbsnodes -a -v -F json", notes)
    queues_about = objects(read_output(queues, "qstat -Q -f -F json", notes), "Queue")
    open_queues = {
        name: about
        for name, about in queues_about.items()
        if str(about.get("queue_type", "Execution")).lower().startswith("e")
        and not _is_reservation(name)
    }
    default = routed(default_queue, queues_about)
    listed = listed_nodes(objects(nodes_about, "nodes"), open_queues, notes, used_up)
    if not listed:
        raise FormatError("pbsnodes -a -v -F json: no node with cores is listed")
    grouped = group_nodes(listed)
    known = {node.name: node for node in grouped.nodes}
    node_rows = objects(nodes_about, "nodes")
    sharing, why = how_shared({name: node_rows[name] for name in known})
    consumables = frozenset(name for node in listed for name, _ in node.consumables)
    if sharing is not None:
        sharing = replace(sharing, consumables=consumables)
    largest = LargestNode(
        max(node.cores or 0.0 for node in listed),
        max(node.gpus or 0.0 for node in listed),
        sharing,
    )
    stopped = {name for name, about in open_queues.items() if is_false(about.get("started"))}
    notes += [f"queue {name} is stopped: its jobs do not start" for name in sorted(stopped)]
    rows = objects(jobs_about, "Jobs")
    jobs: dict[str, JobRecord] = {}
    marks = {}
    rough: dict[str, str] = {}
    unread: dict[str, str] = {}
    lies: dict[str, tuple[str, str]] = {}
    for job_id, row in rows.items():
        array = rows.get(array_of(job_id))
        if array is not None and array is not row:
            row = as_subjob(row, array)
        record = _listed_job(job_id, row, rows, open_queues, known, largest, notes)
        if record is None or isinstance(record, str):
            unread[job_id] = record or ""
            continue
        reason = ""
        if record.spec.partition in stopped:
            reason = f"partition: queue {record.spec.partition} is stopped"[:128]
        elif not scheduling:
            reason = "policy: scheduling is switched off"
        if record.start_s is None and reason:
            spec = record.spec.model_copy(update={"reason": reason})
            record = record.model_copy(update={"spec": spec})
        jobs[record.spec.id] = record
        if record.start_s is None and record.spec.tasks:
            lies[record.spec.id] = how_it_lies(row)
        mark = job_mark(row)
        said = roughly(row, sharing) if record.start_s is None else ""
        if said:
            rough[record.spec.id] = said
        elif mark is not None and record.spec.partition in grouped.members:
            marks[record.spec.id] = mark
        else:
            unread[record.spec.id] = "its queue has no nodes"
    booked = _reservations(reservations, known, notes, now_s)
    differs = {}
    if sharing is not None:
        # PBS counts the amounts of a reservation that has begun as taken, with jobs in it or
        # without.
        begun = {name for one in booked if one.start_s <= now_s for name in one.node_names}
        there = {name: node_rows[name] for name in known.keys() - begun}
        differs = unequal(there, jobs.values(), sorted(consumables))
    doubtful = sorted(set(blind) & differs.keys())
    unmodeled = bool(why)
    if why:
        notes.append(f"{why}: not modeled; forecasts are rough, and only PBS starts jobs")
    if doubtful:
        notes.append(
            f"{count_text(len(doubtful), 'vnode')} with data that contradict the jobs there "
            f"({doubtful[0]}: {differs[doubtful[0]]}): only PBS "
            "starts jobs"
        )
    if rough:
        job_id, said = next(iter(rough.items()))
        notes.append(
            f"{count_text(len(rough), 'job')} with requests that are not modeled (job {job_id[:40]}: "
            f"{said[:60]}): only PBS starts them"
        )
    if doubtful:
        why = why or f"vnode {doubtful[0]} contradicts its jobs"
    if why:
        marks = {}
    acted = () if why else tuple(name for name in open_queues if name in grouped.members)
    left, kept = _left(rows, marks, rough | unread, why)
    snapshot = Snapshot.model_construct(
        cluster="pbs",
        time_s=time_s(jobs_about.get("timestamp")) or now_s,
        run="",
        seq=0,
        machine=Cluster(
            name="pbs",
            nodes=grouped.groups,
            partitions=_with_others(
                partitions_of(open_queues, grouped.members, default, notes), jobs.values()
            ),
        ),
        nodes=grouped.nodes,
        jobs=tuple(jobs.values()),
        reservations=booked,
        own_scheduling=scheduling,
        shared=tuple(known) if unmodeled else (),
    )
    return Found(
        snapshot,
        largest,
        notes,
        marks,
        left=left,
        kept=kept,
        acted=acted,
        routes=tuple(name for name in queues_about if _leads_to(name, queues_about, acted)),
        strange=any(str(row.get("queue", "")) not in queues_about for row in rows.values()),
        limit_counts=any(map(counts, rows.values())),
        unequal=differs,
        asked=asked_by_name(rows.values()),
        lies=lies,
        consumables=consumables,
    )


def server_attributes(text: bytes) -> dict[str, Any]:
    """Return the server's attributes from ``qstat -B -f -F json``."""
    about = read_output(text, "qstat -B -f -F json", [])
    servers = list(objects(about, "Server").values())
    if not servers:
        raise FormatError("qstat -B -f -F json: no server is listed")
    return {**servers[0], "pbs_version": str(about.get("pbs_version", ""))}


def own_estimates(text: bytes) -> dict[str, float]:
    """Return the start times that PBS estimates, by job id, from ``qstat -f -F json``."""
    rows = objects(read_output(text, "qstat -f -F json", []), "Jobs")
    times = {
        job_id: time_s(resources(row.get("estimated")).get("start_time"))
        for job_id, row in rows.items()
    }
    return {job_id: start_s for job_id, start_s in times.items() if start_s is not None}


# --- nodes and queues --------------------------------------------------------------------------------


def listed_nodes(
    rows: Mapping[str, dict[str, Any]],
    queues: Mapping[str, Any],
    notes: list[str],
    consumables: Collection[str],
    sets: Collection[str] = (),
) -> list[ListedNode]:
    """Return nodes of ``pbsnodes`` that have cores, with the queues that use them.

    Args:
        notes: List to which omissions are added.
        consumables: Custom resources of the site that jobs use up.
        sets: Resources whose values make placement sets; they become features.
    """
    bound = {str(row.get("queue", "")) for row in rows.values()}
    # A queue with dedicated nodes uses no other nodes.
    shared = tuple(sorted(queue for queue in queues if queue not in bound))
    needs = {queue: needed_of(about) for queue, about in queues.items()}
    listed, unknown = [], Counter[str]()
    for name, row in rows.items():
        has = resources(row.get("resources_available"))
        cores = integer(has.get("ncpus", row.get("pcpus")))
        if cores == 0:
            if not is_parent(row):
                said = "no cores" if "ncpus" in has else "neither ncpus, np nor pcpus"
                notes.append(
                    f"node {name[:50]} ({row.get('state', 'no state')}) has {said}: omitted"
                )
            continue
        words = {word.strip().lower() for word in str(row.get("state", "")).split(",")}
        unknown.update(words - _DOWN - _DRAINED - _UP)
        state = "down" if words & _DOWN else "drained" if words & _DRAINED else "up"
        try:
            record = NodeRecord.model_validate({"name": name, "state": state})
        except ValidationError:
            notes.append(f"a node with an invalid name is omitted: {name[:50]!r}")
            continue
        own = str(row.get("queue", ""))
        partitions = (own,) if own in queues else shared
        if own and own not in queues:
            notes.append(f"node {name[:50]} belongs to queue {own[:50]}, which does not exist")
        partitions = tuple(queue for queue in partitions if _serves(row, has, needs[queue]))
        listed.append(
            ListedNode(
                record,
                float(cores),
                float(integer(has.get("ngpus"))),
                memory_gb(has.get("mem", "")),
                partitions if not own or own in queues else (),
                consumables=tuple(
                    (name, amount)
                    for name in sorted(consumables)
                    if (amount := amount_said(has.get(name))) is not None
                ),
                features=properties_of(row)
                + tuple(
                    f"{key}={value}"
                    for key in sorted(sets)
                    for value in str(has.get(key, "")).replace('"', "").split(",")
                    if re.fullmatch(r"[\w.-]+", value)
                ),
            )
        )
    notes += [
        f"state {word[:40]!r} of {count_text(count, 'node')} is unknown: ignored"
        for word, count in unknown.items()
    ]
    return listed


def needed_of(queue: Mapping[str, Any]) -> dict[str, str]:
    """Return what nodes of a queue must have, by resource.

    PBS's jobs get ``default_chunk`` of their queue, such as ``default_chunk.Qlist = gpu``. Torque's
    jobs get ``resources_default.neednodes``, a property; such properties are under ``properties``.
    """
    chunk = resources(queue.get("default_chunk"))
    needed = {
        name: str(value)
        for name, value in chunk.items()
        if name not in _AMOUNTS and amount_said(value) is None
    }
    named = resources(queue.get("resources_default")).get("neednodes", "")
    words = [*str(named).split(":"), *str(queue.get("features_required", "")).split(",")]
    properties = [w.strip() for w in words if re.fullmatch(r"\s*[A-Za-z][\w.-]*\s*", w)]
    return needed | ({"properties": ",".join(properties)} if properties else {})


def _serves(row: Mapping[str, Any], has: Mapping[str, Any], needed: Mapping[str, str]) -> bool:
    """Return whether a node has all that a queue's jobs need."""
    for name, value in needed.items():
        said = row.get("properties", "") if name == "properties" else has.get(name, "")
        there = {word.strip().lower() for word in str(said).strip('"').split(",")}
        if not {word.lower() for word in value.strip('"').split(",")} <= there:
            return False
    return True


def asked_by_name(jobs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return custom resources that chunks request, or hold, by amount."""
    found: set[str] = set()
    for row in jobs:
        for text in (row.get("exec_vnode"), selected(row)):
            pairs = re.findall(r":([A-Za-z][\w-]*)=([^:+()\s]*)", ":" + str(text or ""))
            found |= {name for name, said in pairs if is_consumable(name, said)}
    return frozenset(found)


def routed(name: str, queues: Mapping[str, dict[str, Any]]) -> str:
    """Return the queue that a job enters: the first target of a routing queue."""
    for _ in queues:
        about = queues.get(name, {})
        if not str(about.get("queue_type", "")).lower().startswith("r"):
            break
        name = str(about.get("route_destinations", "")).partition(",")[0].partition("@")[0]
    return name


def partitions_of(
    queues: Mapping[str, dict[str, Any]],
    members: Mapping[str, tuple[str, ...]],
    default: str,
    notes: list[str],
) -> list[Partition]:
    """Return queues as partitions; what cannot be represented is added to ``notes``."""
    result = []
    for name, about in queues.items():
        if name not in members:
            notes.append(f"queue {name} has no nodes: its jobs never start")
            continue
        most = resources(about.get("resources_max"))
        least = resources(about.get("resources_min"))
        widest = integer(most.get("nodect"))
        depth = str(about.get("backfill_depth", ""))
        result.append(
            Partition(
                name=name,
                groups=members[name],
                min_nodes=max(1, integer(least.get("nodect"))),
                max_nodes=widest or None,
                max_walltime=parse_duration(most.get("walltime")) or None,
                priority=float(integer(about.get("Priority"))),
                default=name == default,
                backfill_depth=int(depth) if re.fullmatch(r"\d{1,9}", depth) else None,
            )
        )
        limits = sorted(filter(_LIMITS.match, about))
        if limits:
            notes.append(f"queue {name} has limits that are not modeled: {', '.join(limits)}")
    return result


def _with_others(
    partitions: Sequence[Partition], jobs: Iterable[JobRecord]
) -> tuple[Partition, ...]:
    """Return queues, and other queues in which jobs run, such as reservations'.

    Nothing is started from the latter.
    """
    names = {partition.name for partition in partitions}
    run_in = {job.spec.partition for job in jobs if job.start_s is not None}
    return (*partitions, *(Partition(name=name) for name in sorted(run_in - names - {""})))


# --- jobs ------------------------------------------------------------------------------------------


def _listed_job(
    job_id: str,
    row: dict[str, Any],
    rows: Mapping[str, Any],
    queues: Mapping[str, Any],
    known: Mapping[str, NodeRecord],
    largest: LargestNode,
    notes: list[str],
) -> JobRecord | str | None:
    """Return one job of qstat, or why it is left alone; None if ended, or an array."""
    if job_id.partition(".")[0].endswith("[]"):
        stem = job_id.partition("[")[0] + "["
        if not any(other != job_id and other.startswith(stem) for other in rows):
            notes.append(
                f"job {job_id[:40]} is not controlled: it is an array whose subjobs are not listed"
            )
            return "an array whose subjobs are not listed"
        return None
    queue = str(row.get("queue", ""))
    if (state := state_of(row)) not in STATES:
        notes.append(f"job {job_id[:40]} is omitted: its state {state[:40]!r} is unknown")
        return None
    try:
        record = job_record(job_id, row, known, largest, notes)
    except ValueError as error:
        why = first_fault(error) if isinstance(error, ValidationError) else str(error)
        notes.append(f"job {job_id[:40]} is omitted: {why}")
        return why
    if record is None or record.start_s is not None or queue in queues:
        return record
    why = "a reservation's queue" if _is_reservation(queue) else f"queue {queue[:40]!r}"
    notes.append(f"job {job_id[:40]} is not controlled: it is in {why}, whose jobs do not start")
    return f"it is in {why}"


def _left(
    rows: Mapping[str, dict[str, Any]],
    marks: Mapping[str, LeaseMark],
    reasons: Mapping[str, str],
    of_all: str,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return why pending jobs with the hook's mark are left to PBS, and those skipped.

    PBS's scheduler still skips the latter. If jobs of an array are listed, they
    are named instead of the array.
    """
    own = {array_of(job_id) for job_id, mark in marks.items() if not mark.free}
    left: dict[str, str] = {}
    kept, listed = set[str](), set[str]()
    for job_id in sorted(rows, key=lambda i: "[]" in i):
        mark = job_mark(rows[job_id])
        if mark is None or array_of(job_id) in own or (mark.free and not mark.kept):
            continue
        if mark.kept:
            kept.add(array_of(job_id))
        if job_id not in listed:
            listed.add(array_of(job_id))
            why = (
                "an operator removed it from the twin's control"
                if mark.free
                else of_all or "it is not listed"
            )
            left[job_id] = reasons.get(job_id) or why
    return left, tuple(sorted(kept))


def _leads_to(name: str, queues: Mapping[str, dict[str, Any]], acted: Collection[str]) -> bool:
    """Return whether a routing queue leads to a queue in which the twin acts."""
    seen, to_see = set[str](), [name]
    while to_see:
        about = queues.get(one := to_see.pop(), {})
        if one in seen or not str(about.get("queue_type", "")).lower().startswith("r"):
            continue
        seen.add(one)
        to_see += [
            to.partition("@")[0] for to in str(about.get("route_destinations", "")).split(",")
        ]
        if set(acted) & set(to_see):
            return True
    return False


def _is_reservation(queue: str) -> bool:
    return re.fullmatch(r"[RSM]\d+", queue) is not None


# --- reservations ----------------------------------------------------------------------------------


def _reservations(
    text: bytes, known: Mapping[str, NodeRecord], notes: list[str], now_s: float
) -> tuple[NodeReservation, ...]:
    """Return the reservations of ``pbs_rstat -f``: blocks starting with ``Resv ID:``."""
    result = []
    blocks = re.split(r"^Resv ID:", text.decode("utf-8", errors="replace"), flags=re.MULTILINE)
    for block in blocks[1:]:
        name = block.partition("\n")[0].strip()
        about = dict(re.findall(r"^\s*([\w.]+) = (.*)$", block, flags=re.MULTILINE))
        start_s, end_s = time_s(about.get("reserve_start")), time_s(about.get("reserve_end"))
        nodes = tuple(n for n in vnodes(about.get("resv_nodes", "")) if n in known)
        if start_s is None or end_s is None or not nodes:
            notes.append(f"reservation {name[:40]} is omitted: its start, end or nodes are missing")
            continue
        if end_s > max(now_s, start_s):
            result.append(
                NodeReservation(name=name[:128], start_s=start_s, end_s=end_s, node_names=nodes)
            )
    return tuple(result)
