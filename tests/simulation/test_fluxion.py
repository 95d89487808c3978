"""Starts by Flux's scheduler, Fluxion, when it drove the engine, held against ours.

`fluxion_starts.json` was recorded with the queue policies of flux-sched 0.54.0 as a ``--scheduler``: who may
pass is decided by its qmanager, what fits by its planners, nodes with the lowest numbers first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, simulate
from hpctwin.model import Workload
from hpctwin.simulation.schedulers import drive
from tests.reference.particular_nodes import by_particular_nodes

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "fluxion_starts.json").read_text())
NODES: int = RECORDED["nodes"]


@pytest.fixture(scope="module")
def jobs() -> Workload:
    return Workload.build(
        nodes=RECORDED["job_nodes"],
        **{name: RECORDED[name] for name in ("submit_s", "walltime_s", "runtime_s")},
    )


def test_fluxions_fcfs_starts_each_job_when_ours_does(jobs: Workload) -> None:
    own = simulate(jobs, NODES, "fcfs", "none").jobs.sort("job_id")
    assert own["start_s"].to_list() == RECORDED["start_s"]["fcfs"]


@pytest.mark.parametrize(("policy", "depth"), [("easy", 1), ("conservative", 10**6)])
def test_fluxions_backfilling_is_that_which_promises_particular_nodes(
    jobs: Workload, policy: str, depth: int
) -> None:
    machine = Cluster.uniform(NODES)
    driven = drive(
        Simulation(jobs, machine, "fcfs", "outside"), by_particular_nodes(NODES, depth)
    ).jobs
    assert driven.sort("job_id")["start_s"].to_list() == RECORDED["start_s"][policy]
    # Ours promises so many nodes, whichever; the rest of what they may do differs by that alone.
    own = simulate(jobs, NODES, "fcfs", policy).jobs.sort("job_id")
    same = np.mean(own["start_s"].to_numpy() == np.array(RECORDED["start_s"][policy]))
    assert 0.3 < same < 1.0
