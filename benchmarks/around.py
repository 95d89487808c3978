"""What it costs around the scheduling, against size: `python benchmarks/around.py [--figure FILE] [case …]`.

`--page docs/evidence/cost.md` measures the cases of that page's tables, and fills them in; the figure has
them and the case read.

All cases if none is named. CPU time, the least of some runs; the last line of a case is the exponent of a
line fitted in logarithms. `--large` goes to the largest sizes, which takes some GB and minutes.

- tables: a job of a simulation under FCFS + EASY, by its parts: made, engine, table of jobs, summary.
- memory: the same, peak memory of the process beyond what it has when it has imported everything.
- power: an instant of a machine with power states, of which 500 nodes are in use, by its nodes.
- resource: a run with a shared resource that is never short, and without it, by jobs that wait.
- read: a line of SWF.
- decide: a decision of the live twin under three policies, by jobs that wait for 1,000 nodes: an event and
  the what-ifs, and with choice and forecasts.
"""

from __future__ import annotations

import argparse
import gc
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pages
from hpctwin import Cluster, Simulation, Workload, generate, read_workload, simulate, write_workload
from hpctwin.rms.records import events as ev
from hpctwin.twin.core.core import Core
from hpctwin.twin.service.runner import GARBAGE_AFTER
from hpctwin.twin.settings.config import CoreSettings
from twin import NOW_S, busy_cluster

Cost = dict[str, float]
POWERS = ("none", "psus:10m", "psas-auto:10m", "psas-ipm:10m")


def timed(work: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of some runs, seconds."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def tables(jobs: int) -> Cost:
    """By part, µs a job."""
    workload = generate("poisson", jobs=jobs, nodes=1000, load=0.85, seed=1)
    found: dict[str, list[float]] = {"made": [], "engine": [], "table": [], "summary": []}
    for _ in range(1 if jobs > 1_000_000 else 3):
        begin = time.process_time()
        simulation = Simulation(workload, 1000, "fcfs+easy")
        found["made"].append(time.process_time() - begin)
        found["engine"].append(timed(simulation.advance, 1))
        begin = time.process_time()
        result = simulation.result()
        result.jobs  # noqa: B018 (made when it is asked for first)
        found["table"].append(time.process_time() - begin)
        found["summary"].append(timed(result.summary, 1))
    return {f"{part}_us": 1e6 * min(times) / jobs for part, times in found.items()}


def memory(jobs: int) -> Cost:
    """In a process of its own, bytes a job."""
    script = f"import sys; sys.argv = ['around']; from around import peak; print(peak({jobs}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        check=True,
        capture_output=True,
        text=True,
    )
    return {"bytes": float(done.stdout.split()[-1])}


def peak(jobs: int) -> float:
    """Bytes a job that a whole run takes."""

    def run(size: int) -> None:
        workload = generate("poisson", jobs=size, nodes=1000, load=0.85, seed=1)
        simulate(workload, 1000, "fcfs+easy").summary()

    def most_kib() -> int:
        # Not that of getrusage, which a process inherits from the one that started it.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    run(1000)
    before = most_kib()
    run(jobs)
    return 1024 * (most_kib() - before) / jobs


def power(nodes: int) -> Cost:
    """By power policy, µs an instant."""
    rng = np.random.default_rng(0)
    jobs = 3000
    runtime = np.exp(rng.normal(7.5, 1.5, jobs)).clip(10, 86_400)
    width = 2 ** rng.integers(0, 7, jobs)
    span = float((runtime * width).sum()) / 500 / 0.7
    workload = Workload.build(
        submit_s=np.sort(rng.uniform(0, span, jobs)),
        runtime_s=runtime,
        walltime_s=runtime * rng.uniform(1, 3, jobs),
        nodes=width,
    )
    machine = Cluster.uniform(
        nodes, active_w=400, idle_w=150, sleep_w=9, off_s=120, off_w=100, on_s=300, on_w=250
    )
    found = {}
    for name in POWERS:
        times = []
        for _ in range(3):
            simulation = Simulation(workload, machine, f"fcfs+easy~{name}")
            # The first instants switch all that nobody uses off, once.
            simulation.advance(3600)
            before = simulation.state.clock.instants
            took = timed(simulation.advance, 1)
            times.append(1e6 * took / (simulation.state.clock.instants - before))
        found[name.partition(":")[0] + "_us"] = min(times)
    return found


def shared_resource(waiting: int) -> Cost:
    """With and without, seconds for all."""
    rng = np.random.default_rng(0)
    columns = {
        "submit_s": np.sort(rng.uniform(0, 3600, waiting)),
        "runtime_s": rng.uniform(60, 7200, waiting),
        "walltime_s": np.full(waiting, 7200.0),
        "nodes": rng.integers(1, 65, waiting),
    }
    asked = {"licences": rng.integers(0, 3, waiting)}
    plain = Workload.build(**columns)
    asking = Workload.build(**columns, resources=asked)
    machine = Cluster.uniform(1000)
    with_it = machine.model_copy(update={"resources": {"licences": 10_000}})
    return {
        "without_s": timed(Simulation(plain, machine, "fcfs+easy").advance, 1),
        "with_s": timed(Simulation(asking, with_it, "fcfs+easy").advance, 1),
    }


