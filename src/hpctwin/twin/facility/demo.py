"""A demo facility: two emulated clusters, and jobs for the queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin.rms.gate import JobRequest
from hpctwin.twin.emulated.process import PATIENCE_S, emulated_process
from hpctwin.twin.facility.service import LiveFacility

__all__ = ["CLUSTERS", "demo_facility", "demo_requests"]

CLUSTERS: dict[str, dict[str, Any]] = {
    "north": {"nodes": 32},
    "south": {"nodes": 48, "factor": 1.5},
}
"""Settings of each cluster by its name, as in YAML; both also have local jobs."""


@contextmanager
def demo_facility(
    folder: Path, *, speed: float = 600.0, seed: int = 0, strategy: str = "sgs-t"
) -> Iterator[LiveFacility]:
    """Run two emulated clusters as processes, and yield the facility's configuration.

    The processes end with the context.

    Args:
        folder: Folder of the sockets and the queue.
        speed: Seconds of the clusters' clocks per second.
        seed: Seed of the clusters' local jobs.
        strategy: Strategy that chooses a cluster for each job.
    """
    addresses = {name: folder / f"{name}.sock" for name in CLUSTERS}
    with ExitStack() as stack:
        for number, (name, about) in enumerate(CLUSTERS.items()):
            process = emulated_process(
                addresses[name],
                "--name", name, "--nodes", str(about["nodes"]), "--speed", f"{speed:g}",
                "--workload", "four-phase", "--seed", str(2 * seed + number), "--history",
            )  # fmt: skip
            stack.enter_context(process)
        yield LiveFacility.model_validate(
            {
                "facility": {
                    "name": "demo",
                    "clusters": [{"name": name, **about} for name, about in CLUSTERS.items()],
                },
                "sites": {
                    name: {
                        "manager": {
                            "kind": "emulated",
                            "address": str(address),
                            "timeout": PATIENCE_S,
                        }
                    }
                    for name, address in addresses.items()
                },
                "queue": str(folder / "queue.sqlite"),
                "strategy": strategy,
                "every": 0.1,
            }
        )


def demo_requests(count: int, seed: int = 0) -> list[JobRequest]:
    """Return random jobs of 1 to 24 nodes and 5 minutes to 2 hours."""
    rng = np.random.default_rng(seed)
    return [
        JobRequest(
            key=f"job-{number + 1}",
            nodes=int(rng.integers(1, 25)),
            walltime_s=float(60 * rng.integers(5, 121)),
            user=f"user{rng.integers(1, 6)}",
        )
        for number in range(count)
    ]
