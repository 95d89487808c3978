"""Allocations of running Slurm jobs on shared nodes, and whether the totals match.

Source:
    ``squeue --json`` and ``sinfo --json`` of a Slurm 22.05.8.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from hpctwin.formats.accounting.slurm_values import number, said
from hpctwin.rms.records.records import JobRecord, NodePart, held_by_jobs
from hpctwin.rms.slurm.listing.resources import gpus_in_parts, gpus_of, tres_of
from hpctwin.rms.slurm.listing.sharing import MB_PER_GB, Sharing, used_of
from hpctwin.rms.slurm.listing.values import whole, words

_ALLOCATED = {"ALLOCATED", "ALLOCATED_AND_IN_USE"}
_UP = {"IDLE", "MIXED", "CLOUD", "DYNAMIC_NORM"}
"""States of a node on which jobs can start at once."""


def parts_held(
    row: Mapping[str, Any],
    sharing: Sharing,
    in_parts: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> dict[str, NodePart]:
    """Return what a running job holds of each node; empty if that is not reported.

    Args:
        row: Row of ``squeue --json``; its ``job_resources`` are read.
        in_parts: Result of `held_in_parts` for this job.
    """
    nodes = list(_allocated(row.get("job_resources")))
    # A suspended job keeps its memory and GPUs, and its cores are free for others.
    suspended = "SUSPENDED" in words(row.get("job_state"))
    cores = [0.0 if suspended else count for _, count, _ in nodes]
    if sharing.by_cpu:
        # Slurm does not report which threads of a core it has, only how many in all.
        cpus = tres_of(row.get("tres_alloc_str")).get("cpu", 0.0)
        cores = [cpus * count / max(1.0, sum(cores)) for count in cores]
    detail = row.get("gres_detail")
    told = detail if isinstance(detail, list) else []
    gpus = [gpus_of(text) or 0.0 for text in told]
    others = [used_of(text, name, sharing) for text, (name, _, _) in zip(told, nodes, strict=False)]
    if len(gpus) != len(nodes):
        gpus = [sum(gpus) / max(1, len(nodes))] * len(nodes)
        others = [{} for _ in nodes]
    for (name, _, _), more in zip(nodes, others, strict=True):
        add_types(more, name, in_parts.get(name, ()), sharing)
    return {
        name: NodePart(
            cores=count,
            memory_gb=mb / MB_PER_GB if sharing.memory else 0.0,
            gpus=some + len(in_parts.get(name, ())),
            consumables=more,
        )
        for (name, _, mb), count, some, more in zip(nodes, cores, gpus, others, strict=True)
    }


def add_types(amounts: dict[str, float], name: str, gpus: Iterable[int], sharing: Sharing) -> None:
    """Count GPUs by their types.

    Args:
        amounts: Amounts by names of consumables; counts are added here.
    """
    types = sharing.gpu_types.get(name, ())
    for gpu in gpus:
        if gpu < len(types) and types[gpu]:
            amounts[types[gpu]] = amounts.get(types[gpu], 0.0) + 1.0


def held_in_parts(rows: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, list[int]]]:
    """Return, by job number, GPUs of each node that jobs use in parts.

    No other job gets one of them whole. They are reported by index. Each counts for the one of
    these jobs that may run longest.
    """
    last: dict[tuple[str, int], tuple[float, int]] = {}
    for row in rows:
        detail = row.get("gres_detail")
        names = [name for name, _, _ in _allocated(row.get("job_resources"))]
        told = detail if isinstance(detail, list) else []
        until = (number(row.get("end_time")) or math.inf, whole(row.get("job_id")))
        for name, text in zip(names, told, strict=False):
            for gpu in gpus_in_parts(text):
                last[name, gpu] = max(last.get((name, gpu), until), until)
    found: dict[int, dict[str, list[int]]] = {}
    for (name, gpu), (_, job) in last.items():
        found.setdefault(job, {}).setdefault(name, []).append(gpu)
    return found


def _allocated(resources: Any) -> Iterable[tuple[str, float, float]]:
    """Yield name, cores and MB of each node.

    Slurm 22.05 lists sockets, 23.11 and later allocations.
    """
    if not isinstance(resources, dict):
        return
    listed = resources.get("allocated_nodes")
    about = resources.get("nodes")
    if not isinstance(listed, list) and isinstance(about, dict):
        listed = about.get("allocation")
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict):
            continue
        name = one.get("nodename") or one.get("name")
        sockets = one.get("sockets")
        sockets = sockets.values() if isinstance(sockets, dict) else sockets or ()
        cores = sum(_cores(socket.get("cores")) for socket in sockets if isinstance(socket, dict))
        memory = one.get("memory_allocated")
        if memory is None and isinstance(one.get("memory"), dict):
            memory = one["memory"].get("allocated")
        yield str(name), float(cores), number(memory) or 0.0


def _cores(told: Any) -> int:
    """Return the number of cores that a job has.

    Slurm 22.05 names their states by number, later versions list all.
    """
    if isinstance(told, dict):
        states = list(told.values())
    else:
        states = [c.get("status") for c in told or () if isinstance(c, dict)]
    return sum(not words(state).isdisjoint(_ALLOCATED) for state in states)


def unequal(
    rows: Sequence[Mapping[str, Any]], jobs: Iterable[JobRecord], sharing: Sharing
) -> dict[str, str]:
    """Return nodes where the amounts of jobs differ from Slurm's totals, and how.

    Args:
        jobs: Jobs; running ones hold parts of nodes.
    """
    jobs = list(jobs)
    owners: dict[str, set[str]] = {}
    names = sorted({name for sizes in sharing.partitions.values() for name in sizes.consumables})
    held, alone = held_by_jobs(jobs, names)
    for job in jobs:
        for name in job.node_names if job.spec.shared_with else ():
            owners.setdefault(name, set()).add(job.spec.user)
    found = {}
    for row in rows:
        name = str(row.get("name"))
        cpus = number(row.get("alloc_cpus"))
        if name not in sharing.nodes or name in alone or cpus is None:
            continue
        # Slurm does not report a user whose name it does not know.
        owner = said(row.get("owner"))
        if owner and owners.get(name, set()) != {owner}:
            found[name] = (
                f"Slurm reserves the node for jobs of {owner}, but no running job explains it"
            )
            continue
        cores, memory, gpus, *others = held[name]
        threads = 1 if sharing.by_cpu else max(1, whole(row.get("threads")))
        pairs = [("CPUs", cores * threads, cpus)]
        if sharing.memory:
            pairs.append(("MB", memory * MB_PER_GB, number(row.get("alloc_memory")) or 0.0))
        gres = row.get("gres_used")
        in_parts = gpus_in_parts(gres)
        pairs.append(("GPUs", gpus, (gpus_of(gres) or 0.0) + len(in_parts)))
        used = used_of(gres, name, sharing)
        add_types(used, name, in_parts, sharing)
        pairs += [(n, ours, used.get(n, 0.0)) for n, ours in zip(names, others, strict=True)]
        for unit, ours, theirs in pairs:
            if abs(ours - theirs) > 0.5:
                found[name] = f"jobs hold {ours:g} {unit}, Slurm reports {theirs:g}"
                break
    return found


class Idle(NamedTuple):
    """Capacity that a partition's jobs may take without delaying a pending job.

    Args:
        nodes: Idle nodes.
        cpus: Free CPUs of nodes that are up.
        cpus_of_node: CPUs of its largest node.
        whole: 1 if jobs get whole nodes, otherwise 0.
    """

    nodes: int
    cpus: int
    cpus_of_node: int
    whole: int


def idle_of(
    rows: Iterable[Mapping[str, Any]],
    members: Mapping[str, Collection[str]],
    jobs: Mapping[str, JobRecord],
    sharing: Sharing | None,
    leased: Collection[str] = (),
) -> dict[str, Idle]:
    """Return each partition's idle capacity; none if a job is pending for its nodes.

    Args:
        sharing: How parts of nodes are allocated; None if jobs have whole nodes.
        leased: Jobs whose begin time is that of a lease and not of their user: these are pending.
    """
    # Nodes and jobs are from two moments: if either of them shows a use, it is not idle. A job that
    # has ended may still be completing.
    held: dict[str, float] = {}
    for job in jobs.values():
        for i, name in enumerate(job.node_names):
            held[name] = held.get(name, 0.0) + (job.parts[i].cores if job.parts else math.inf)
    free: dict[str, tuple[int, int]] = {}
    for row in rows:
        name, cpus = str(row.get("name")), whole(row.get("cpus"))
        threads = 1 if sharing is None or sharing.by_cpu else max(1, whole(row.get("threads")))
        used = max(whole(row.get("alloc_cpus")), held.get(name, 0.0) * threads)
        up = words(row.get("state")) | words(row.get("state_flags"))
        free[name] = (cpus, 0 if up - _UP else int(max(0, cpus - used)))
    pending = {
        name
        for job in jobs.values()
        if job.start_s is None and not job.spec.held and not job.spec.reason
        if not job.spec.dependencies
        if job.spec.not_before_s is None or job.spec.id in leased
        for name in members.get(job.spec.partition, ())
    }
    found = {}
    for label, names in members.items():
        some = [free[name] for name in names if name in free]
        shares = sharing is not None and label in sharing.partitions
        largest = max((cpus for cpus, _ in some), default=0)
        idle = [left for cpus, left in some if left == cpus]
        if not pending.isdisjoint(names):
            found[label] = Idle(0, 0, largest, int(not shares))
        else:
            of_nodes = sum(left for _, left in some) if shares else sum(idle)
            found[label] = Idle(len(idle), of_nodes, largest, int(not shares))
    return found
