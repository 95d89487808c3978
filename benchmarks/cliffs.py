"""Cost of long queues: `python benchmarks/cliffs.py` prints a table of docs/evidence/long-queues.md.

`python benchmarks/cliffs.py --page docs/evidence/long-queues.md --figure docs/images/cliffs.png` measures all
of the page anew, with the options that stand before each, and draws each.

So many jobs are submitted within an hour to 1,000 nodes, so that nearly all of them wait. Least CPU time of
the engine of some runs; the exponent is that of the line through the last half of the points of a log-log
plot. No case goes on to a larger size once a run took longer than ``--limit``.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import pages
from hpctwin import Cluster, Simulation, Workload, parse_policy
from hpctwin.model import Category

SIZES = [
    250,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
]
POLICIES = [
    "fcfs+easy",
    "sjf+easy",
    "wfp+easy",
    "multifactor+easy",
    "fairshare+easy",
    "fcfs+first-fit",
    "-nodes*sqrt(wait)+easy",
    "fcfs+conservative",
    "wfp+conservative",
]
"""The formula is one of which nothing is known: all who wait are scored."""
NODES = 1_000


def crowd(jobs: int, urgent: float = 0.0) -> Workload:
    """So many jobs within an hour, of 100 users in 10 accounts; a part of them is urgent."""
    rng = np.random.default_rng(1)
    runtime = np.floor(rng.exponential(3600, jobs)) + 1
    submit = np.sort(np.floor(rng.uniform(0, 3600, jobs)))
    walltime = np.floor(runtime * rng.uniform(1, 4, jobs)) + 1
    nodes, users = rng.integers(1, 65, jobs), rng.integers(0, 100, jobs)
    return Workload.build(
        submit_s=submit,
        runtime_s=runtime,
        walltime_s=walltime,
        nodes=nodes,
        user=Category.of([f"u{i}" for i in users]),
        account=Category.of([f"a{i % 10}" for i in users]),
        partition=Category.of(np.where(rng.random(jobs) < urgent, "urgent", "all").tolist()),
    )


def sharing(workload: Workload) -> Workload:
    """The same jobs, each of as many tasks of a core as it had nodes, for nodes of 16 cores."""
    cores = workload.nodes
    return Workload.build(
        submit_s=workload.submit_ms / 1e3,
        runtime_s=workload.runtime_ms / 1e3,
        walltime_s=workload.walltime_ms / 1e3,
        nodes=np.ones(len(workload), int),
        user=workload.user,
        chunks={"tasks": cores, "cores_per_task": np.ones(len(workload), int)},
    )


LIMITS = [
    *({"account": f"a{i}", "nodes": 120} for i in range(10)),
    *({"account": f"a{i}", "per": "user", "jobs": 4} for i in range(10)),
]
"""They keep back: accounts may have a fifth more nodes together than there are, and users four jobs."""


def machine(
    jobs_per_user: int | None = None,
    *,
    shared: bool = False,
    limits: bool = False,
    preempt: bool = False,
) -> Cluster:
    """The nodes, in one partition, or in two of all."""
    if shared:
        return Cluster.model_validate({"nodes": [{"name": "all", "count": 64, "cores": 16}]})
    partition = {"name": "all", "default": True, "max_jobs_per_user": jobs_per_user}
    described: dict[str, Any] = {
        "nodes": [{"name": "all", "count": NODES}],
        "partitions": [partition],
    }
    if limits:
        described["accounts"] = [{"name": f"a{i}"} for i in range(10)]
        described["limits"] = LIMITS
    if preempt:
        described["partitions"].append({"name": "urgent"})
        described["preemption"] = {"partitions": {"urgent": {"tier": 2}}}
    return Cluster.model_validate(described)


def measured(workload: Workload, cluster: Cluster, policy: str, limit_s: float) -> float:
    """Least CPU time of three runs, or of fewer if they take long."""
    chosen = parse_policy(policy)
    chosen.compile()
    least = spent = 0.0
    for _ in range(3):
        simulation = Simulation(workload, cluster, policy=chosen)
        simulation.advance(0)
        begin = time.process_time()
        simulation.advance()
        took = time.process_time() - begin
        least = took if least == 0 else min(least, took)
        spent += took
        if spent > limit_s:
            break
    return least


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of the line through the last half of the points, in logarithms."""
    half = len(sizes) // 2 if len(sizes) > 3 else 0
    if len(sizes) - half < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])


Measured = dict[str, tuple[list[int], dict[str, list[float]]]]
"""By what is the case: sizes, and seconds by policy."""


