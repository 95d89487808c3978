"""Conversion of Slurm's JSON to records.

Version 22.05 writes strings and plain numbers, 23.02 and later lists and objects. Unreadable parts
are named and omitted, never invented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from hpctwin.errors import FormatError
from hpctwin.formats.accounting.slurm_values import number, said
from hpctwin.model import Cluster, Partition
from hpctwin.model.cluster.node_group import LYING, Sleep
from hpctwin.model.text import count_text
from hpctwin.rms.records.records import JobRecord, NodePower, NodeRecord, NodeReservation, Snapshot
from hpctwin.rms.site import ListedNode, Sleeping, group_nodes
from hpctwin.rms.slurm.listing.allocations import Idle, idle_of, unequal
from hpctwin.rms.slurm.listing.conf import Row
from hpctwin.rms.slurm.listing.jobs import Mine, read_jobs
from hpctwin.rms.slurm.listing.listing import rows_of
from hpctwin.rms.slurm.listing.reservations import reservation_rows, shown
from hpctwin.rms.slurm.listing.resources import (
    Preempting,
    features_of,
    gpus_of,
    lying_of,
    names_asked,
    not_used_up,
    preempting_partitions,
    preempting_qos,
)
from hpctwin.rms.slurm.listing.sharing import (
    Sharing,
    cores_of,
    how_shared,
    used_of,
)
from hpctwin.rms.slurm.listing.values import EXCLUSIVE, limit_s, moment, whole, words


@dataclass
class Found:
    """A snapshot, and what it does not include.

    Args:
        snapshot: Jobs and nodes.
        notes: One sentence for each thing omitted or assumed.
        mine: Pending jobs that the twin may act on.
        left: Pending jobs that the submit rule has marked, but that the twin leaves to Slurm;
            `Mine.left` says why.
        idle: Partitions in which the twin acts, with their idle capacity.
        preempting_qos: Names of the QOS whose jobs may preempt others.
        nice: Nice values of pending jobs that are not held, by id.
        names: Ids of jobs by Slurm's own number, if the two differ.
        unequal: Nodes where the amounts of jobs differ from Slurm's totals, with the difference.
        features: Features that any job requests, or has requested. Only these distinguish nodes: by
            all features of a site, each node might be in a separate group.
    """

    snapshot: Snapshot
    notes: list[str] = field(default_factory=list)
    mine: dict[str, Mine] = field(default_factory=dict)
    left: dict[str, Mine] = field(default_factory=dict)
    idle: dict[str, Idle] = field(default_factory=dict)
    preempting_qos: frozenset[str] = frozenset()
    nice: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unequal: dict[str, str] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)


def cluster_snapshot(
    squeue: bytes | Sequence[dict[str, Any]],
    sinfo: bytes,
    reservations: bytes,
    partitions: bytes,
    now_s: float,
    select: str = "select/linear",
    preempt: str = "preempt/none",
    qos: bytes | None = b"",
    parameters: str = "",
    blind: Collection[str] = (),
    sleeping: Callable[[str], Sleeping | None] = lambda name: None,
    features: Collection[str] = (),
) -> Found:
    """Return everything that Slurm knows now.

    Args:
        squeue: Output of ``squeue --json``, or its rows.
        sinfo: Output of ``sinfo --json`` or ``scontrol show nodes --json``.
        reservations: Output of ``scontrol show reservation -o``.
        partitions: Output of ``scontrol show partition -o``.
        now_s: The controller's time, in seconds since the epoch.
        qos: Output of ``sacctmgr -nP show qos format=Name,Preempt`` if QOS preempt; None if it
            failed.
        blind: Names of nodes that have been `Found.unequal` for some time.
        sleeping: Function that returns how a node is switched off and on, by its name.
        features: Features that jobs have requested before, by name; see `Found.features`.
    """
    notes: list[str] = []
    rows = rows_of(squeue) if isinstance(squeue, bytes) else squeue
    described = {row["PartitionName"]: row for row in _pairs(partitions) if "PartitionName" in row}
    node_rows = _node_rows(sinfo)
    belongs = _belongs(node_rows)
    sharing, rough = how_shared(
        node_rows, belongs, described, select, parameters, not_used_up(rows)
    )
    asked = names_asked(rows) | set(features)
    listed = _nodes(node_rows, sharing, notes, sleeping, now_s, asked)
    grouped = group_nodes(listed)
    lying = {
        name: {number for node in listed if (number := node.lying[place]) is not None}
        for place, name in enumerate(LYING)
    }
    known = {node.name: node for node in grouped.nodes}
    closed = {
        name: about["State"]
        for name, about in described.items()
        if about.get("State", "UP") not in ("UP", "DRAIN")
    }
    preempting = _preempting(preempt, grouped.members, described, qos)
    if preempting.qos is None:
        notes.append("sacctmgr does not report which QOS preempt others: only Slurm starts jobs")
    jobs = read_jobs(rows, known, closed, preempting, sharing, lying)
    notes += jobs.notes
    woken = {
        node.record.name: node.sleeping.sleep.switch_on.time
        for node in listed
        if node.sleeping is not None
        and node.record.power is not None
        and node.record.power.state != "on"
    }
    shared = {name for label in rough for name in belongs[label]}
    differs = {} if sharing is None else unequal(node_rows, jobs.records.values(), sharing)
    if shared:
        why = ", ".join(f"{label} ({said})" for label, said in sorted(rough.items()))
        notes.append(
            f"{count_text(len(shared), 'node')} shared between jobs in ways that are not modeled: "
            f"{'partition' if len(rough) == 1 else 'partitions'} {why}; forecasts are rough there, and "
            "only Slurm starts jobs"
        )
    doubtful = sorted(set(blind) & differs.keys())
    if doubtful:
        notes.append(
            f"{count_text(len(doubtful), 'node')} with data that contradict the jobs there "
            f"({doubtful[0]}: {differs[doubtful[0]]}): only Slurm starts jobs of their partitions"
        )
    unsure = shared | set(doubtful)
    whole = {label for label, names in belongs.items() if not unsure & set(names)}
    mine: dict[str, Mine] = {}
    left: dict[str, Mine] = {}
    for job_id, one in jobs.mine.items():
        partition = jobs.records[job_id].spec.partition
        if one.left or partition in whole:
            why = one.left
        elif partition in rough:
            why = rough[partition]
        else:
            why = f"nodes of partition {partition} contradict their jobs"
        (left if why else mine)[job_id] = replace(one, left=why)
    if jobs.rough:
        job_id, said = next(iter(jobs.rough.items()))
        notes.append(
            f"{count_text(len(jobs.rough), 'job')} with requests that are not modeled on shared nodes "
            f"(job {job_id}: {said}): only Slurm starts them"
        )
    snapshot = Snapshot.model_construct(
        cluster="slurm",
        time_s=now_s,
        run="",
        seq=0,
        machine=Cluster(
            name="slurm",
            nodes=grouped.groups,
            partitions=_partitions(grouped.members, described, notes),
        ),
        nodes=grouped.nodes,
        jobs=tuple(_with_start(job, woken) for job in jobs.records.values()),
        reservations=_reservations(
            reservation_rows(reservations.decode(errors="replace"), "scontrol"), known, notes, now_s
        ),
        own_scheduling=True,
        shared=tuple(sorted(shared)),
    )
    leased = {job_id for job_id, one in jobs.mine.items() if one.asked_s <= now_s}
    # All jobs of the other partitions are left to Slurm.
    acts = whole - preempting.partitions if preempting.qos is not None else set()
    idle = idle_of(
        node_rows, {name: belongs[name] for name in sorted(acts)}, jobs.records, sharing, leased
    )
    return Found(
        snapshot, notes, mine, left, idle, preempting.qos or frozenset(),
        jobs.nice, jobs.names, differs, asked,
    )  # fmt: skip


def _with_start(job: JobRecord, woken: Mapping[str, float]) -> JobRecord:
    """Return a job that starts when its nodes are on, not when it was given them."""
    wakes_s = max((woken.get(name, 0.0) for name in job.node_names), default=0.0)
    if job.start_s is None or not wakes_s:
        return job
    return job.model_copy(update={"start_s": job.start_s + wakes_s})


def settings(config: bytes) -> dict[str, str]:
    """Read ``scontrol show config``; the controller's time is ``as_of``.

    The values of a numbered key (``PrologSlurmctld[0]``) are joined by commas. An unset value is
    empty.
    """
    text = config.decode(errors="replace")
    found: dict[str, str] = {}
    for key, numbered, value in re.findall(r"(?m)^(\w+)(\[\d+\])?[ \t]*=(.*)$", text):
        before = found.get(key, "") if numbered else ""
        found[key] = ",".join(filter(None, (before, said(value.strip()))))
    head = re.search(r"^Configuration data as of (\S+)", text)
    return {**found, "as_of": head[1]} if head else found


def _preempting(
    preempt: str,
    members: Mapping[str, tuple[str, ...]],
    described: Mapping[str, dict[str, str]],
    qos: bytes | None,
) -> Preempting:
    if said(preempt) in ("", "none", "preempt/none"):
        return Preempting()
    if preempt == "preempt/qos":
        return Preempting(qos=None if qos is None else preempting_qos(qos))
    tiers = {name: number(about.get("PriorityTier")) or 0.0 for name, about in described.items()}
    return Preempting(partitions=preempting_partitions(members, tiers))


def start_times(text: bytes) -> dict[str, float]:
    """Return the expected starts of ``squeue --start -h -o "%A %S"``, by job number.

    ``N/A`` is omitted.
    """
    found = {}
    for line in text.decode(errors="replace").splitlines():
        job_id, _, said = line.strip().partition(" ")
        if re.fullmatch(r"[1-9]\d{0,11}", job_id):
            with suppress(ValueError):
                found[job_id] = moment(said.strip())
    return found


# --- rows ------------------------------------------------------------------------------------------


def _node_rows(text: bytes) -> list[dict[str, Any]]:
    """Return the nodes of 22.05, or of later versions.

    Later versions of sinfo group them, and scontrol has ``nodes``.
    """
    try:
        return rows_of(text, "sinfo --json", "nodes")
    except FormatError:
        groups = rows_of(text, "sinfo --json", "sinfo")
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
    """Return the lines of ``Key=value Key=value`` as `scontrol -o` writes them."""
    lines = text.decode(errors="replace").splitlines()
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
    for pairs in found:
        if (exclusive := EXCLUSIVE.get(pairs.get("Exclusive", ""))) is not None:
            pairs[exclusive[0]] = exclusive[1]
    return [pairs for pairs in found if pairs]


# --- nodes -----------------------------------------------------------------------------------------


def _belongs(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the names of the nodes of each partition."""
    found: dict[str, list[str]] = {}
    for row in rows:
        labels = row.get("partitions")
        for label in labels if isinstance(labels, list) else ():
            if isinstance(label, str):
                found.setdefault(label, []).append(str(row.get("name")))
    return found


