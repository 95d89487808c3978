"""Slurm jobs on parts of nodes: the rules of allocation, and the jobs' requests.

Source:
    Manual pages sbatch(1), slurm.conf(5) and constres_of(5), 22.05; ``squeue --json`` of a Slurm
    22.05.8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctwin.formats.accounting.slurm_values import number, said
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.rms.slurm.listing.resources import (
    consumables_of,
    gpu_types,
    gpus_by_type,
    gpus_of,
    gres_asked,
    kinds_of_consumables,
    tres_of,
    types_by_index,
)
from hpctwin.rms.slurm.listing.values import whole, words

MB_PER_GB = 1024
_SMALL = 1e-6
_NOT_MODELED = (
    ("tres_per_socket", "resources per socket"), ("contiguous", "contiguous nodes"),
    ("core_spec", "specialized cores"), ("thread_spec", "specialized threads"),
    ("sockets_per_node", "sockets per node"),
    ("cores_per_socket", "cores per socket"), ("tasks_per_socket", "tasks per socket"),
    ("tasks_per_core", "tasks per core"), ("tasks_per_board", "tasks per board"),
)  # fmt: skip
"""Fields of a job whose requests are not modeled."""
_ELSE = (
    ("MaxCPUsPerNode", "UNLIMITED"), ("MaxCPUsPerSocket", "UNLIMITED"),
    ("SelectTypeParameters", "NONE"),
)  # fmt: skip
"""Partition settings that change the allocation of parts, with plain values."""


@dataclass(frozen=True)
class Sizes:
    """Largest sizes of the nodes that a job may get.

    Args:
        cores: Cores, or CPUs if these are allocated.
        gpus: GPUs.
        threads: CPUs per allocated unit: threads of a core, or 1.
        types: Existing types of GPUs.
        consumables: Types of each consumable, by name; empty if it has none.
        unused: Resources that jobs request but do not use up, and that each of the nodes has.
    """

    cores: float
    gpus: float
    threads: int
    types: frozenset[str] = frozenset()
    consumables: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sharing:
    """How Slurm allocates parts of nodes.

    Args:
        by_cpu: Whether single CPUs are allocated, not whole cores.
        memory: Whether memory is counted.
        partitions: Sizes of the nodes of each partition in which jobs share nodes.
        nodes: Names of these nodes.
        unused: Generic resources that jobs do not use up.
        count: Number of all nodes, shared or not.
        gpu_types: If there are several types of GPUs, the type of each GPU of each node by its
            index, as a consumable of nodes; empty for an untyped GPU.
    """

    by_cpu: bool
    memory: bool
    partitions: Mapping[str, Sizes]
    nodes: frozenset[str]
    unused: frozenset[str] = frozenset()
    count: int = 0
    gpu_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def how_shared(
    rows: Sequence[Mapping[str, Any]],
    members: Mapping[str, Collection[str]],
    partitions: Mapping[str, Mapping[str, str]],
    select: str,
    parameters: str,
    unused: frozenset[str] = frozenset(),
) -> tuple[Sharing | None, dict[str, str]]:
    """Return how Slurm allocates parts of nodes, and why partitions are not modeled.

    Args:
        unused: Generic resources that jobs do not use up.

    Returns:
        The rules, None if jobs have whole nodes; and the reason for each partition that is not
        modeled.
    """
    about = {str(row.get("name")): row for row in rows}
    words = set(re.split(r"[_,]", parameters.upper()))
    by_core = "CORE" in words
    gpus = {name: types_by_index(row.get("gres")) for name, row in about.items()}
    if len({kind for types in gpus.values() for kind in types}) < 2:
        gpus = {}
    found: dict[str, Sizes] = {}
    blind: dict[str, str] = {}
    for label, names in members.items():
        settings = partitions.get(label, {})
        over = settings.get("OverSubscribe", "NO")
        says = over.partition(":")[0]
        others = [key for key, plain in _ELSE if (said(settings.get(key)) or plain) != plain]
        nodes = [about[name] for name in names if name in about]
        threads = {max(1, whole(row.get("threads"))) for row in nodes}
        # FORCE:1 gives each core to one job, as NO does.
        if says in ("YES", "FORCE") and over != "FORCE:1":
            blind[label] = f"OverSubscribe={over}"
        elif settings.get("ExclusiveTopo", "NO") != "NO":
            blind[label] = "ExclusiveTopo: jobs have a part of the topology exclusively"
        elif "cons" not in select or says == "EXCLUSIVE" or all(_cpus(r) <= 1 for r in nodes):
            continue
        elif not by_core and "CPU" not in words:
            blind[label] = f"SelectTypeParameters={parameters or 'none'}"
        elif others:
            blind[label] = f"{others[0]}={settings[others[0]]}"
        elif len(threads) > 1:
            blind[label] = "its nodes have different threads per core"
        else:
            each = threads.pop() if by_core else 1
            types = {k for row in nodes for k in gpus.get(str(row.get("name")), ()) if k}
            kinds = {**kinds_of_consumables(nodes), **dict.fromkeys(types, frozenset[str]())}
            found[label] = Sizes(
                max(_cpus(row) for row in nodes) / each,
                max(gpus_of(row.get("gres")) or 0.0 for row in nodes),
                each,
                frozenset().union(*(gpu_types(row.get("gres")) for row in nodes)),
                {name: some for name, some in kinds.items() if name not in unused},
                frozenset(
                    n for n in unused if all(n in consumables_of(r.get("gres")) for r in nodes)
                ),
            )
    if not found:
        return None, blind
    shared = frozenset(name for label in found for name in members[label])
    memory = "MEMORY" in words
    return Sharing(not by_core, memory, found, shared, unused, len(rows), gpus), blind


def used_of(gres: Any, name: str, sharing: Sharing | None) -> dict[str, float]:
    """Return amounts of consumables in a text, and of GPU types if counted.

    Args:
        gres: Text of what a node has or has in use, or of what a job holds.
    """
    typed = sharing is not None and sharing.gpu_types.get(name)
    return {**consumables_of(gres), **(gpus_by_type(gres) if typed else {})}


def _cpus(row: Mapping[str, Any]) -> float:
    """Return the CPUs of a node that jobs may have.

    CPUs reserved for the system do not count.
    """
    return tres_of(row.get("tres")).get("cpu") or number(row.get("cpus")) or 0.0


def cores_of(row: Mapping[str, Any], sharing: Sharing | None) -> float | None:
    """Return a node's number of allocated units: cores, or CPUs."""
    if sharing is None or str(row.get("name")) not in sharing.nodes:
        return number(row.get("cpus"))
    return _cpus(row) / (1 if sharing.by_cpu else max(1, whole(row.get("threads"))))


