"""The 5,000 jobs of the PAS paper (Goyal and Pavithra, "Dynamic Adapting Scheduling for HPC", §IV).

The paper gives the kinds of attributes and the size of the machine, and no distributions. Here all are
uniform. Runtimes of 1 or 2 ms make the serial makespan about 7,500 ms, and demands of up to all there is put
FCFS without backfilling within some percent of its row in Table I (makespan 7,290 ms, mean wait 3,650 ms).

Jobs that fail: a seeded model of which do, and the risk as one who predicts may know it.

The probability that a job fails is logistic in what is known when it is submitted: long jobs, and those
that ask for much, fail more often. Which do is drawn. Who predicts from the same features is right about
the probability, and no more; no predictor from these features can do better.
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
    """Probability that each job fails, from its walltime and its demand.

    logit p = a + by_length · z(log walltime) + by_demand · z(demand), with z(x) = (x − mean) / standard
    deviation; demand is the sum of nodes and resources, each as a share of the most that any job asks for;
    a is such that the mean of p is ``share``.

    Args:
        workload: the jobs.
        share: of the jobs that fail, in the mean; 0 for none, below 1.
        by_length: how strongly the walltime counts.
        by_demand: how strongly the demand counts.

    Returns:
        Probabilities [jobs].

    Raises:
        ConfigError: a number is out of range.
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
    """The workload with jobs that fail at the end of their runtime.

    Args:
        workload: the jobs.
        share: of the jobs that fail, in the mean.
        by_length: how strongly the walltime counts; see `failure_risk`.
        by_demand: how strongly the demand counts.
        seed: of which fail.

    Raises:
        ConfigError: a number is out of range.
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
"""The machine of §IV."""


def pas_cluster(nodes: int = 5000) -> Cluster:
    """The machine of §IV; so many nodes that they never bind."""
    return Cluster.uniform(nodes=nodes, name="pas", resources=RESOURCES)


def pas(
    *,
    jobs: int = 5000,
    longest_ms: int = 2,
    most: float = 1.0,
    dependent: float = 0.2,
    seed: int = 0,
) -> Workload:
    """Jobs of one node each, all submitted at once, that share four resources.

    Args:
        jobs: how many.
        longest_ms: runtimes are whole milliseconds from 1 to this.
        most: a job asks of each resource for 1 up to this share of all there is.
        dependent: share of the jobs that depend (afterok) on one job, any with a smaller id.
        seed: of all that is drawn.

    Raises:
        ConfigError: an option has a value it cannot have.
    """
    rng = generator(seed)
    size = count_of("jobs", jobs)
    if not 0 < most <= 1:
        raise ConfigError(f"most is {most!r}, it must be above 0 and at most 1")
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
