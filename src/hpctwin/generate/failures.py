"""Jobs that fail: a seeded model of which do, and the risk as one who predicts may know it.

The probability that a job fails is logistic in what is known when it is submitted: long jobs, and those
that ask for much, fail more often. Which do is drawn. Who predicts from the same features is right about
the probability, and no more; no predictor from these features can do better.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.generate.draws import generator, within
from hpctwin.model import Workload

__all__ = ["failure_risk", "with_failures"]

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
