"""Poisson arrivals: a plain workload for experiments."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.generate.draws import above_zero, choice, count_of, generator, within
from hpctwin.model import Category, Workload

__all__ = ["poisson"]


def poisson(
    *,
    jobs: int = 1000,
    nodes: int = 128,
    load: float = 0.8,
    mean_runtime_s: float = 3600.0,
    runtimes: Literal["exponential", "lognormal"] = "lognormal",
    sigma: float = 1.2,
    power_of_two: float = 0.75,
    overestimate: float = 3.0,
    users: int = 32,
    seed: int = 0,
) -> Workload:
    """Generate jobs that arrive independently of each other.

    Args:
        jobs: Number of jobs.
        nodes: Number of nodes of the cluster; widths are log-uniform from 1 to all of them.
        load: Offered load, sum(runtime · nodes) / (nodes · span).
        mean_runtime_s: Mean runtime, in seconds; runtimes are at least 1 s.
        runtimes: Distribution of runtimes.
        sigma: Standard deviation of the logarithm of lognormal runtimes.
        power_of_two: Share of the jobs whose width is rounded to a power of two.
        overestimate: f of the f-model: walltimes are uniform in [1, 1 + f] times the runtime
            (Mu'alem and Feitelson, TPDS 2001), rounded up to whole minutes; 0 for exact ones.
        users: Number of users; the k-th is about 1/k as busy as the first.
        seed: Seed of all draws.

    Raises:
        ConfigError: The value of an option is not valid.
    """
    rng = generator(seed)
    size = count_of("jobs", jobs)
    widest = count_of("nodes", nodes)
    if runtimes not in ("exponential", "lognormal"):
        raise ConfigError(f"runtimes is {runtimes!r}; it must be exponential or lognormal")
    mean = above_zero("mean_runtime_s", mean_runtime_s)
    log_width = rng.uniform(0, np.log2(widest + 1), size)
    rounded = rng.random(size) < within("power_of_two", power_of_two, 0, 1)
    np.floor(log_width, out=log_width, where=rounded)
    width = np.exp2(log_width, out=log_width)
    np.clip(np.floor(width, out=width), 1, widest, out=width)
    if runtimes == "exponential":
        runtime = rng.exponential(mean, size)
    else:
        spread = above_zero("sigma", sigma)
        runtime = rng.lognormal(np.log(mean) - spread**2 / 2, spread, size)
    np.maximum(np.rint(runtime, out=runtime), 1, out=runtime)
    gap = (width * runtime).mean() / (widest * above_zero("load", load))
    submit = rng.exponential(gap, size)
    np.floor(np.cumsum(submit, out=submit), out=submit)
    submit -= submit[0]
    walltime = rng.random(size)
    walltime *= within("overestimate", overestimate, 0, 1e6)
    walltime += 1
    walltime *= runtime
    if overestimate:
        walltime /= 60
        np.ceil(walltime, out=walltime)
        walltime *= 60
    busy = 1 / np.arange(1, count_of("users", users) + 1)
    user = choice(rng, busy, size)
    user += 1
    return Workload.build(
        submit_s=submit,
        runtime_s=runtime,
        walltime_s=walltime,
        nodes=width,
        user=Category.of(user),
        name="poisson",
        nodes_hint=widest,
    )
