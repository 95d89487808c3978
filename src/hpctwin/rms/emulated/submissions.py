"""Endless submissions of users to an emulated cluster."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster
from hpctwin.model.cluster.cluster import Partition
from hpctwin.rms.emulated.agenda import Arrival
from hpctwin.rms.records.records import JobSpec

MAX_PENDING = 300
"""Number of pending jobs above which users submit no further job."""

USERS, ACCOUNTS = 12, 4
MEAN_RUNTIME_S, SIGMA = 1800.0, 1.0
SHORTEST_S, LONGEST_S = 60.0, 4 * 3600.0
WALLTIME_STEP_S = 300.0
WIDEST_PART = 4
"""The widest job requests the nodes of its partition divided by this."""
AT_FIRST = 2.5
"""Nodes requested at the start, as a multiple of the cluster's nodes."""


def endless_arrivals(
    machine: Cluster, *, load: float = 0.9, seed: int = 0, start_s: float = 0.0
) -> Iterator[Arrival]:
    """Yield jobs in order of submission, without end and at a constant load.

    The cluster is full from the start. From then on, each job is followed by a pause in which the
    cluster can do the job's work at this load, so the queue stays in balance. If the nodes have
    cores, half of the jobs share a node.

    Args:
        machine: Nodes and partitions, whose limits the jobs respect.
        load: Offered load, work divided by capacity.
        seed: Seed of all draws.
        start_s: Time of the first submission.

    Raises:
        ConfigError: The load is not a number above 0, or no job fits into a partition.
    """
    if not (math.isfinite(load) and 0 < load <= 10):
        raise ConfigError(f"load is {load:g}; it must be above 0, and 10 at most")
    partitions = [(one, _count(machine, one)) for one in machine.partitions] or [
        (Partition(name=""), machine.node_count)
    ]
    for one, count in partitions:
        if one.min_nodes > count or (one.max_walltime or math.inf) < SHORTEST_S:
            raise ConfigError(f"partition {one.name}: generated jobs do not fit into its limits")
    return _each(machine, partitions, load, seed, start_s)


def _each(
    machine: Cluster, partitions: list[tuple[Partition, int]], load: float, seed: int, now_s: float
) -> Iterator[Arrival]:
    draws = random.Random(f"{seed} submissions")
    cores = min(int(group.cores or 0) for group in machine.nodes)
    requested = 0.0
    for number in itertools.count(1):
        partition, count = draws.choice(partitions)
        runtime_s, walltime_s = _times(draws, partition)
        user = int((USERS + 1) ** draws.random())
        about = {
            "id": str(number), "submit_s": round(now_s, 3), "walltime_s": walltime_s,
            "user": f"user{user}", "account": f"project{user % ACCOUNTS + 1}",
            "partition": partition.name,
        }  # fmt: skip
        if cores > 1 and draws.random() < 0.5:
            tasks = round(2 ** draws.uniform(0, math.log2(cores)))
            nodes = tasks / cores
            spec = JobSpec(nodes=1, tasks=tasks, cores_per_task=1.0, **about)
        else:
            nodes = _width(draws, partition, count)
            spec = JobSpec(nodes=nodes, **about)
        yield Arrival(spec, runtime_s, None)
        requested += nodes
        if requested > AT_FIRST * machine.node_count:
            pause_s = nodes * runtime_s / (machine.node_count * load)
            now_s += draws.expovariate(1 / pause_s)


def _count(machine: Cluster, partition: Partition) -> int:
    groups = [g for g in machine.nodes if partition.groups is None or g.name in partition.groups]
    return sum(group.count for group in groups)


def _times(draws: random.Random, partition: Partition) -> tuple[float, float]:
    """Return the runtime and the walltime of a job, in seconds."""
    limit_s = min(LONGEST_S, partition.max_walltime or math.inf)
    drawn_s = draws.lognormvariate(math.log(MEAN_RUNTIME_S) - SIGMA**2 / 2, SIGMA)
    runtime_s = round(min(max(drawn_s, SHORTEST_S), limit_s))
    steps = math.ceil(runtime_s * draws.uniform(1, 3) / WALLTIME_STEP_S)
    return runtime_s, min(max(steps * WALLTIME_STEP_S, runtime_s), limit_s)


def _width(draws: random.Random, partition: Partition, count: int) -> int:
    """Return the number of whole nodes of a job; small numbers and powers of two are common."""
    widest = max(min(count // WIDEST_PART, partition.max_nodes or count), partition.min_nodes)
    power = draws.uniform(0, math.log2(widest + 1))
    width = int(2 ** (int(power) if draws.random() < 0.75 else power))
    return min(max(width, partition.min_nodes), widest)