def tasks_asked(
    rows: Sequence[Mapping[str, Any]], sharing: Sharing, sizes: Sizes, notes: list[str]
) -> dict[str, Any]:
    """Return a job's request as fields of `JobSpec`; the most of several parts.

    Args:
        rows: Rows of ``squeue --json``, one for each part of a heterogeneous job.
        notes: List to which approximations of the request are added.
    """
    first, *others = (_asked(row, sharing, sizes, notes) for row in rows)
    for other in others:
        more = {key: first[key] + other[key] for key in ("tasks", "nodes")}
        if any(first[key] != other[key] for key in first.keys() - more.keys()):
            notes.append("unequal parts")
        asks = (first["consumables"], other["consumables"])
        more["consumables"] = {
            n: max(one.get(n, 0.0) for one in asks) for n in {**asks[0], **asks[1]}
        }
        first = {key: more[key] if key in more else max(v, other[key]) for key, v in first.items()}
    return first


def _asked(
    row: Mapping[str, Any], sharing: Sharing, sizes: Sizes, notes: list[str]
) -> dict[str, Any]:
    """Return the request of a job, or of a part of it.

    Requests per node (``--mem``, ``--gpus-per-node``) or for the whole job (``--gpus``) are
    converted to tasks: each task is then all that the job has on a node.
    """
    tres = tres_of(row.get("tres_req_str"))
    tasks = max(1, whole(row.get("tasks")))
    cpus = max(tasks, int(tres.get("cpu", 0)) or whole(row.get("cpus")))
    each = math.ceil(cpus / tasks)
    least = max(1, int(tres.get("node", 0)))
    most = whole(row.get("max_nodes"))
    per_node = whole(row.get("tasks_per_node"))
    per_core = 1 if whole(row.get("threads_per_core")) == 1 else sizes.threads
    kinds = {"gpu": sizes.types, **sizes.consumables, **dict.fromkeys(sizes.unused, frozenset())}
    gres = {k: gres_asked(row.get(f"tres_per_{k}"), kinds, notes) for k in ("node", "job", "task")}
    gres = {k: {n: a for n, a in one.items() if n not in sizes.unused} for k, one in gres.items()}
    gpus = {k: one.pop("gpu", 0.0) for k, one in gres.items()}
    types = {
        k: {n: one.pop(n) for n in list(one) if n.startswith(GPU_TYPE)} for k, one in gres.items()
    }
    if any(types[k] and sum(types[k].values()) != gpus[k] for k in gpus):
        notes.append("GPUs of one type and of any type together")
    notes += list(gres["job"])
    notes += [what for key, what in _NOT_MODELED if _asks(row.get(key))]
    # Slurm also says ``user`` for a job in a partition with ``ExclusiveUser``.
    shared = (
        words(row.get("exclusive")) or words(row.get("shared")) or _whole_nodes(row, tres, sizes)
    )
    alone = not shared.isdisjoint({"NONE", "NODE", "MCS", "TOPO"})
    of_user = int("USER" in shared)
    notes += [f"exclusive nodes per {one.lower()}" for one in sorted(shared & {"MCS", "TOPO"})]
    memory = _Memory.asked(row, tres, least) if sharing.memory else _Memory()
    spread = "SPREAD_JOB" in words(row.get("flags")) and most != least and per_node != 1
    if spread:
        notes += _not_spread(gpus, memory, per_node, per_core, others=bool(gres["node"]))
        # Slurm itself reports that it may have as many nodes as tasks, or as there are.
        most = 0 if most >= min(tasks, sharing.count) else most
        nodes = 0
    else:
        nodes = _on_nodes(
            tasks, each, least, most, per_node, gpus, memory, sizes, per_core,
            others=bool(gres["node"]),
        )  # fmt: skip
    if nodes:
        # All that it has on a node is one task.
        here = math.ceil(tasks / nodes)
        cores = math.ceil(here * each / per_core - _SMALL)
        on_node = gpus["node"] or math.ceil(gpus["job"] / nodes - _SMALL) or gpus["task"] * here
        of_job = {n: math.ceil(a / nodes - _SMALL) for n, a in types["job"].items()}
        of_type = types["node"] or of_job or {n: a * here for n, a in types["task"].items()}
        if tasks % nodes or any(a % nodes for a in (gpus["job"], *types["job"].values())):
            notes.append("unequal shares of several nodes")
        return {
            "tasks": nodes,
            "nodes": nodes,
            "tasks_per_node": 1 if nodes > 1 else 0,
            "cores_per_task": float(cores),
            "gpus_per_task": float(on_node),
            "memory_gb_per_task": memory.of(cores * sizes.threads, on_node),
            "consumables": {
                **{n: a * here for n, a in gres["task"].items()},
                **gres["node"],
                **{n: float(a) for n, a in of_type.items()},
            },
            "exclusive": alone,
            "shared_with": of_user,
            "spread_job": False,
        }
    if most and most < tasks:
        notes.append("a maximum number of nodes")
    if per_node and tasks % per_node and not spread:
        # Slurm takes only nodes that fit this many tasks, even if one has fewer in the end.
        notes.append("a number of tasks that does not fill each node")
    together = per_core if each == 1 and not gpus["task"] else 1
    cores = math.ceil(each * together / per_core - _SMALL)
    count = math.ceil(tasks / together)
    return {
        "tasks": count,
        "nodes": min(least, count),
        "tasks_per_node": math.ceil(per_node / together),
        "cores_per_task": float(cores),
        "gpus_per_task": float(gpus["task"]),
        "memory_gb_per_task": memory.of(cores * sizes.threads, gpus["task"]),
        "consumables": {
            **{name: amount * together for name, amount in gres["task"].items()},
            **types["task"],
        },
        "exclusive": alone,
        "shared_with": of_user,
        "spread_job": spread,
    }


