"""From Slurm's JSON to records; versions 22.05 (strings, plain numbers) and 23.02 on (lists, objects).

What cannot be read is named and left out, never invented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from hpctwin.errors import FormatError
from hpctwin.model import Cluster, Partition
from hpctwin.rms.hostlist import expand
from hpctwin.rms.machine import ListedNode, group_nodes
from hpctwin.rms.records import NodeRecord, NodeReservation, Snapshot
from hpctwin.rms.slurm.jobs import Mine, read_jobs
from hpctwin.rms.slurm.preempt import Preempting, preempting_partitions, preempting_qos
from hpctwin.rms.slurm.values import limit_s, moment, number, words

__all__ = ["Found", "cluster_snapshot", "gpus_of", "settings", "start_times"]


@dataclass
class Found:
    """A snapshot, and what was not taken into it.

    Args:
        snapshot: jobs and nodes.
        notes: one sentence for each thing left out or assumed.
        mine: the waiting jobs of the twin's that it may act on.
        nice: nice values of the jobs that wait and are not held, by id.
        names: ids of jobs by Slurm's own number, where the two differ.
    """

    snapshot: Snapshot
    notes: list[str] = field(default_factory=list)
    mine: dict[str, Mine] = field(default_factory=dict)
    nice: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def cluster_snapshot(
    squeue: bytes,
    sinfo: bytes,
    reservations: bytes,
    partitions: bytes,
    now_s: float,
    select: str = "select/linear",
    preempt: str = "preempt/none",
    qos: bytes | None = b"",
) -> Found:
    """Everything Slurm knows now.

    Args:
        squeue: of ``squeue --json``.
        sinfo: of ``sinfo --json`` or ``scontrol show nodes --json``.
        reservations: of ``scontrol show reservation -o``.
        partitions: of ``scontrol show partition -o``.
        now_s: the controller's time, seconds since the epoch.
        select: its ``SelectType``.
        preempt: its ``PreemptType``.
        qos: of ``sacctmgr -nP show qos format=Name,Preempt``, where QOS preempt; None if it failed.

    Raises:
        FormatError: an output is not what that command writes.
    """
    notes: list[str] = []
    rows = _rows(squeue, "squeue --json", "jobs")
    listed = _nodes(_node_rows(sinfo), notes)
    grouped = group_nodes(listed)
    known = {node.name: node for node in grouped.nodes}
    described = {row["PartitionName"]: row for row in _pairs(partitions) if "PartitionName" in row}
    closed = {
        name: about["State"]
        for name, about in described.items()
        if about.get("State", "UP") not in ("UP", "DRAIN")
    }
    preempting = _preempting(preempt, grouped.members, described, qos)
    if preempting.qos is None:
        notes.append(
            "which QOS preempt could not be asked of sacctmgr: Slurm alone starts all jobs"
        )
    jobs = read_jobs(rows, known, closed, preempting)
    notes += jobs.notes
    shared = _shared(listed, described, select)
    mine = jobs.mine
    if shared:
        whole = {p for p in grouped.members if not shared & _members(listed, p)}
        blind = {i for i in mine if jobs.records[i].spec.partition not in whole}
        mine = {i: one for i, one in mine.items() if i not in blind}
        names = sorted(set(grouped.members) - whole)
        notes.append(
            f"{len(shared)} nodes may run several jobs at once, which is not modelled: jobs of "
            f"{'partition' if len(names) == 1 else 'partitions'} {', '.join(names)} are observed, "
            "forecasts are rough, and Slurm alone starts them"
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
        jobs=tuple(jobs.records.values()),
        reservations=_reservations(_pairs(reservations), known, notes, now_s),
        own_scheduling=True,
        shared=tuple(sorted(shared)),
    )
    return Found(snapshot, notes, mine, jobs.nice, jobs.names)


def settings(config: bytes) -> dict[str, str]:
    """Of ``scontrol show config``; the controller's time is ``as_of``."""
    text = config.decode(errors="replace")
    found = {k: v.strip() for k, v in re.findall(r"^(\w+)\s*= (.*)$", text, flags=re.MULTILINE)}
    head = re.search(r"^Configuration data as of (\S+)", text)
    return {**found, "as_of": head[1]} if head else found