def read(lines: int) -> Cost:
    """Ns a line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        write_workload(generate("poisson", jobs=lines, nodes=1000, load=0.85, seed=1), path)
        return {"line_ns": 1e9 * timed(lambda: read_workload(path)) / lines}


def decide(waiting: int) -> Cost:
    """By what is done, ms."""
    snapshot = busy_cluster(1000, waiting, 50)
    running = [job.spec.id for job in snapshot.jobs if job.start_s is not None]
    core = Core(CoreSettings(futures=0))
    look, looked = core._look, [0.0]

    def timed_look(*given: Any) -> Any:
        begin = time.process_time()
        found = look(*given)
        looked[-1] += time.process_time() - begin
        return found

    core._look = timed_look  # type: ignore[method-assign]
    whole = []
    gc.set_threshold(GARBAGE_AFTER)  # as `Twin.run` does
    for seq in range(1, 12 if waiting > 10_000 else 30):
        core.take_snapshot(snapshot.model_copy(update={"seq": seq - 1}))
        job = running[seq % len(running)]
        end = ev.JobEnded(cluster="c", run="r", seq=seq, time_s=NOW_S, job_id=job)
        begin = time.process_time()
        core.take_event(end)
        looked.append(time.process_time() - begin)
        core.decide(NOW_S)
        whole.append(time.process_time() - begin)
    return {"what-ifs_ms": 1e3 * min(looked[3:]), "whole_ms": 1e3 * min(whole[2:])}


CASES: dict[str, tuple[Callable[[int], Cost], str, tuple[int, ...], int]] = {
    "tables": (tables, "jobs", (10_000, 100_000, 1_000_000), 10_000_000),
    "memory": (memory, "jobs", (1_000_000,), 10_000_000),
    "power": (power, "nodes", (1000, 10_000, 100_000), 1_000_000),
    "resource": (shared_resource, "waiting", (1000, 5000, 20_000), 100_000),
    "read": (read, "lines", (10_000, 100_000), 1_000_000),
    "decide": (decide, "waiting", (100, 1000, 10_000), 100_000),
}


def show(name: str, *, large: bool) -> tuple[list[int], dict[str, list[float]]]:
    """Measure a case, print its table; sizes and costs."""
    case, unit, sizes, largest = CASES[name]
    measured = [*sizes, largest] if large else list(sizes)
    rows: dict[str, list[float]] = {}
    case(min(100, measured[0]))  # what compiles, compiles now
    for size in measured:
        for column, cost in case(size).items():
            rows.setdefault(column, []).append(cost)
        last = "  ".join(f"{column} {costs[-1]:,.3g}" for column, costs in rows.items())
        print(f"{name}: {size:>10,} {unit}  {last}", flush=True)
    if len(measured) > 1:
        fits = {c: np.polyfit(np.log(measured), np.log(costs), 1)[0] for c, costs in rows.items()}
        print(f"{name}: exponent  " + "  ".join(f"{c} {fit:.2f}" for c, fit in fits.items()))
    return measured, rows


def draw(found: dict[str, tuple[list[int], dict[str, list[float]]]], path: str) -> None:
    """One panel for each case, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    across = min(3, len(found))
    down = -(-len(found) // across)
    figure, grid = pyplot.subplots(
        down, across, figsize=(4.4 * across, 3.4 * down), squeeze=False, layout="constrained"
    )
    panels = grid.flat
    for (name, (sizes, rows)), panel in zip(found.items(), panels, strict=False):
        for column, costs in rows.items():
            fit = np.polyfit(np.log(sizes), np.log(costs), 1)[0] if len(sizes) > 1 else 0.0
            panel.loglog(sizes, costs, marker="o", label=f"{column}, exponent {fit:.2f}")
        low, high = min(map(min, rows.values())), max(map(max, rows.values()))
        # Three decades at least: what is flat is to look flat.
        panel.set(title=name, xlabel=CASES[name][1], ylim=(min(low / 10, high / 1000), high * 10))
        panel.legend(fontsize=7)
    for panel in panels:
        panel.set_axis_off()
    figure.savefig(path, dpi=110)


def redraw(page: Path, figure: str | None, *, large: bool) -> None:
    """Measure the cases of a page's tables, and fill these in."""
    found: dict[str, tuple[list[int], dict[str, list[float]]]] = {}

    def cells(options: list[str], rows: list[str], columns: list[str]) -> pages.Cells:
        (name,) = options
        sizes, costs = found[name] = show(name, large=large)
        written: pages.Cells = {}
        for column in columns:
            measured = next(c for n, c in costs.items() if n.partition("_")[0] == column.strip("`"))
            for size, cost in zip(sizes, measured, strict=True):
                # Two digits that count.
                digits = max(1 - math.floor(math.log10(cost)), 0)
                written[f"{size:,}", column] = f"{cost:.{digits}f}"
            fit = np.polyfit(np.log(sizes), np.log(measured), 1)[0]
            written["fitted exponent", column] = f"{fit:.2f}"
        return written

    pages.redraw(page, "around.py", cells)
    if figure:
        draw({**found, "read": show("read", large=large)}, figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("cases", nargs="*", choices=[[], *CASES])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--figure", metavar="FILE")
    parser.add_argument("--page", type=Path, metavar="FILE", help="fill in its tables")
    asked = parser.parse_args()
    if asked.page:
        redraw(asked.page, asked.figure, large=asked.large)
        return
    found = {name: show(name, large=asked.large) for name in asked.cases or CASES}
    if asked.figure:
        draw(found, asked.figure)


if __name__ == "__main__":
    main()
