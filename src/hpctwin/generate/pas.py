"""The 5,000 jobs of the PAS paper, and a model of failing jobs.

The paper (Goyal and Pavithra, "Dynamic Adapting Scheduling for HPC", §IV) gives the kinds of
attributes and the size of the cluster, and no distributions. Here all are uniform. Runtimes of 1 or
2 ms make the serial makespan about 7,500 ms. With demands of up to all there is, FCFS without
backfilling is within some percent of its row in Table I (makespan 7,290 ms, mean wait 3,650 ms).

The probability that a job fails is logistic in what is known at its submission: long jobs, and jobs
with large demands, fail more often. The failing jobs are drawn by a seed. A predictor that uses the
same features can know this probability, and no predictor from these features can do better.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.generate.draws import count_of, generator, within
from hpctwin.model import Cluster, Dependencies, DependencyKind, Workload

__all__ = ["RESOURCES", "failure_risk", "pas", "pas_cluster", "with_failures"]

FloatArray = npt.NDArray[np.float64]


def failure_risk(
    workload: Workload, share: float = 0.05, *, by_length: float = 1.0, by_demand: float = 1.0
) -> FloatArray:
    """Return the probability that each job fails, from its walltime and demand.

    logit p = a + by_length · z(log walltime) + by_demand · z(demand), with z(x) = (x − mean) /
    standard deviation. The demand is the sum of nodes and resources, each as a share of the largest
    request of any job. The constant a makes the mean of p equal to ``share``.

    Args:
        workload: The jobs.
        share: Mean share of failing jobs; 0 for none, below 1.
        by_length: Weight of the walltime.
        by_demand: Weight of the demand.

    Returns:
        Probabilities [jobs].

    Raises:
        ConfigError: A number is out of range.
    """
    mean = within("share", share, 0, 0.99)
    for name, weight in (("by_length", by_length), ("by_demand", by_demand)):
        within(name, weight, -100, 100)
    if mean == 0 or not len(workload):
        return np.zeros(len(workload))
    demand = workload.nodes / workload.nodes.max()
    for amount in workload.resources.values():
        demand = demand + amount / max(1, int(amount.max()))
    pull = by_length * _standard(np.log(workload.walltime_ms)) + by_demand * _standard(demand)
    low, high = -60.0 - np.abs(pull).max(), 60.0 + np.abs(pull).max()
    for _ in range(80):
        middle = (low + high) / 2
        if _logistic(middle + pull).mean() < mean:
            low = middle
        else:
            high = middle
    return _logistic((low + high) / 2 + pull)


def with_failures(
    workload: Workload,
    share: float = 0.05,
    *,
    by_length: float = 1.0,
    by_demand: float = 1.0,
    seed: int = 0,
) -> Workload:
    """Return the workload with jobs that fail at the end of their runtime.

    Args:
        workload: The jobs.
        share: Mean share of failing jobs.
        by_length: Weight of the walltime; see `failure_risk`.
        by_demand: Weight of the demand.
        seed: Seed of the draw of failing jobs.

    Raises:
        ConfigError: A number is out of range.
    """
    risk = failure_risk(workload, share, by_length=by_length, by_demand=by_demand)
    return workload.replace(fails=generator(seed).random(len(workload)) < risk)


def _standard(values: FloatArray) -> FloatArray:
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))


def _logistic(x: FloatArray) -> FloatArray:
    made: FloatArray = 1 / (1 + np.exp(-np.clip(x, -500, 500)))
    return made


RESOURCES = {"cpu": 100, "memory_mb": 16_000, "disk_mbps": 1000, "network_mbps": 1000}
"""Resources of the cluster of §IV."""


def pas_cluster(nodes: int = 5000) -> Cluster:
    """Return the cluster of §IV, with enough nodes that they never limit jobs."""
    return Cluster.uniform(nodes=nodes, name="pas", resources=RESOURCES)


def pas(
    *,
    jobs: int = 5000,
    longest_ms: int = 2,
    most: float = 1.0,
    dependent: float = 0.2,
    seed: int = 0,
) -> Workload:
    """Generate jobs of one node, all submitted at once, that share four resources.

    Args:
        jobs: Number of jobs.
        longest_ms: Longest runtime; runtimes are whole milliseconds from 1.
        most: Maximum share of each resource that a job requests; requests start at 1.
        dependent: Share of the jobs that depend (afterok) on one job, any with a smaller id.
        seed: Seed of all draws.

    Raises:
        ConfigError: The value of an option is not valid.
    """
    rng = generator(seed)
    size = count_of("jobs", jobs)
    if not 0 < most <= 1:
        raise ConfigError(f"most is {most!r}; it must be above 0 and at most 1")
    waits = np.flatnonzero(rng.random(size) < within("dependent", dependent, 0, 1))
    waits = waits[waits > 0]
    edges = Dependencies(
        job=waits,
        on=rng.integers(0, waits),
        kind=np.full(len(waits), DependencyKind.AFTEROK, np.int8),
        delay_ms=np.zeros(len(waits), np.int64),
    )
    runtime = rng.integers(1, count_of("longest_ms", longest_ms) + 1, size) / 1000
    return Workload.build(
        submit_s=np.zeros(size),
        runtime_s=runtime,
        walltime_s=runtime,
        nodes=np.ones(size),
        priority=rng.integers(1, 11, size),
        resources={
            name: rng.integers(1, int(amount * most) + 1, size)
            for name, amount in RESOURCES.items()
        },
        dependencies=edges,
        name="pas",
    )