def _nodes(
    rows: list[dict[str, Any]],
    sharing: Sharing | None,
    notes: list[str],
    sleeping: Callable[[str], Sleeping | None],
    now_s: float,
    asked: Collection[str],
) -> list[ListedNode]:
    found: dict[str, ListedNode] = {}
    for row in rows:
        name = row.get("name") or row.get("hostname")
        flags = words(row.get("state_flags")) | words(row.get("state"))
        sleeps = sleeping(str(name))
        try:
            power = None if sleeps is None else _power(flags, row, sleeps.sleep, now_s)
            state = _node_state(flags - {"POWERING_DOWN"} if sleeps else flags)
            record = NodeRecord(name=str(name), state=state, power=power)
        except ValidationError:
            notes.append(f"a node with an invalid name is omitted: {str(name)[:50]!r}")
            continue
        memory = number(row.get("real_memory"))
        uses_up = used_of(row.get("gres"), str(name), sharing)
        labels = row.get("partitions")
        partitions = (
            tuple(sorted(p for p in labels if isinstance(p, str)))
            if isinstance(labels, list)
            else ()
        )
        if record.name in found:
            partitions = tuple(sorted({*partitions, *found[record.name].partitions}))
        cores = cores_of(row, sharing)
        found[record.name] = ListedNode(
            record,
            cores,
            gpus_of(row.get("gres")),
            None if memory is None else memory / 1024,
            partitions,
            sleeps,
            tuple(
                sorted(
                    (n, a) for n, a in uses_up.items() if sharing is None or n not in sharing.unused
                )
            ),
            features=features_of(row, asked),
            lying=lying_of(row, cores),
        )
    if not found:
        raise FormatError("sinfo --json: no node is listed")
    return list(found.values())


