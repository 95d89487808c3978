"""The workload model of Lublin and Feitelson (JPDC 63(11), 2003), for all jobs.

- Sizes follow a two-stage log-uniform distribution.
- The logarithm of runtimes follows a hyper-gamma distribution; its mixture depends on the size.
- The logarithm of gaps between arrivals follows a gamma distribution. Half-hour buckets with a
  daily cycle turn gaps into times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.generate.draws import above_zero, count_of, gamma_cdf, generator
from hpctwin.model import Workload

__all__ = ["lublin"]

FloatArray = npt.NDArray[np.float64]

# Constants of the model's "all jobs" set.
SERIAL, POWER_OF_TWO = 0.244, 0.576
SMALLEST_LOG2, BELOW_LARGEST_LOG2, FIRST_STAGE = 0.8, 2.5, 0.86
RUNTIME_A1, RUNTIME_B1, RUNTIME_A2, RUNTIME_B2 = 4.2, 0.94, 312.0, 0.03
MIXTURE_SLOPE, MIXTURE_OFFSET = -0.0054, 0.78
ARRIVAL_A, ARRIVAL_B = 10.2303, 0.4871
DAILY_A, DAILY_B = 8.1737, 3.9631
RUSH_TO_ALL = 1.0225
LONGEST_LOG_RUNTIME, LONGEST_LOG_GAP = 12.0, 13.0
BUCKETS, BUCKET_S, DAY_BEGINS = 48, 1800.0, 11


def lublin(
    *, jobs: int = 10_000, nodes: int = 256, load: float | None = None, seed: int = 0
) -> Workload:
    """Generate jobs of the Lublin–Feitelson model.

    Args:
        jobs: Number of jobs.
        nodes: Number of nodes of the cluster, at least 8; the model's sizes need that many.
        load: Offered load, to which arrivals are stretched; by default as the model gives it.
        seed: Seed of all draws.

    Raises:
        ConfigError: The value of an option is not valid.
    """
    rng = generator(seed)
    size = count_of("jobs", jobs)
    if count_of("nodes", nodes) < 8:
        raise ConfigError(f"nodes is {nodes}, the Lublin–Feitelson model needs at least 8")
    width = _sizes(rng, size, nodes)
    runtime = np.maximum(np.rint(_runtimes(rng, width)), 1)
    submit = np.floor(_arrivals(rng, size))
    if load is not None and submit[-1] > 0:
        offered = (width * runtime).sum() / (nodes * submit[-1])
        submit = np.floor(submit * offered / above_zero("load", load))
    return Workload.build(
        submit_s=submit, runtime_s=runtime, nodes=width, name="lublin", nodes_hint=nodes
    )


def _sizes(rng: np.random.Generator, size: int, nodes: int) -> FloatArray:
    largest = np.log2(nodes)
    middle = largest - BELOW_LARGEST_LOG2
    low = rng.uniform(SMALLEST_LOG2, max(middle, SMALLEST_LOG2), size)
    high = rng.uniform(max(middle, SMALLEST_LOG2), largest, size)
    log2 = np.where(rng.random(size) <= FIRST_STAGE, low, high)
    kind = rng.random(size)
    width = np.where(kind <= SERIAL + POWER_OF_TWO, 2.0 ** np.rint(log2), np.rint(2.0**log2))
    return np.clip(np.where(kind <= SERIAL, 1, width), 1, nodes)


def _runtimes(rng: np.random.Generator, width: FloatArray) -> FloatArray:
    short = np.clip(MIXTURE_SLOPE * width + MIXTURE_OFFSET, 0, 1)
    logs = np.full(len(width), np.inf)
    while (wrong := np.flatnonzero(logs > LONGEST_LOG_RUNTIME)).size:
        first = rng.random(len(wrong)) <= short[wrong]
        logs[wrong] = np.where(
            first,
            rng.gamma(RUNTIME_A1, RUNTIME_B1, len(wrong)),
            rng.gamma(RUNTIME_A2, RUNTIME_B2, len(wrong)),
        )
    runtime: FloatArray = np.exp(logs)
    return runtime


def _arrivals(rng: np.random.Generator, size: int) -> FloatArray:
    """Return submit times, in seconds since a midnight."""
    logs = np.full(size, np.inf)
    while (wrong := np.flatnonzero(logs > LONGEST_LOG_GAP)).size:
        logs[wrong] = rng.gamma(ARRIVAL_A, ARRIVAL_B, len(wrong))
    points = np.cumsum(np.exp(logs) / RUSH_TO_ALL)
    # A bucket of the day is worth points in proportion to the jobs that arrive in it.
    bucket = np.arange(DAY_BEGINS, DAY_BEGINS + BUCKETS)
    edges = np.arange(DAY_BEGINS, DAY_BEGINS + BUCKETS + 1, dtype=np.float64) - 0.5
    share = np.diff(gamma_cdf(edges, DAILY_A, DAILY_B))
    worth = np.empty(BUCKETS)
    worth[bucket % BUCKETS] = share / share.mean() * BUCKET_S
    paid = np.concatenate([[0.0], np.cumsum(worth)])
    days, rest = np.divmod(points, paid[-1])
    submit: FloatArray = days * 86_400 + np.interp(rest, paid, np.arange(BUCKETS + 1) * BUCKET_S)
    return submit