def _shared(
    nodes: Sequence[ListedNode], partitions: Mapping[str, dict[str, str]], select: str
) -> set[str]:
    """Names of the nodes that Slurm may give to several jobs at once."""
    found = set()
    for node in nodes:
        for label in node.partitions:
            says = partitions.get(label, {}).get("OverSubscribe", "NO").partition(":")[0]
            by_core = "cons" in select and (node.cores or 2) > 1
            if says in ("YES", "FORCE") or (by_core and says != "EXCLUSIVE"):
                found.add(node.record.name)
    return found


def _preempting(
    preempt: str,
    members: Mapping[str, tuple[str, ...]],
    described: Mapping[str, dict[str, str]],
    qos: bytes | None,
) -> Preempting:
    if preempt == "preempt/none":
        return Preempting()
    if preempt == "preempt/qos":
        return Preempting(qos=None if qos is None else preempting_qos(qos))
    tiers = {name: float(about.get("PriorityTier") or 0) for name, about in described.items()}
    return Preempting(partitions=preempting_partitions(members, tiers))


def _members(nodes: Sequence[ListedNode], label: str) -> set[str]:
    return {node.record.name for node in nodes if label in node.partitions}


def start_times(text: bytes) -> dict[str, float]:
    """Expected starts of ``squeue --start -h -o "%A %S"``, by job number; ``N/A`` is left out."""
    found = {}
    for line in text.decode(errors="replace").splitlines():
        job_id, _, said = line.strip().partition(" ")
        if re.fullmatch(r"[1-9]\d{0,11}", job_id):
            with suppress(ValueError):
                found[job_id] = moment(said.strip())
    return found


# --- rows ------------------------------------------------------------------------------------------


def _rows(text: bytes, what: str, key: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what}: not JSON: {error}") from error
    rows = content.get(key) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise FormatError(f"{what}: no list {key!r} in it")
    return [row for row in rows if isinstance(row, dict)]


def _node_rows(text: bytes) -> list[dict[str, Any]]:
    """Nodes of 22.05; later versions of sinfo group them, and give ``nodes`` by scontrol."""
    try:
        return _rows(text, "sinfo --json", "nodes")
    except FormatError:
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
            gpus_of(row.get("gres")),
            None if memory is None else memory / 1024,
            partitions,
        )
    if not found:
        raise FormatError("sinfo --json: no node in it")
    return list(found.values())


def _node_state(flags: set[str]) -> Any:
    if flags & {"DOWN", "FAIL", "ERROR", "POWERING_DOWN", "UNKNOWN", "FUTURE"}:
        return "down"
    # Slurm switches a node on for a job; until it answers again it is no less the job's.
    if flags & {"POWERED_DOWN", "POWERING_UP"}:
        return "up"
    if "NOT_RESPONDING" in flags:
        return "down"
    if flags & {"DRAIN", "DRAINED", "DRAINING", "MAINTENANCE", "MAINT", "REBOOT_ISSUED"}:
        return "drained"
    return "up"


def gpus_of(gres: Any) -> float | None:
    """GPUs that a text such as ``gpu:a100:4(S:0-1),shard:8`` counts; None if it names none."""
    counts = re.findall(r"gpu(?::[\w.\-]+)*?:(\d{1,6})", gres) if isinstance(gres, str) else []
    return float(sum(map(int, counts))) if counts else None


def _partitions(
    members: dict[str, tuple[str, ...]], described: Mapping[str, dict[str, str]], notes: list[str]
) -> tuple[Partition, ...]:
    result = []
    for label in sorted(members):
        about = described.get(label, {})
        most = about.get("MaxNodes", "")
        result.append(
            Partition(
                name=label,
                groups=members[label],
                max_walltime=limit_s(about.get("MaxTime", "")),
                max_nodes=int(most) if most.isdigit() and int(most) > 0 else None,
                priority=float(about.get("PriorityTier", "0") or 0),
                default=about.get("Default") == "YES",
            )
        )
        if about.get("State", "UP") != "UP":
            notes.append(f"partition {label} is {about['State']}")
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
            start_s = moment(row.get("StartTime", ""))
            end_s = moment(row.get("EndTime", ""))
            nodes = tuple(n for n in expand(row.get("Nodes", "")) if n in known)
            if end_s > now_s and nodes:
                result.append(
                    NodeReservation(name=name, start_s=start_s, end_s=end_s, node_names=nodes)
                )
        except ValueError as error:
            notes.append(f"reservation {name} was left out: {str(error).splitlines()[0]}")
    return tuple(result)
