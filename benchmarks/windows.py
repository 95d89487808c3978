"""Cost of maintenance windows: `python benchmarks/windows.py` prints a table of docs/evidence/long-queues.md.

`python benchmarks/windows.py --page docs/evidence/long-queues.md` updates it. 20,000 jobs of a month on
1,000 nodes (those of slurm_month.py), and so many windows of an hour on ten of the nodes: one each day from
the first on, so that most are to come; or of a second one after the other, so that most are past. Where the
policy switches nodes, they have a sleep state. Least CPU time of the engine of three runs.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import pages
from cliffs import measured, told
from hpctwin import Cluster
from slurm_month import NODES, month

POLICIES = ("fcfs+easy", "fcfs+slurm", "fcfs+conservative", "fcfs+easy~psas-ipm:20m")
COUNTS = (1, 10, 100, 1_000, 10_000)
DAY_S, HOUR_S = 86_400, 3_600
POWER = {
    "modes": {"base": {"power_w": 220, "idle_w": 95}},
    "sleep": [
        {"name": "off", "power_w": 4, "switch_off": {"time": 60, "power_w": 95},
         "switch_on": {"time": 300, "power_w": 180}}
    ],
}  # fmt: skip


def machine(count: int, *, past: bool, switched: bool) -> Cluster:
    """The nodes, which may be switched off, and so many windows."""
    every, length = (1, 1) if past else (DAY_S, HOUR_S)
    windows = [
        {"start": HOUR_S + every * i, "end": HOUR_S + every * i + length, "nodes": "0-9"}
        for i in range(count)
    ]
    return Cluster.model_validate(
        {
            "nodes": [{"name": "all", "count": NODES, **(POWER if switched else {})}],
            "reservations": windows,
        }
    )


def measure(limit_s: float) -> pages.Cells:
    """Seconds by policy and number of windows, told as they come."""
    workload = month(20_000)
    cells: pages.Cells = {}
    print("| policy |", " | ".join(f"{count:,}" for count in COUNTS), "|")
    print("|---|" + "---|" * len(COUNTS))
    for policy in POLICIES:
        for row, past in ((f"`{policy}`", False), (f"`{policy}`, past", True)):
            made = partial(machine, past=past, switched="~" in policy)
            measured(workload, made(1), policy, 0)  # what compiles, compiles now
            found = []
            for count in COUNTS:
                found.append(told(measured(workload, made(count), policy, limit_s)))
                cells[row, f"{count:,}"] = found[-1]
            print(f"| {row} |", " | ".join(found), "|", flush=True)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds")
    parser.add_argument("--page", type=Path, help="measure its table anew")
    args = parser.parse_args()
    if args.page:
        pages.redraw(args.page, "windows.py", lambda *of: measure(args.limit))
    else:
        measure(args.limit)


if __name__ == "__main__":
    main()
