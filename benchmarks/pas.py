"""How fast jobs with dependencies and shared resources are scheduled: `python benchmarks/pas.py`.

It prints the table of docs/evidence/cost.md: the PAS paper's workload, 20 % of whose jobs depend on another,
from reading no file to the finished table of jobs. Orderings are compiled before; the engine too.
"""

from __future__ import annotations

import time

from hpctwin import Simulation, parse_policy
from hpctwin.generate.pas import pas, pas_cluster
from hpctwin.metrics import dependency_violations
from hpctwin.simulation import explain

GOALS_S = {5_000: 0.5, 100_000: 20.0}
REPEATS = {5_000: 5, 100_000: 1}
POLICIES = ("adaptive+pack", "pas+pushdown", "fcfs+easy")


def run(policy: str, jobs: int) -> None:
    """Least time of some repeats, beside the goal."""
    workload, cluster = pas(jobs=jobs), pas_cluster(jobs)
    chosen = parse_policy(policy)
    Simulation(pas(jobs=10), pas_cluster(10), policy=chosen).run()
    times = []
    for _ in range(REPEATS[jobs]):
        begin = time.perf_counter()
        result = Simulation(workload, cluster, policy=chosen).run()
        times.append(time.perf_counter() - begin)
    assert dependency_violations(result.jobs, workload.dependencies) == 0
    assert (result.jobs["state"] == "completed").all()
    goal = GOALS_S[jobs]
    print(
        f"{policy:14} {jobs:8,} jobs  {len(workload.dependencies):7,} dependencies  "
        f"{result.instants:8,} instants  {min(times):8.3f} s  goal {goal:g} s "
        f"{'met' if min(times) <= goal else 'MISSED'}",
        flush=True,
    )


def story() -> None:
    """Telling what happened to the job that waited longest."""
    workload, cluster = pas(), pas_cluster()
    chosen = parse_policy("pas+pushdown")
    jobs = Simulation(workload, cluster, policy=chosen).run().jobs
    last = jobs.sort("wait_s")["job_id"][-1]
    begin = time.perf_counter()
    moments = explain(Simulation(workload, cluster, policy=chosen), last)
    took = time.perf_counter() - begin
    print(f"story of job {last} of 5,000, {len(moments)} moments  {took:.3f} s", flush=True)


def main() -> None:
    for jobs in GOALS_S:
        for policy in POLICIES:
            run(policy, jobs)
    story()


if __name__ == "__main__":
    main()
