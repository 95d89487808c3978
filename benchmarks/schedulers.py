"""What it costs that a scheduler is outside: `python benchmarks/schedulers.py`.

FCFS on the same jobs: in the engine, as a Python function, and as a program that speaks JSON lines. Processor
time of this process and of the program, least of three.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hpctwin import Cluster, Simulation, generate, simulate
from hpctwin.simulation.schedulers import Happened, JsonLinesScheduler, Orders, drive

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "connect-an-external-scheduler.md"
NODES = 128


def first_come() -> Callable[[Happened], Orders]:
    """First come, first served."""
    queue: list[dict[str, int]] = []

    def decide(happened: Happened) -> Orders:
        queue.extend(happened.submitted)  # type: ignore[arg-type]
        free, start = happened.free_nodes, []
        while queue and queue[0]["nodes"] <= free:
            free -= queue[0]["nodes"]
            start.append(queue.pop(0)["job_id"])
        return Orders(start)

    return decide


def spent_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def least(work: Callable[[], None], times: int = 3) -> float:
    found = []
    for _ in range(times):
        begin = spent_s()
        work()
        found.append(spent_s() - begin)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    workload = generate("poisson", jobs=asked.jobs, nodes=NODES, seed=1)
    cluster = Cluster.uniform(NODES)
    own = simulate(workload, cluster, "fcfs", "none")

    def driven(scheduler: Callable[[Happened], Orders]) -> None:
        found = drive(Simulation(workload, cluster, "fcfs", "outside"), scheduler)
        assert found.jobs["start_s"].equals(own.jobs["start_s"])

    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "fcfs.py"
        program.write_text(
            re.findall(r"```python\n(# fcfs.py\n.*?)```", PAGE.read_text(), re.DOTALL)[0]
        )

        def as_program() -> None:
            with JsonLinesScheduler([sys.executable, str(program)], cluster) as scheduler:
                driven(scheduler)

        rows = {
            "the engine's own": least(lambda: void(simulate(workload, cluster, "fcfs", "none"))),
            "a function in Python": least(lambda: driven(first_come())),
            "a program, JSON lines": least(as_program),
        }
    told = [
        {"scheduler": name, "seconds": seconds, "us_an_instant": 1e6 * seconds / own.instants}
        for name, seconds in rows.items()
    ]
    if asked.json:
        print(json.dumps(told))
        return
    for row in told:
        print(
            f"{row['scheduler']:<24} {row['seconds']:8.3f} s {row['us_an_instant']:8.1f} us an instant"
        )


def void(_: object) -> None:
    """Nothing is made of it."""


if __name__ == "__main__":
    main()
