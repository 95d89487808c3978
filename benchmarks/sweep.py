"""What a sweep costs beside its simulations, how well two workers share them, and what a thousand would do.

    python benchmarks/sweep.py [--json] [--trace theta_2022.swf.gz] [--points 400] [--years 400]

``overhead_ms``: processor time a point, of a sweep in one thread less the same simulations in a plain loop.
``efficiency_…``: how many times as fast two workers are as one thread with so many years of the trace, by the
clock, the better of two rounds (what processes are forked of is there from the second on); the machine must
do nothing else. ``cpu_s_per_point…``: processor time of each, that of starting processes included.
``efficiency_machine``: what the machine gives: how many times as well two processes fare as one that run the
engine and nothing else, by the processor time of each.
``model``: a million simulations of the trace on 100 cores and on 1,000 workers, reckoned with what was
measured: each worker is handed the trace once, and one scheduler hands out chunks.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import pickle
import resource
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hpctwin import Simulation, generate, simulate, sweep
from hpctwin.formats import read_workload
from hpctwin.sweep.running import chunk_s as length_s
from hpctwin_papers.traces import find_trace

ROUNDS = 5
LINK_BYTES_S = 1e9
"""Of the scheduler's network, 10 Gbit/s less what it is never used."""


def least(work: Callable[[], Any], clock: Callable[[], float], rounds: int = ROUNDS) -> float:
    found = []
    for _ in range(rounds):
        begin = clock()
        work()
        found.append(clock() - begin)
    return min(found)


def overhead_ms(points: int) -> dict[str, float]:
    options = {"jobs": 50, "nodes": 16}
    seeds = tuple(range(points // 2))
    policies = ["fcfs+easy", "sjf+easy"]

    def plain() -> None:
        for seed in seeds:
            jobs = generate("poisson", seed=seed, **options)
            for policy in policies:
                simulate(jobs, 16, policy, seed=seed).summary()

    def swept() -> None:
        with TemporaryDirectory() as folder:
            sweep(
                workloads=[{"generate": "poisson", "options": options}],
                policies=policies,
                seeds=seeds,
                workers=1,
                out=Path(folder) / "out",
            )

    plain(), swept()
    both = [
        (least(plain, time.process_time, 1), least(swept, time.process_time, 1))
        for _ in range(ROUNDS)
    ]
    alone, with_sweep = (min(column) for column in zip(*both, strict=True))
    return {
        "points": 2 * len(seeds),
        "plain_ms": 1000 * alone / points,
        "overhead_ms": 1000 * (with_sweep - alone) / points,
    }


def spent_s() -> float:
    """Processor time of this process, of those it has waited for, and of those that are forked for it."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    ticks = [0]
    if server is not None:
        # Of itself and of those that it has waited for, behind the name in brackets.
        fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        ticks = [int(one) for one in fields[11:15]]
    return sum(one.ru_utime + one.ru_stime for one in both) + sum(ticks) / os.sysconf("SC_CLK_TCK")


def efficiency(trace: Path, years: int) -> dict[str, float]:
    jobs = read_workload(trace)
    policies = ["fcfs+easy", "sjf+easy", "wfp+easy", "smallest+easy"]
    nodes = jobs.nodes_hint or int(jobs.nodes.max())

    def run(points: int, workers: int, where: Any) -> Callable[[], Any]:
        seeds = tuple(range(points // len(policies)))
        return lambda: sweep(
            workloads=[jobs],
            clusters=[nodes],
            policies=policies,
            seeds=seeds,
            workers=workers,
            where=where,
        )

    run(8, 2, "threads")()
    points = years // len(policies) * len(policies)
    found = {"trace_bytes": float(len(pickle.dumps(jobs))), "years": float(points)}
    alone_s = None
    for name, workers, where in (
        ("", 1, "threads"), ("_2_threads", 2, "threads"), ("_2_processes", 2, "processes")
    ):  # fmt: skip
        work = run(points, workers, where)
        begin = spent_s()
        seconds = least(work, time.perf_counter, 2)
        found[f"cpu_s_per_point{name}"] = (spent_s() - begin) / (2 * points)
        if alone_s is None:
            alone_s = seconds
        else:
            found[f"efficiency{name}"] = alone_s / seconds
    return found


def bare(trace: Path, years: int, ready: Any, found: Any) -> None:
    """The engine alone, in a process; its processor time."""
    jobs = read_workload(trace)
    simulations = [Simulation(jobs, jobs.nodes_hint, "fcfs+easy") for _ in range(years + 1)]
    simulations.pop().advance()
    ready.wait()
    begin = time.process_time()
    for simulation in simulations:
        simulation.advance()
    found.put(time.process_time() - begin)


def machine(trace: Path, years: int = 100) -> dict[str, float]:
    """One such process, and two at a time."""
    context = multiprocessing.get_context("spawn")
    took = []
    for count in (1, 2):
        ready, found = context.Barrier(count), context.Queue()
        given = (trace, years, ready, found)
        processes = [context.Process(target=bare, args=given) for _ in range(count)]
        for process in processes:
            process.start()
        took.append(sum(found.get() for _ in processes) / count)
        for process in processes:
            process.join()
    return {"efficiency_machine": 2 * took[0] / took[1]}


def per_chunk_s(chunks: int = 300) -> float:
    """Processor time of client and scheduler for each chunk, with a worker in the same process."""
    from distributed import Client

    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        executor = client.get_executor(pure=False)

        def hand_out() -> None:
            for future in [executor.submit(len, (number,)) for number in range(chunks)]:
                future.result()

        hand_out()
        return least(hand_out, time.process_time, 3) / chunks


def modelled(
    simulations: float, cores: int, per_point_s: float, chunk_s: float, trace_bytes: float
) -> float:
    """Seconds for so many simulations: who is slower, workers or scheduler, and handing out the trace."""
    chunk = max(1, math.floor(length_s(cores) / per_point_s))
    working = simulations * per_point_s / cores
    handing = simulations / chunk * chunk_s
    return max(working, handing) + cores * trace_bytes / LINK_BYTES_S + chunk * per_point_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trace", type=Path, default=find_trace("theta_2022.swf"))
    parser.add_argument("--points", type=int, default=400)
    parser.add_argument("--years", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = overhead_ms(given.points)
    if given.trace is not None:
        found |= efficiency(given.trace, given.years) | machine(given.trace)
        found["chunk_ms"] = 1000 * per_chunk_s()
        for cores in (100, 1000):
            found[f"million_on_{cores}_s"] = modelled(
                1e6, cores, found["cpu_s_per_point"], found["chunk_ms"] / 1000, found["trace_bytes"]
            )
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:24} {value:,.3f}")


if __name__ == "__main__":
    main()