_DRAINED = {
    "DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT", "REBOOT_ISSUED", "POWER_DRAIN", "INVALID_REG",
    "BLOCKED",
}  # fmt: skip
"""States of a node that keeps its jobs and gets no others.

``BLOCKED`` is set by a job that has its switch alone.
"""


def _node_state(flags: set[str]) -> Any:
    if flags & {"DOWN", "FAIL", "ERROR", "POWERING_DOWN", "UNKNOWN", "FUTURE", "EXTERNAL"}:
        return "down"
    # Slurm switches a node on for a job; until it answers again it still belongs to the job.
    if flags & {"POWERED_DOWN", "POWERING_UP"}:
        return "up"
    if "NOT_RESPONDING" in flags:
        return "down"
    if flags & _DRAINED:
        return "drained"
    return "up"


def _power(flags: set[str], row: Mapping[str, Any], sleep: Sleep, now_s: float) -> NodePower:
    """Return a node's power state; a transition begins now unless it was seen before."""
    if "POWERING_UP" in flags:
        over_s = now_s + sleep.switch_on.time
        return NodePower(state="switching_on", since_s=now_s, until_s=over_s)
    if "POWERING_DOWN" in flags:
        over_s = now_s + sleep.switch_off.time
        return NodePower(state="switching_off", since_s=now_s, until_s=over_s)
    if "POWERED_DOWN" in flags:
        return NodePower(state="asleep", since_s=now_s)
    busy_s = number(row.get("last_busy")) or now_s
    return NodePower(since_s=min(busy_s, now_s))


