"""The 5,000 jobs of the PAS paper (Goyal and Pavithra, "Dynamic Adapting Scheduling for HPC", §IV).

The paper gives the kinds of attributes and the size of the machine, and no distributions. Here all are
uniform. Runtimes of 1 or 2 ms make the serial makespan about 7,500 ms, and demands of up to all there is put
FCFS without backfilling within some percent of its row in Table I (makespan 7,290 ms, mean wait 3,650 ms).
"""

from __future__ import annotations

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.generate.draws import count_of, generator, within
from hpctwin.model import Cluster, Dependencies, DependencyKind, Workload

__all__ = ["RESOURCES", "pas", "pas_cluster"]

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
