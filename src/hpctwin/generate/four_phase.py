"""The four-phase workload of the SchedTwin paper (arXiv 2512.18894, §4.1)."""

from __future__ import annotations

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.generate.draws import above_zero, generator
from hpctwin.model import Workload

__all__ = ["PHASES", "four_phase"]

PHASES = (
    (25, (2, 4), (60, 180)),
    (35, (16, 20), (500, 700)),
    (40, (6, 8), (200, 300)),
    (50, (2, 4), (60, 180)),
)
"""Jobs, range of nodes, range of walltimes in seconds of each phase.

The phases are warm-up, burst, steady phase and tail.
"""


def four_phase(
    *,
    interval_s: float = 5.0,
    shortest_run: float = 1.0,
    longest_run: float = 1.0,
    time_scale: float = 1.0,
    seed: int = 0,
) -> Workload:
    """Generate 150 jobs, one every few seconds, for a cluster of 32 nodes.

    The paper gives walltimes but no runtimes. Runtimes are a share of the walltime, uniform between
    two bounds; by default all of it.

    Args:
        interval_s: Time between submissions, in seconds.
        shortest_run: Minimum share of the walltime that a job runs.
        longest_run: Maximum share of the walltime that a job runs.
        time_scale: Factor of all times, for short tests.
        seed: Seed of sizes and times, which are uniform in their ranges.

    Raises:
        ConfigError: The value of an option is not valid.
    """
    rng = generator(seed)
    scale = above_zero("time_scale", time_scale)
    if not 0 < shortest_run <= longest_run:
        raise ConfigError(
            f"shortest_run is {shortest_run!r} and longest_run {longest_run!r}; "
            "they must be above 0, the first not above the second"
        )
    nodes = np.concatenate([rng.integers(low, high + 1, n) for n, (low, high), _ in PHASES])
    walltime = np.concatenate([rng.integers(low, high + 1, n) for n, _, (low, high) in PHASES])
    share = rng.uniform(shortest_run, longest_run, len(nodes))
    return Workload.build(
        submit_s=np.arange(len(nodes)) * above_zero("interval_s", interval_s) * scale,
        runtime_s=walltime * share * scale,
        walltime_s=walltime * scale,
        nodes=nodes,
        name="four-phase",
        nodes_hint=32,
    )