def _whole_nodes(
    row: Mapping[str, Any], asked: Mapping[str, float], sizes: Sizes
) -> frozenset[str]:
    """Return how a running job has its nodes if only JSON of 26.05 is known.

    That JSON says only *whole*. A job that has nodes for itself is given all their CPUs; a job that
    shares them with other jobs of its user is not.
    """
    about = row.get("job_resources")
    nodes = about.get("nodes") if isinstance(about, dict) else None
    if not isinstance(nodes, dict) or nodes.get("whole") is not True:
        return frozenset()
    more = tres_of(row.get("tres_alloc_str")).get("cpu", 0.0) - asked.get("cpu", 0.0)
    return frozenset({"NODE" if more >= sizes.threads else "USER"})


def _asks(value: Any) -> bool:
    """Return whether a job asks for something by a field: a number, a text or a flag."""
    return bool(number(value) if isinstance(value, dict) else value)


def _not_spread(
    gpus: Mapping[str, float], memory: _Memory, per_node: int, per_core: int, *, others: bool
) -> list[str]:
    """Return requests that cannot be given per task if the number of nodes is unknown."""
    found = []
    if memory.node or gpus["node"] or gpus["job"] or others:
        found.append("--spread-job with requests per node or per job")
    if per_node:
        # Slurm takes only nodes that fit the number on each, and gives it on all.
        found.append("--spread-job with tasks per node")
    if per_core > 1:
        found.append("--spread-job on cores with several threads")
    return found


