"""What a comparison costs, with its figures, on one thread and on two: ms for twelve policies.

    python benchmarks/comparing.py [--jobs 1000] [--rounds 200] [--trace theta_2022.swf.gz] [--json]

Of each workload, the least of some rounds in turns, with and without the second thread:

- ``one_ms``, ``two_ms``: by the clock, from workload and policies to all summaries; ``times``: one by the
  other, for which the machine must do nothing else.
- ``cpu_ms``: processor time with one thread; ``engine_ms``: that of it which is spent in the engine, without
  Python's lock.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from hpctwin import Cluster, Workload, compare, generate, read_workload
from hpctwin.policies import parse_policy
from hpctwin_papers.traces import find_trace

POLICIES = (
    "fcfs+easy", "sjf+easy", "wfp+easy", "unicef+easy", "f1+easy", "f2+easy", "f3+easy", "f4+easy",
    "smallest+easy", "fcfs+none", "sjf+none", "fcfs+first-fit",
)  # fmt: skip


def measured(workload: Workload, cluster: Cluster, rounds: int) -> dict[str, float]:
    """The figures above."""
    pool = [parse_policy(text) for text in POLICIES]
    found: dict[str, list[float]] = {}

    def run(threads: int, name: str) -> None:
        begin, cpu = time.perf_counter(), time.process_time()
        results = compare(workload, cluster, pool, threads=threads)
        for result in results.values():
            result.summary()
        found.setdefault(f"{name}_ms", []).append(1000 * (time.perf_counter() - begin))
        if threads == 1:
            found.setdefault("cpu_ms", []).append(1000 * (time.process_time() - cpu))
            engine_s = sum(result.engine_s for result in results.values())
            found.setdefault("engine_ms", []).append(1000 * engine_s)

    compare(workload, cluster, pool)
    for _ in range(rounds):
        run(1, "one")
        run(2, "two")
    least = {name: min(values) for name, values in found.items()}
    return {"jobs": len(workload), **least, "times": least["one_ms"] / least["two_ms"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="*", default=[1000, 5000, 20_000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--trace", type=Path, default=find_trace("theta_2022.swf"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {}
    for jobs in given.jobs:
        made = generate("poisson", jobs=jobs, nodes=128, seed=1)
        rounds = max(given.rounds * 1000 // jobs, 5)
        found[f"{jobs:,} jobs"] = measured(made, Cluster.uniform(nodes=128), rounds)
    if given.trace is not None:
        year, rounds = read_workload(given.trace), max(given.rounds // 20, 5)
        nodes = year.nodes_hint or int(year.nodes.max())
        found["a year of Theta"] = measured(year, Cluster.uniform(nodes=nodes), rounds)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, figures in found.items():
        print(
            f"{name:16}", *(f"{of} {value:,.2f}" for of, value in figures.items() if of != "jobs")
        )


if __name__ == "__main__":
    main()
