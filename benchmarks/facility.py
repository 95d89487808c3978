"""How fast a facility decides: `python benchmarks/facility.py` prints the table of docs/evidence/facility.md.

Cases on real traces need HPCTWIN_TRACES; without it a generated year stands in, and it is said.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hpctwin import Workload
from hpctwin.facility import Facility, FacilitySimulation, Strategy, parse_strategy
from hpctwin.facility.state import FacilityState
from hpctwin_papers.cqsim_plus.cases import CASES, oracle


def show(name: str, **figures: float) -> None:
    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
    print(f"{name:44} {shown}", flush=True)


def theta(strategy: Strategy) -> None:
    """The homogeneous experiment: every job of the year, two clusters."""
    case = CASES["homogeneous"]
    workload, about = case.workload()
    begin = time.perf_counter()
    result = FacilitySimulation(case.facility, workload, strategy).run()
    whole = time.perf_counter() - begin
    decision = result.jobs["decision_ms"].drop_nulls().to_numpy()
    show(
        f"{about}: {strategy.name}, {strategy.knowledge}",
        jobs=len(workload),
        mean_ms=decision.mean(),
        p99_ms=np.quantile(decision, 0.99),
        whole_s=whole,
    )


def standing_queues(clusters: int, nodes: int, queue: int, text: str) -> None:
    """One decision among clusters that are full, each with so many jobs waiting."""
    rng = np.random.default_rng(1)
    busy = 40 * clusters
    count = busy + queue * clusters + 200
    workload = Workload.build(
        submit_s=np.concatenate([np.zeros(count - 200), np.linspace(10, 3000, 200)]),
        runtime_s=(runtime := rng.exponential(3600, count) + 60),
        walltime_s=runtime * rng.uniform(1, 4, count),
        nodes=rng.integers(1, nodes // 10, count),
    )
    facility = Facility.model_validate(
        {"clusters": [{"name": f"c{i}", "nodes": nodes} for i in range(clusters)]}
    )
    strategy = parse_strategy(text)
    state = FacilityState(facility, workload)
    for row in range(count - 200):
        state.place(row, row % clusters)
    times: list[float] = []
    for row in range(count - 200, count):
        state.now_ms = int(workload.submit_ms[row])
        begin = time.perf_counter()
        strategy.place([row], state)
        times.append(1000 * (time.perf_counter() - begin))
    waiting = np.mean([cluster.queued for cluster in state.clusters])
    figures: dict[str, Any] = {
        "waiting_each": float(waiting),
        "mean_ms": float(np.mean(times)),
        "p99_ms": float(np.quantile(times, 0.99)),
        "worst_ms": max(times),
    }
    show(f"{clusters} × {nodes:,} nodes, queues of {queue:,}: {text}", **figures)


def grid(clusters: int = 500, queue: int = 20, *, alike: bool) -> None:
    """Decisions in a grid whose sizes fall with the root of the rank, as those of TOP500 lists about do.

    All are full, with queues; where they are not alike, each is up to twice as slow as the fastest.
    """
    rng = np.random.default_rng(1)
    nodes = (4000 * np.arange(1, clusters + 1) ** -0.5).astype(int) + 64
    factor = np.ones(clusters) if alike else 1 + rng.random(clusters)
    there = queue + nodes // 20
    count = int(there.sum()) + 200
    runtime = rng.exponential(3600, count) + 60
    workload = Workload.build(
        submit_s=np.concatenate([np.zeros(count - 200), np.linspace(10, 3000, 200)]),
        runtime_s=runtime,
        walltime_s=runtime * rng.uniform(1, 4, count),
        nodes=rng.integers(1, 65, count),
    )
    facility = Facility.model_validate(
        {
            "clusters": [
                {"name": f"c{i}", "nodes": int(n), "factor": {"any": float(f)}}
                for i, (n, f) in enumerate(zip(nodes, factor, strict=True))
            ]
        }
    )
    strategy = parse_strategy("sgs-t")
    state = FacilityState(facility, workload)
    for row, cluster in enumerate(np.repeat(np.arange(clusters), there).tolist()):
        state.place(row, cluster)
    times = []
    for row in range(count - 200, count):
        state.now_ms = int(workload.submit_ms[row])
        begin = time.process_time()
        strategy.place([row], state)
        times.append(1000 * (time.process_time() - begin))
    show(
        f"{clusters} clusters, {'equally fast' if alike else 'of many speeds'}: sgs-t, processor time",
        jobs=count,
        waiting_each=float(np.mean([cluster.queued for cluster in state.clusters])),
        mean_ms=float(np.mean(times[1:])),
        p99_ms=float(np.quantile(times[1:], 0.99)),
    )


def main() -> None:
    grid(alike=False)
    grid(alike=True)
    for strategy in (oracle(), parse_strategy("sgs-t"), parse_strategy("sgs-t", knows="like-jobs")):
        theta(strategy)
    standing_queues(10, 10_000, 1_000, "sgs-t")
    standing_queues(10, 10_000, 1_000, "earliest-start")


if __name__ == "__main__":
    main()