@dataclass(frozen=True)
class _Memory:
    """Memory per node, CPU and GPU, in MB."""

    node: float = 0.0
    cpu: float = 0.0
    gpu: float = 0.0

    @classmethod
    def asked(cls, row: Mapping[str, Any], said: Mapping[str, float], least: int) -> _Memory:
        by_gpu = gpus_of(row.get("memory_per_tres"))
        if by_gpu is not None:
            return cls(gpu=by_gpu)
        by_cpu, by_node = number(row.get("memory_per_cpu")), number(row.get("memory_per_node"))
        if by_cpu:
            return cls(cpu=by_cpu)
        # Without a request, or with 0, it is all the memory of a node.
        return cls(node=by_node or said.get("mem", 0.0) / least)

    def of(self, cpus: float, gpus: float) -> float:
        """Return GB for these numbers of CPUs and GPUs on a node."""
        return (self.node + self.cpu * cpus + self.gpu * gpus) / MB_PER_GB


def _on_nodes(
    tasks: int,
    each: int,
    least: int,
    most: int,
    per_node: int,
    gpus: Mapping[str, float],
    memory: _Memory,
    sizes: Sizes,
    per_core: int,
    *,
    others: bool,
) -> int:
    """Return the exact number of nodes of a job; 0 if its tasks may be placed freely."""
    if most and most == least:
        return least
    # Slurm takes only nodes that fit the number of tasks on each.
    full = math.ceil(tasks / per_node) if per_node else 0
    if full >= least and tasks % full == 0:
        return full
    if not (memory.node or gpus["node"] or gpus["job"] or others):
        return 0
    # Slurm may spread it over more nodes, and then gives these amounts on each.
    cores = math.ceil(tasks * each / per_core - _SMALL)
    needed = [least, math.ceil(tasks / per_node) if per_node else 1]
    if sizes.cores:
        needed.append(math.ceil(cores / sizes.cores - _SMALL))
    if gpus["job"] and sizes.gpus:
        needed.append(math.ceil(gpus["job"] / sizes.gpus - _SMALL))
    return min(max(needed), tasks)
