"""Starts by Flux's scheduler, Fluxion, when it drove the engine, held against ours.

`fluxion_starts.json` was recorded with the queue policies of flux-sched 0.54.0 as a ``--scheduler``: who may
pass is decided by its qmanager, what fits by its planners, nodes with the lowest numbers first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, simulate
from hpctwin.model import Workload
from hpctwin.simulation.schedulers import Happened, Orders, drive

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "fluxion_starts.json").read_text())
NODES: int = RECORDED["nodes"]


@pytest.fixture(scope="module")
def jobs() -> Workload:
    return Workload.build(
        nodes=RECORDED["job_nodes"],
        **{name: RECORDED[name] for name in ("submit_s", "walltime_s", "runtime_s")},
    )


def by_particular_nodes(depth: int) -> Callable[[Happened], Orders]:
    """So many of the first who wait are promised nodes, and which ones; who passes leaves these."""
    waiting: list[Any] = []
    running: dict[Any, tuple[list[int], float]] = {}

    def decide(happened: Happened) -> Orders:
        now = happened.now_s
        for job, _ in happened.ended:
            del running[job]
        waiting.extend(happened.submitted)
        taken: list[list[tuple[float, float]]] = [[] for _ in range(NODES)]
        for nodes, end in running.values():
            for node in nodes:
                taken[node].append((now, end))
        start, promised = [], 0
        for job in list(waiting):
            times = {now}
            if promised < depth:
                times |= {end for spans in taken for _, end in spans if end > now}
            for begin in sorted(times):
                end = begin + job["walltime_s"]
                free = [
                    node
                    for node, spans in enumerate(taken)
                    if all(upto <= begin or first >= end for first, upto in spans)
                ]
                mine = free[: job["nodes"]]
                if len(mine) < job["nodes"]:
                    continue
                for node in mine:
                    taken[node].append((begin, end))
                if begin > now:
                    promised += 1
                    break
                start.append(job["job_id"])
                running[job["job_id"]] = mine, end
                waiting.remove(job)
                break
        return Orders(start=tuple(start))

    return decide


def test_fluxions_fcfs_starts_each_job_when_ours_does(jobs: Workload) -> None:
    own = simulate(jobs, NODES, "fcfs", "none").jobs.sort("job_id")
    assert own["start_s"].to_list() == RECORDED["start_s"]["fcfs"]


@pytest.mark.parametrize(("policy", "depth"), [("easy", 1), ("conservative", 10**6)])
def test_fluxions_backfilling_is_that_which_promises_particular_nodes(
    jobs: Workload, policy: str, depth: int
) -> None:
    machine = Cluster.uniform(NODES)
    driven = drive(Simulation(jobs, machine, "fcfs", "outside"), by_particular_nodes(depth)).jobs
    assert driven.sort("job_id")["start_s"].to_list() == RECORDED["start_s"][policy]
    # Ours promises so many nodes, whichever; the rest of what they may do differs by that alone.
    own = simulate(jobs, NODES, "fcfs", policy).jobs.sort("job_id")
    same = np.mean(own["start_s"].to_numpy() == np.array(RECORDED["start_s"][policy]))
    assert 0.3 < same < 1.0