def _partitions(
    members: dict[str, tuple[str, ...]], described: Mapping[str, dict[str, str]], notes: list[str]
) -> tuple[Partition, ...]:
    result = []
    for label in sorted(members):
        about = described.get(label, {})
        most = whole(about.get("MaxNodes"))
        result.append(
            Partition(
                name=label,
                groups=members[label],
                max_walltime=limit_s(about.get("MaxTime", "")),
                max_nodes=most if most > 0 else None,
                priority=number(about.get("PriorityTier")) or 0.0,
                default=about.get("Default") == "YES",
            )
        )
        if about.get("State", "UP") != "UP":
            notes.append(f"partition {label} is in state {about['State']}")
    return tuple(result)


# --- reservations ----------------------------------------------------------------------------------


def _reservations(
    rows: Sequence[Row], known: dict[str, NodeRecord], notes: list[str], now_s: float
) -> tuple[NodeReservation, ...]:
    result = []
    for row in rows:
        name = row.get("reservationname")
        try:
            one = shown(row, moment)
            nodes = tuple(n for n in one.nodes if n in known)
            if not one.nodes:
                notes.append(f"reservation {name} is omitted: it has no nodes")
            elif one.end_s > now_s and nodes:
                result.append(
                    NodeReservation(
                        name=name, start_s=one.start_s, end_s=one.end_s, node_names=nodes
                    )
                )
        except ValueError as error:
            notes.append(f"reservation {name} is omitted: {str(error).splitlines()[0]}")
    return tuple(result)
