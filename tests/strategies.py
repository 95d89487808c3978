"""Hypothesis strategies for clusters, workloads and the rules of a simulation.

Times are small whole seconds, so that events coincide often. Everything is drawn as plain integers
and choices from short lists with the simplest first, so that failures shrink to cases that can be
followed by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hpctwin.model import (
    MS_PER_S,
    Category,
    Cluster,
    Dependencies,
    DependencyKind,
    Workload,
)
from hpctwin.model.cluster.switches import Switch

__all__ = [
    "clusters",
    "crowded_workloads",
    "expectations",
    "numbers",
    "orders",
    "passed_workloads",
    "rules",
    "shared_clusters",
    "shared_workloads",
    "simple_workloads",
    "workloads",
]

USERS = ("ada", "ben", "cyd")
ACCOUNTS = ("chem", "phys")
QOS = ("high", "low")
SPEEDS = (1.0, 2.0, 0.5, 1.5, 0.7)
ORDERS = {
    "fcfs": lambda now, job: job.submit,
    "lcfs": lambda now, job: -job.submit,
    "sjf": lambda now, job: job.expected,
    "ljf": lambda now, job: -job.expected,
    "smallest": lambda now, job: job.nodes,
    "largest": lambda now, job: -job.nodes,
    "priority": lambda now, job: -job.priority - job.partition_priority - job.qos_priority,
    # Halves are exact, so that equal scores are equal in every implementation.
    "aging": lambda now, job: job.nodes - 0.5 * job.wait,
    "requeued_first": lambda now, job: -job.requeues,
}
"""Orderings whose scores are exact: ties are not decided by rounding."""


def numbers(draw: st.DrawFn, count: int, least: int, most: int) -> np.ndarray:
    """Whole numbers, least first; one choice to Hypothesis, which takes a millisecond for each of a list."""
    found = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
    return least + found.astype(np.int64) % (most - least + 1)


def times(longest: int = 50) -> st.SearchStrategy[int]:
    """Seconds; some values more often, so that things happen together."""
    return st.one_of(st.just(0), st.sampled_from((10, 20, 30)), st.integers(0, longest))


def orders() -> st.SearchStrategy[str]:
    """Names of `ORDERS`."""
    return st.sampled_from(list(ORDERS))


def _labels(values: Sequence[str | None]) -> Category:
    """A category without Polars, which takes longer than the simulation."""
    known = sorted({value for value in values if value is not None})
    codes = [-1 if value is None else known.index(value) for value in values]
    return Category(np.array(codes, np.int32), tuple(known))


# --- clusters ----------------------------------------------------------------------------------


@st.composite
def clusters(
    draw: st.DrawFn,
    *,
    max_nodes: int = 16,
    groups: bool = True,
    partitions: bool = True,
    resources: bool = True,
    maintenance: bool = True,
    outages: bool = True,
    cleanup: bool = False,
) -> Cluster:
    """Clusters with any of several groups, partitions, resources, maintenance, outages, cleaning up.

    What is given as False is left out. ``then`` of the failures is drawn if there are outages.
    """
    count = draw(st.integers(1, 3)) if groups else 1
    nodes = []
    for number in range(count):
        group: dict[str, Any] = {
            "name": f"g{number}",
            "count": draw(st.integers(1 if number else 2, max(2, max_nodes // count))),
        }
        if groups:
            group["speed"] = draw(st.sampled_from(SPEEDS))
            group["cores"] = draw(st.sampled_from((None, 8, 4)))
            group["gpus"] = draw(st.sampled_from((None, 2, 0)))
            group["memory_gb"] = draw(st.sampled_from((None, 32, 16)))
            group["features"] = draw(st.sampled_from(((), ("a",), ("a", "b"))))
            group["sockets"] = draw(st.sampled_from((None, None, 2)))
        nodes.append(group)
    names = [group["name"] for group in nodes]
    total = sum(group["count"] for group in nodes)
    content: dict[str, Any] = {"nodes": nodes}
    if partitions:
        content["partitions"] = draw(_partitions(names, total))
    if resources:
        content["resources"] = draw(
            st.dictionaries(st.sampled_from(("licence", "buffer")), st.integers(0, 4), max_size=2)
        )
    if maintenance:
        content["reservations"] = draw(st.lists(_maintenance(names, total), max_size=2))
    if outages:
        content["failures"] = {
            "outages": draw(st.lists(_outage(total), max_size=3)),
            "on_failure": draw(st.sampled_from(("requeue", "fail"))),
        }
    if cleanup:
        content["cleanup"] = draw(st.sampled_from((0, 0.4, 3, 20)))
    content["qos"] = {"high": 2}
    content["fairshare"] = {
        "by": draw(st.sampled_from(("user", "account"))),
        "half_life": 20,
        "shares": draw(st.sampled_from(({}, {"ada": 2}, {"phys": 3}))),
    }
    return Cluster.model_validate(content)


@st.composite
def _partitions(draw: st.DrawFn, groups: list[str], total: int) -> list[dict[str, Any]]:
    result = []
    for number in range(draw(st.integers(0, 3))):
        some = st.lists(st.sampled_from(groups), min_size=1, max_size=len(groups), unique=True)
        result.append(
            {
                "name": f"p{number}",
                "groups": draw(st.one_of(st.none(), some)),
                "min_nodes": draw(st.sampled_from((1, 1, 1, 1, 2))),
                "max_nodes": draw(st.sampled_from((None, None, total, max(1, total // 2)))),
                "max_walltime": draw(st.sampled_from((None, None, None, 40))),
                "max_jobs_per_user": draw(st.sampled_from((None, 1, 2))),
                "priority": draw(st.integers(0, 2)),
                # Jobs without a partition need a place to go.
                "default": number == 0,
            }
        )
    for partition in result:  # limits that contradict each other would only reject everything
        if partition["max_nodes"] is not None:
            partition["min_nodes"] = min(partition["min_nodes"], partition["max_nodes"])
    return result


@st.composite
def _maintenance(draw: st.DrawFn, groups: list[str], total: int) -> dict[str, Any]:
    start = draw(times())
    result: dict[str, Any] = {"start": start, "end": start + draw(st.integers(1, 30))}
    where = draw(st.sampled_from(("all", "groups", "nodes")))
    if where == "groups":
        result["groups"] = draw(st.lists(st.sampled_from(groups), min_size=1, unique=True))
    elif where == "nodes":
        first = draw(st.integers(0, total - 1))
        last = draw(st.integers(first, total - 1))
        single = draw(st.integers(0, total - 1))
        result["nodes"] = draw(st.sampled_from((f"{first}-{last}", f"{first}-{last},{single}")))
    return result


@st.composite
def _outage(draw: st.DrawFn, total: int) -> dict[str, int]:
    return {
        "node": draw(st.integers(0, total - 1)),
        "start": draw(times()),
        "duration": draw(st.sampled_from((1, 5, 10, 30, 1000))),
    }


# --- workloads ---------------------------------------------------------------------------------


@st.composite
def workloads(
    draw: st.DrawFn,
    cluster: Cluster,
    *,
    max_jobs: int = 30,
    dependencies: bool = True,
    cancellations: bool = True,
    resources: bool = True,
    per_node: bool = True,
) -> Workload:
    """Workloads for a cluster, with all that jobs can ask for; what is given as False is left out.

    Submit times tie often; there are jobs without length, of the whole machine, too wide, and with
    a runtime above their walltime.
    """
    total = cluster.node_count
    size = draw(st.integers(1, max_jobs))
    per_job = range(size)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return [draw(values) for _ in per_job]

    smallest = min(group.count for group in cluster.nodes)
    width = st.one_of(
        st.integers(1, smallest),  # narrow enough for any partition
        st.integers(1, total),
        st.sampled_from((1, 2, smallest, smallest, smallest, total, total + 1)),
    )
    runtime = column(times())
    slack = column(st.sampled_from((0, 0, 1, 5, 10, 30, -1, -10)))
    places = [None, *(partition.name for partition in cluster.partitions)]
    names = list(cluster.resources)
    return Workload.build(
        submit_s=column(times()),
        runtime_s=runtime,
        walltime_s=[max(1, r + s) for r, s in zip(runtime, slack, strict=True)],
        nodes=column(width),
        user=_labels(column(st.sampled_from((*USERS, None)))),
        account=_labels(column(st.sampled_from((*ACCOUNTS, None)))),
        partition=_labels(column(st.sampled_from(places))),
        qos=_labels(column(st.sampled_from((None, *QOS)))),
        features=_labels(
            column(st.sampled_from((None, None, None, None, "a", "a|b", "a&b", "(b|sockets=2)&a")))
        )
        if per_node and draw(st.integers(0, 3)) == 0
        else None,
        priority=column(st.integers(0, 2)),
        per_node={
            "cores": column(st.sampled_from((0, 0, 0, 0, 4, 8))),
            "gpus": column(st.sampled_from((0, 0, 0, 0, 0, 1))),
            "memory_gb": column(st.sampled_from((0, 0, 0, 0, 16, 32))),
        }
        if per_node and draw(st.booleans())
        else None,
        resources={
            # One more than there is, now and then.
            name: column(st.integers(0, cluster.resources[name]))
            if draw(st.integers(0, 4))
            else column(st.integers(0, cluster.resources[name] + 1))
            for name in names
        }
        if resources
        else None,
        dependencies=draw(_edges(size)) if dependencies else None,
        fails=column(st.sampled_from((False, False, False, True))) if draw(st.booleans()) else None,
        cancel_s=column(st.sampled_from((*[-1] * 12, 0, 5, 10, 20, 30, 60)))
        if cancellations and draw(st.booleans())
        else None,
    )


@st.composite
def shared_clusters(draw: st.DrawFn, **omitted: bool) -> Cluster:
    """Clusters of few nodes of which it is known how many cores they have; see `clusters`."""
    cluster = draw(clusters(max_nodes=6, **omitted))
    if any(group.cores is not None for group in cluster.nodes):
        return cluster
    first, *others = cluster.nodes
    return cluster.model_copy(update={"nodes": (first.model_copy(update={"cores": 8}), *others)})


@st.composite
def connected(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """A cluster whose nodes are at switches, and whose groups have weights."""
    count = cluster.node_count
    cuts = sorted(draw(st.sets(st.integers(1, count - 1), max_size=2))) if count > 1 else []
    edges = [0, *cuts, count]
    switches = [
        {"name": f"s{n}", "nodes": f"{first}-{last - 1}"}
        for n, (first, last) in enumerate(itertools.pairwise(edges))
    ]
    if len(switches) > 1 and draw(st.booleans()):
        top = draw(st.integers(2, len(switches)))
        switches.append({"name": "top", "switches": [f"s{n}" for n in range(top)]})
    groups = [
        group.model_copy(update={"weight": draw(st.sampled_from((0.0, 1.0, 2.5)))})
        for group in cluster.nodes
    ]
    made = [Switch.model_validate(switch) for switch in draw(st.permutations(switches))]
    return cluster.model_copy(update={"nodes": tuple(groups), "switches": tuple(made)})


@st.composite
def racked(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """A cluster of whose node groups some are in racks."""
    racks = st.sampled_from(((), ("rack=a",), ("rack=a", "ib"), ("rack=b",)))
    groups = [
        group.model_copy(update={"features": (*group.features, *draw(racks))})
        for group in cluster.nodes
    ]
    return cluster.model_copy(update={"nodes": tuple(groups)})


@st.composite
def stocked(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """A cluster of whose node groups some have consumables."""
    has = st.sampled_from(({}, {"fpga": 2}, {"scratch_gb": 10.5}, {"fpga": 1, "scratch_gb": 40}))
    groups = [group.model_copy(update={"consumables": draw(has)}) for group in cluster.nodes]
    if not any(group.consumables for group in groups):
        groups[0] = groups[0].model_copy(update={"consumables": {"fpga": 3}})
    return cluster.model_copy(update={"nodes": tuple(groups)})


@st.composite
def with_gpus(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """A cluster of which most nodes have several GPUs."""
    has = st.sampled_from((2, 2, 4, 3.5, 1, 0, None))
    groups = [
        group.model_copy(update={"gpus": draw(has), "cores": 16, "memory_gb": None})
        for group in cluster.nodes
    ]
    return cluster.model_copy(update={"nodes": tuple(groups)})


PARTS_OF_GPUS = (0.25, 0.5, 0.625, 0.75, 1, 2, 1.5, 0)
"""What tasks ask, where most are on parts of GPUs."""


TYPES_OF_GPUS: tuple[dict[str, int], ...] = (
    {"a": 1, "b": 1}, {"b": 2, "a": 2}, {"a": 2, "b": 1}, {"a": 2}, {"b": 1}, {},
)  # fmt: skip
"""What nodes have, by type."""


@st.composite
def with_types_of_gpus(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """A cluster with nodes that have GPUs of several types, and some of none."""
    groups = []
    for number, group in enumerate(cluster.nodes):
        types = draw(st.sampled_from(TYPES_OF_GPUS if number else TYPES_OF_GPUS[:3]))
        more = {
            "gpus": sum(types.values()) + draw(st.sampled_from((0, 0, 1))),
            "consumables": {f"gpu/{name}": count for name, count in types.items()},
            "cores": 16,
            "memory_gb": None,
        }
        groups.append(group.model_copy(update=more))
    return cluster.model_copy(update={"nodes": tuple(groups)})


TYPED_TASKS = (
    None,
    None,
    "1:cores=1:gpus=1:gpu/a=1",
    "2:cores=1:gpus=1",
    "1:cores=1:gpus=2:gpu/a=1:gpu/b=1",
    "1:cores=1:gpus=0.5:gpu/b=0.5+1:cores=1:gpus=1:gpu/a=1",
)
"""Further kinds of tasks that ask for GPUs of types."""


@st.composite
def typed_workloads(
    draw: st.DrawFn, cluster: Cluster, *, several: bool, gpus: tuple[float, ...], **what: Any
) -> Workload:
    """As `shared_workloads`, of jobs that ask for GPUs of types ``a`` and ``b``, of both, or of any."""
    plain = [group.model_copy(update={"consumables": {}}) for group in cluster.nodes]
    other = cluster.model_copy(update={"nodes": tuple(plain)})
    workload = draw(shared_workloads(other, gpus=gpus, **what))
    asked = workload.chunks["gpus_per_task"]
    types = {name: np.zeros(len(workload)) for name in cluster.gpu_types}
    for row, count in enumerate(asked.tolist()):
        ways = [(), *((name,) for name in types), *([tuple(types)] if count == len(types) else [])]
        for name in (way := draw(st.sampled_from(ways))):
            types[name][row] = count / len(way)
    kinds = [text for text in TYPED_TASKS if text is None or {"gpu/a", "gpu/b"} <= {*types}]
    tasks = workload.chunks["tasks"]
    more = Category.of([draw(st.sampled_from(kinds)) if several and n else None for n in tasks])
    nodes = np.where((more.codes >= 0) & (tasks > 0), 1, workload.nodes).astype(np.int64)
    return workload.replace(consumables=types, more_tasks=more, nodes=nodes)


MORE_TASKS = (
    None,
    None,
    "1",
    "2:cores=4",
    "1:cores=8",
    "3:cores=0.5:memory_gb=2.5",
    "1:cores=1:gpus=1",
    "1:cores=2+2:cores=1:memory_gb=4",
    "1:cores=0:memory_gb=16:gpus=0.25+1:cores=4+1:cores=3",
)
"""Further kinds of tasks."""


@st.composite
def shared_workloads(
    draw: st.DrawFn,
    cluster: Cluster,
    *,
    owners: bool = False,
    several: bool = False,
    grouped: bool = False,
    spread: bool = False,
    gpus: tuple[float, ...] = (0, 0, 0, 0, 0, 0, 1, 0.25),
    **omitted: Any,
) -> Workload:
    """Workloads of which most jobs ask for tasks; see `workloads`. Amounts are exact in binary.

    Where nodes have consumables, jobs ask for them. With ``owners`` some share nodes with jobs of their
    user or account only; with ``several`` tasks of many are of several kinds, with ``grouped`` those of
    many lie on nodes of one rack, with ``spread`` many are on as many nodes as they can. Each task asks for
    one of ``gpus``.
    """
    whole = draw(workloads(cluster, **omitted))
    size = len(whole)

    def column(*values: float) -> np.ndarray:
        return np.array([draw(st.sampled_from(values)) for _ in range(size)], float)

    tasks = column(1, 1, 1, 2, 2, 3, 4, 6, 0)
    tasks[0] = max(tasks[0], 1)
    more = Category.unknown(size)
    if several:
        uses = {"fpga": "1:cores=1:fpga=1", "scratch_gb": "2:cores=0:scratch_gb=2.5+1:cores=2"}
        kinds = (*MORE_TASKS, *(uses[name] for name in cluster.consumables))
        texts = [draw(st.sampled_from(kinds)) if count else None for count in tasks]
        more = Category.of(texts)
    nodes = np.where(more.codes >= 0, 1, np.minimum(column(1, 1, 1, 2, 3), np.maximum(tasks, 1)))
    return whole.replace(
        nodes=np.where(tasks > 0, nodes, whole.nodes).astype(np.int64),
        more_tasks=more,
        group_by=Category.of(
            [draw(st.sampled_from((None, "rack"))) if grouped and count else None for count in tasks]
        ),
        consumables={
            name: column(0, 0, 0, 1, 0.5, 4) if name == "scratch_gb" else column(0, 0, 1, 1, 2)
            for name in cluster.consumables
        },
        chunks={
            "tasks": tasks,
            "cores_per_task": column(1, 2, 1, 4, 3, 0.5, 8),
            "memory_gb_per_task": column(0, 0, 0, 4, 2.5, 16),
            "gpus_per_task": column(*gpus),
            "tasks_per_node": column(0, 0, 0, 1, 2),
            "exclusive": column(0, 0, 0, 0, 1),
            "shared_with": column(0, 0, 0, 1, 2) if owners else np.zeros(size),
            "spread_job": column(0, 1) * (tasks > 0) if spread else np.zeros(size),
        },
    )  # fmt: skip


@st.composite
def crowded_workloads(
    draw: st.DrawFn, max_jobs: int = 30, min_jobs: int = 1, *, owners: bool = False
) -> Workload:
    """Many small jobs for a few nodes of 8 cores and 16 GB: several lie on a node, and others wait for it.

    With ``owners`` they are of three users, and some share nodes with those of their user only.
    """
    job = st.tuples(
        st.integers(0, 20),
        st.integers(1, 30),
        st.sampled_from((0, 0, 10)),
        st.sampled_from((1, 1, 1, 2, 3)),
        st.sampled_from((1, 2, 3, 4, 6)),
        st.sampled_from((0, 0, 2, 5)),
    )
    jobs = draw(st.lists(job, min_size=min_jobs, max_size=max_jobs))
    submit, runtime, slack, tasks, cores, memory = zip(*jobs, strict=True)
    size = len(jobs)
    user, apart = None, [0] * size
    if owners:
        names = draw(st.lists(st.sampled_from(("a", "b", "c")), min_size=size, max_size=size))
        apart = draw(st.lists(st.sampled_from((0, 0, 1)), min_size=size, max_size=size))
        user = Category.of(names)
    return Workload.build(
        submit_s=submit,
        runtime_s=runtime,
        walltime_s=[r + s for r, s in zip(runtime, slack, strict=True)],
        nodes=[1] * size,
        user=user,
        chunks={
            "tasks": tasks,
            "cores_per_task": cores,
            "memory_gb_per_task": memory,
            "shared_with": apart,
        },
    )


@st.composite
def passed_workloads(draw: st.DrawFn, nodes: int) -> Workload:
    """Nodes of 8 cores, nearly full, a wide job that waits for long, and small ones that may pass it."""
    full = 8 * nodes - draw(st.integers(1, 4))
    small = draw(st.integers(15, 30))
    count = full + 1 + small
    length = np.concatenate([numbers(draw, full, 20, 70), [10], numbers(draw, small, 1, 8)])
    cores = np.ones(count)
    cores[full] = draw(st.sampled_from((8, 6, 5)))
    return Workload.build(
        submit_s=np.concatenate([np.zeros(full), [1], 2 + numbers(draw, small, 0, 40)]),
        runtime_s=np.maximum(length - numbers(draw, count, 0, 20), 1),
        walltime_s=length,
        nodes=np.ones(count),
        chunks={"tasks": np.ones(count), "cores_per_task": cores},
    )


@st.composite
def _edges(draw: st.DrawFn, size: int) -> Dependencies:
    """Each job may wait for jobs of lower rows, so that there is no cycle.

    The rows are those before sorting by submit time: a job may well be submitted before the one
    that it waits for.
    """
    if size < 2:
        return Dependencies.none()
    edges = []
    for _ in range(draw(st.integers(0, min(size, 8)))):
        job = draw(st.integers(1, size - 1))
        on = draw(st.integers(0, job - 1))
        kind = draw(st.sampled_from(DependencyKind))
        delay = draw(st.sampled_from((0, 0, 5, 10)))
        edges.append((job, on, kind, delay * MS_PER_S))
    return Dependencies.of(edges)


@st.composite
def simple_workloads(draw: st.DrawFn, nodes: int = 8, max_jobs: int = 60) -> Workload:
    """Workloads without extras, for `Cluster.uniform` of so many nodes; no job is too wide."""
    # Tuples in one list shrink by whole jobs.
    job = st.tuples(
        times(),
        times(),
        st.sampled_from((0, 0, 1, 5, 10, 30, -1, -10)),
        st.one_of(st.integers(1, nodes), st.sampled_from((1, nodes))),
    )
    jobs = draw(st.lists(job, min_size=1, max_size=max_jobs))
    submit, runtime, slack, width = zip(*jobs, strict=True)
    return Workload.build(
        submit_s=submit,
        runtime_s=runtime,
        walltime_s=[max(1, r + s) for r, s in zip(runtime, slack, strict=True)],
        nodes=width,
    )


# --- how to simulate ---------------------------------------------------------------------------


@st.composite
def rules(draw: st.DrawFn, cluster: Cluster | None = None) -> dict[str, Any]:
    """Keyword arguments for the reference, but for the orderings (`orders`) and predictions.

    ``spread`` and outages do not come together: which nodes of a pool ``spread`` takes is not
    written down to the single node, and an outage would make it matter.
    """
    placements = ["first_fit", "best_fit"]
    if cluster is None or not cluster.failures.outages:
        placements.append("spread")
    backfill = draw(st.sampled_from(("easy", "none", "first-fit", "conservative")))
    return {
        "backfill": backfill,
        "reservations": draw(st.sampled_from((1, 2, 5))) if backfill == "easy" else 1,
        "placement": draw(st.sampled_from(placements)),
        "overrun": draw(st.sampled_from(("terminate", "continue"))),
        "on_dependency_failure": draw(st.sampled_from(("cancel", "hold"))),
    }


@st.composite
def expectations(draw: st.DrawFn, workload: Workload) -> list[int] | None:
    """Predicted runtimes in ms, at most the walltime; None for no predictor."""
    if not draw(st.booleans()):
        return None
    return [
        min(int(walltime), draw(st.sampled_from((1, 2, 5, 10, 20, 30))) * MS_PER_S)
        for walltime in workload.walltime_ms
    ]