def draw(measured: Measured, path: Path) -> None:
    """A log-log plot of each case."""
    from matplotlib.figure import Figure

    across = min(3, len(measured))
    down = -(-len(measured) // across)
    figure = Figure(figsize=(5 * across, 4.4 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for (title, (all_sizes, found)), axes in zip(measured.items(), panels, strict=False):
        for policy, seconds in found.items():
            sizes = all_sizes[: len(seconds)]
            power = exponent(sizes, seconds)
            fitted = "" if math.isnan(power) else f", ~Q^{power:.2f}"
            axes.loglog(sizes, seconds, "o-", label=policy + fitted)
        axes.set(title=title, xlabel="jobs within an hour", ylabel="CPU time of the engine, s")
        axes.grid(visible=True, which="major", alpha=0.3)
        # Room for the legend.
        axes.set_ylim(bottom=axes.get_ylim()[0] / 2 ** len(found))
        axes.legend(fontsize=6, loc="lower right")
    for axes in panels:
        axes.set_axis_off()
    figure.savefig(path, dpi=110)


def title_of(args: Any) -> str:
    """What the options make of the case, in words."""
    if args.shared:
        return "64 shared nodes"
    if args.limits:
        return "limits of accounts and users"
    if args.preempt:
        return "one in ten preempts others"
    each = f", {args.jobs_per_user} running for each user" if args.jobs_per_user else ""
    return f"{NODES:,} nodes{each}"


def told(seconds: float) -> str:
    """A time as the tables have it."""
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def measure(args: Any, policies: list[str], sizes: list[int]) -> dict[str, list[float]]:
    """Seconds by policy and size, told as they come; sizes after one that takes too long are left out."""
    cluster = machine(
        args.jobs_per_user, shared=args.shared, limits=args.limits, preempt=args.preempt
    )
    jobs = {size: crowd(size, urgent=0.1 if args.preempt else 0.0) for size in sizes}
    workloads = {size: sharing(one) if args.shared else one for size, one in jobs.items()}
    print("| policy |", " | ".join(f"{size:,}" for size in sizes), "| exponent |")
    print("|---|" + "---|" * (len(sizes) + 1))
    found: dict[str, list[float]] = {}
    for policy in policies:
        measured(workloads[sizes[0]], cluster, policy, 0)  # what compiles, compiles now
        seconds: list[float] = []
        for size in sizes:
            if seconds and seconds[-1] > args.limit:
                break
            seconds.append(measured(workloads[size], cluster, policy, args.limit))
        found[policy] = seconds
        cells = [told(s) for s in seconds] + [""] * (len(sizes) - len(seconds))
        power = exponent(sizes[: len(seconds)], seconds)
        print(f"| `{policy}` |", " | ".join(cells), f"| {power:.2f} |", flush=True)
    return found


def redraw(parser: argparse.ArgumentParser, page: Path, figure: Path | None) -> None:
    """Measure all tables of a page anew, and draw them."""
    drawn: Measured = {}

    def cells(options: list[str], rows: list[str], columns: list[str]) -> pages.Cells:
        args = parser.parse_args(options)
        policies = [row.strip("`") for row in rows if row.count("`") == 2 and row.endswith("`")]
        sizes = [int(column.replace(",", "")) for column in columns if column[-1] == "0"]
        found = measure(args, policies, sizes)
        drawn[title_of(args)] = sizes, found
        written: pages.Cells = {}
        for policy, seconds in found.items():
            texts = [told(s) for s in seconds] + [""] * (len(sizes) - len(seconds))
            written |= {(f"`{policy}`", f"{n:,}"): t for n, t in zip(sizes, texts, strict=True)}
            power = exponent(sizes[: len(seconds)], seconds)
            written[f"`{policy}`", "exponent"] = f"{power:.2f}"
        return written

    pages.redraw(page, "cliffs.py", cells)
    if figure:
        draw(drawn, figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    parser.add_argument("--smallest", type=int, default=1_000)
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds")
    parser.add_argument("--jobs-per-user", type=int, help="how many may run at once; default any")
    parser.add_argument("--shared", action="store_true", help="64 nodes of 16 cores instead")
    parser.add_argument("--limits", action="store_true", help="of accounts and their users")
    parser.add_argument("--preempt", action="store_true", help="urgent jobs preempt the others")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--page", type=Path, help="measure its tables anew")
    args: Any = parser.parse_args()
    if args.page:
        redraw(parser, args.page, args.figure)
        return
    sizes = [size for size in SIZES if args.smallest <= size <= args.largest]
    found = measure(args, args.policies, sizes)
    if args.figure:
        draw({title_of(args): (sizes, found)}, args.figure)


if __name__ == "__main__":
    main()
