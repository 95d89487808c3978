"""Who is asked."""

from __future__ import annotations

from typing import Any

import pytest

from hpctwin import Cluster, Workload
from tests.by_hand import Run, as_cluster
from tests.engine.adapter import run_engine
from tests.reference import ReferenceJob, simulate_reference


@pytest.fixture(params=["reference", "engine"])
def run(request: pytest.FixtureRequest) -> Run:
    """Simulates by the plain reference, or by the engine."""
    simulate = {"reference": simulate_reference, "engine": run_engine}[request.param]

    def run(workload: Workload, cluster: Cluster | int, **how: Any) -> list[ReferenceJob]:
        return simulate(workload, as_cluster(cluster), **how)

    return run
