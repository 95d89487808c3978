"""How fast the engine is: `python benchmarks/engine.py` prints the table of the README.

Each case runs in a process of its own, so that times and peak memory are its alone. Cases on real traces
need HPCTWIN_TRACES; without it they are left out, and said to be.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Case = Callable[[], dict[str, Any]]
REPEATS = 5


def traces() -> Path:
    folder = Path(os.environ.get("HPCTWIN_TRACES") or "/nonexistent") / "swf"
    if not folder.is_dir():
        print(json.dumps({"left out": "HPCTWIN_TRACES is not set"}))
        sys.exit(0)
    return folder


def run(workload: Any, nodes: int, policy: str, repeats: int = 1) -> dict[str, Any]:
    """Simulate it; the engine's least time of some repeats, and what surrounds it once."""
    from hpctwin import Cluster, parse_policy, simulate

    chosen = parse_policy(policy)
    chosen.compile()
    times = []
    for _ in range(repeats):
        result = simulate(workload, Cluster.uniform(nodes=nodes), policy=chosen)
        times.append(result.engine_s)
    return {
        "jobs": len(workload),
        "nodes": nodes,
        "engine_s": min(times),
        "us_per_instant": 1e6 * min(times) / result.instants,
        "mean_queue": result.summary()["mean_queue_length"],
    }


def theta(policy: str) -> Case:
    def case() -> dict[str, Any]:
        from hpctwin import read_workload

        return run(read_workload(traces() / "theta_2022.swf.gz"), 4360, policy, REPEATS)

    return case


def mustang() -> dict[str, Any]:
    from hpctwin import read_workload

    name = "mustang_release_v0.2.0-completed-reassembled.swf.gz"
    begin = time.perf_counter()
    workload = read_workload(traces() / name)
    read_s = time.perf_counter() - begin
    return {"read_s": read_s, **run(workload, 38_400, "fcfs+easy")}


def synthetic(jobs: int, nodes: int, policy: str) -> Case:
    def case() -> dict[str, Any]:
        from hpctwin import generate

        return run(generate("poisson", jobs=jobs, nodes=nodes, load=0.85, seed=1), nodes, policy)

    return case


def standing_queue(length: int, policy: str) -> Case:
    """A queue of so many jobs at the beginning, and arrivals that keep the machine full."""

    def case() -> dict[str, Any]:
        import numpy as np

        from hpctwin import Workload

        rng = np.random.default_rng(1)
        jobs, nodes = 20_000 + length, 1000
        width = rng.integers(1, 65, jobs)
        runtime = rng.exponential(3600, jobs) + 1
        gap = (width * runtime).mean() / nodes
        submit = np.concatenate([np.zeros(length), np.cumsum(rng.exponential(gap, 20_000))])
        workload = Workload.build(
            submit_s=submit,
            runtime_s=runtime,
            walltime_s=runtime * rng.uniform(1, 4, jobs),
            nodes=width,
        )
        return run(workload, nodes, policy)

    return case


def fork() -> dict[str, Any]:
    """Fork a 4,360-node machine with 1,000 jobs waiting."""
    import numpy as np

    from hpctwin import Cluster, Simulation, Workload

    rng = np.random.default_rng(1)
    jobs = 1100
    workload = Workload.build(
        submit_s=np.zeros(jobs),
        runtime_s=rng.uniform(1000, 9000, jobs),
        nodes=rng.integers(32, 128, jobs),
    )
    simulation = Simulation(workload, Cluster.uniform(nodes=4360))
    simulation.advance(0)
    waiting = len(simulation.snapshot()["waiting"])
    simulation.fork()
    begin = time.perf_counter()
    for _ in range(1000):
        simulation.fork()
    return {"waiting": waiting, "fork_ms": (time.perf_counter() - begin)}


def first_run() -> dict[str, Any]:
    """From the command line, with an empty cache of compiled code and then with a full one."""
    command = [sys.executable, "-m", "hpctwin", "simulate", "--nodes", "64", "--json"]
    from hpctwin import generate, write_workload

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "small.swf"
        write_workload(generate("poisson", jobs=100, nodes=64, seed=1), trace)
        environment = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache"}
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            subprocess.run(
                [*command, str(trace)], check=True, env=environment, stdout=subprocess.DEVNULL
            )
            times.append(time.perf_counter() - begin)
    return {"first_s": times[0], "next_s": min(times[1:])}


CASES: dict[str, Case] = {
    "Theta 2022, FCFS + EASY": theta("fcfs+easy"),
    "Theta 2022, WFP + EASY": theta("wfp+easy"),
    "Theta 2022, FCFS + conservative": theta("fcfs+conservative"),
    "Mustang, FCFS + EASY": mustang,
    "synthetic, FCFS + EASY": synthetic(1_500_000, 10_000, "fcfs+easy"),
    "synthetic, WFP + EASY": synthetic(1_500_000, 10_000, "wfp+easy"),
    "160,000 nodes, FCFS + EASY": synthetic(100_000, 160_000, "fcfs+easy"),
    "1,000 waiting, FCFS + EASY": standing_queue(1_000, "fcfs+easy"),
    "10,000 waiting, FCFS + EASY": standing_queue(10_000, "fcfs+easy"),
    "1,000 waiting, WFP + EASY": standing_queue(1_000, "wfp+easy"),
    "10,000 waiting, WFP + EASY": standing_queue(10_000, "wfp+easy"),
    "fork, 1,000 waiting": fork,
    "command line, 100 jobs": first_run,
}


def main() -> None:
    if len(sys.argv) > 1:
        begin = time.perf_counter()
        found = CASES[sys.argv[1]]()
        found["whole_s"] = time.perf_counter() - begin
        found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found))
        return
    for name in CASES:
        done = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{name}: failed\n{done.stderr}")
            sys.exit(1)
        found = json.loads(done.stdout.splitlines()[-1])
        shown = ", ".join(f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v:,}" if isinstance(v, int) else f"{k}: {v}" for k, v in found.items())  # fmt: skip  # noqa: E501
        print(f"{name:34} {shown}", flush=True)


if __name__ == "__main__":
    main()
