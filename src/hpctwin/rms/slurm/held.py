"""What running jobs of a Slurm hold of nodes that they share, and whether that adds up.

Source:
    ``squeue --json`` and ``sinfo --json`` of a Slurm 22.05.8.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hpctwin.rms.records import JobRecord, NodePart
from hpctwin.rms.slurm.gres import gpus_in_parts, gpus_of, tres_of
from hpctwin.rms.slurm.sharing import MB_PER_GB, Sharing, used_of
from hpctwin.rms.slurm.values import number, whole

__all__ = ["held_in_parts", "parts_held", "unequal"]


def parts_held(
    row: Mapping[str, Any],
    sharing: Sharing,
    in_parts: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> dict[str, NodePart]:
    """What a running job holds of each node, of its ``job_resources``; empty where that is not told.

    Args:
        row: of ``squeue --json``.
        sharing: how parts are given.
        in_parts: of `held_in_parts`, for this job.
    """
    nodes = list(_allocated(row.get("job_resources")))
    cores = [count for _, count, _ in nodes]
    if sharing.by_cpu:
        # Which threads of a core it has is not told, only how many in all.
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
    """Count GPUs by the types that they are of.

    Args:
        amounts: by names of consumables; they are added here.
        name: of their node.
        gpus: their indices there.
        sharing: how parts are given.
    """
    types = sharing.gpu_types.get(name, ())
    for gpu in gpus:
        if gpu < len(types) and types[gpu]:
            amounts[types[gpu]] = amounts.get(types[gpu], 0.0) + 1.0


def held_in_parts(rows: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, list[int]]]:
    """GPUs of each node that nobody is given whole, since jobs use parts of them, by number of the job.

    They are told by index. Each counts for the one of these jobs that may run longest.

    Args:
        rows: of ``squeue --json``.
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
    """Name, cores and MB of each node: in 22.05 by sockets, since 23.11 as a list of allocations."""
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


def _cores(said: Any) -> int:
    if isinstance(said, dict):
        return sum("alloc" in str(state).lower() for state in said.values())
    some = said if isinstance(said, list) else ()
    return sum(isinstance(c, dict) and "ALLOCATED" in str(c.get("status")).upper() for c in some)


def unequal(
    rows: Sequence[Mapping[str, Any]], jobs: Iterable[JobRecord], sharing: Sharing
) -> dict[str, str]:
    """Nodes of which jobs hold otherwise than Slurm says in sum, and how.

    Args:
        rows: of the nodes.
        jobs: those that run hold parts of nodes.
        sharing: how parts are given.
    """
    held: dict[str, list[float]] = {}
    owners: dict[str, set[str]] = {}
    alone = set()
    names = sorted({name for sizes in sharing.partitions.values() for name in sizes.consumables})
    for job in jobs:
        amounts = job.holds(names)
        for i, name in enumerate(job.node_names):
            if job.spec.shared_with:
                owners.setdefault(name, set()).add(job.spec.user)
            if amounts is None:
                alone.add(name)
            else:
                known = held.setdefault(name, [0.0] * (3 + len(names)))
                held[name] = [a + b for a, b in zip(known, amounts[i].tolist(), strict=True)]
    found = {}
    for row in rows:
        name = str(row.get("name"))
        cpus = number(row.get("alloc_cpus"))
        if name not in sharing.nodes or name in alone or cpus is None:
            continue
        # Not told of a user that Slurm knows no name of.
        owner = row.get("owner")
        if owner and owners.get(name, set()) != {owner}:
            found[name] = f"no job there keeps others than those of {owner} away, Slurm says so"
            continue
        cores, memory, gpus, *others = held.get(name, [0.0] * (3 + len(names)))
        threads = 1 if sharing.by_cpu else max(1, whole(row.get("threads")))
        pairs = [("CPUs", cores * threads, cpus)]
        if sharing.memory:
            pairs.append(("MB", memory * MB_PER_GB, number(row.get("alloc_memory")) or 0.0))
        said = row.get("gres_used")
        in_parts = gpus_in_parts(said)
        pairs.append(("GPUs", gpus, (gpus_of(said) or 0.0) + len(in_parts)))
        used = used_of(said, name, sharing)
        add_types(used, name, in_parts, sharing)
        pairs += [(n, ours, used.get(n, 0.0)) for n, ours in zip(names, others, strict=True)]
        for unit, ours, theirs in pairs:
            if abs(ours - theirs) > 0.5:
                found[name] = f"jobs hold {ours:g} {unit}, Slurm says {theirs:g}"
                break
    return found
