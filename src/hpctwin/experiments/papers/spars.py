"""SPARS's figures and table with results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from hpctwin.experiments import spars
from hpctwin.experiments.entries import NO_NUMBERS, Entry, Finding, Made
from hpctwin.experiments.spars_published import TIMEOUTS_S, published
from hpctwin.generate import generate
from hpctwin.model import Workload
from hpctwin.simulation import Result, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["entries"]


@cache
def _nasa() -> Workload:
    return spars.workload()


def _batched() -> Made:
    """Jobs 1 and 2 end at the same instant, while jobs 3 and 4 wait."""
    jobs = Workload.build(
        job_id=[1, 2, 3, 4], submit_s=[0.0, 0.0, 1.0, 2.0], runtime_s=[10.0, 10.0, 5.0, 5.0], nodes=[1, 1,
        2, 1], name="figure 1",
    )  # fmt: skip
    result = simulate(jobs, 2, "fcfs+easy", track_nodes=True)
    start = dict(result.jobs.select("job_id", "start_s").iter_rows())
    wanted = {3: 10.0, 4: 15.0}
    return Made(
        [
            Finding(f"start of job {job}, s (jobs 1 and 2 end at 10)", at, start[job], 0.0, "g")
            for job, at in wanted.items()
        ],
        {"spars-figure-1": partial(_gantt, result, "Two ends at one instant, then one pass")},
    )


def _gantt(result: Result, title: str) -> Figure:
    from hpctwin.report import plot_gantt

    nodes = result.cluster.node_count
    return plot_gantt(result.jobs, result.node_map, nodes=nodes, title=title)


def _easy_gantt() -> Made:
    jobs = generate("poisson", jobs=200, nodes=16, load=0.9, seed=0)
    result = simulate(jobs, 16, "fcfs+easy", overrun="terminate", track_nodes=True)
    draw = partial(_gantt, result, "200 jobs on 16 nodes, EASY")
    return Made(figures={"spars-figure-3": draw})


@cache
def _spars_rows() -> tuple[spars.Row, ...]:
    return tuple(spars.run(_nasa()))


def _six_schedulers() -> Made:
    rows = _spars_rows()
    findings = []
    for name in spars.SCHEDULERS:
        rule = "as-published" if name.startswith("fcfs") else "sound"
        own = [row for row in rows if (row.scheduler, row.rule) == (name, rule) and row.published]
        theirs = [row.published for row in own if row.published is not None]
        for what, here, there, form in (
            ("total energy, GJ", [r.total_energy_j / 1e9 for r in own], [c.total_j / 1e9 for c in theirs],
            ".3f"), ("mean wait, s", [r.mean_wait_s for r in own], [c.mean_wait_s for c in theirs], ",.1f"),
        ):  # fmt: skip
            title = f"{name}, {what}, mean over 12 timeouts"
            findings.append(
                Finding(title, float(np.mean(there)), float(np.mean(here)), 0.001, form)
            )

    def draw() -> Figure:
        from hpctwin.report import plot_energy_against_wait

        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row.rule == "sound" and row.scheduler.startswith("easy"):
                curves.setdefault(row.scheduler, []).append((row.total_energy_j, row.mean_wait_s))
        cells = {
            f"{name} (SPARS)": [
                (cell.total_j, cell.mean_wait_s)
                for timeout_s in TIMEOUTS_S
                if (cell := published(name, timeout_s)) is not None
            ]
            for name in curves
        }
        return plot_energy_against_wait(curves, published=cells)

    return Made(findings, {"spars-figure-4": draw})


_SPARS_S = (16.21, 15.22, 14.56, 14.27, 13.90, 13.54, 14.02, 14.36, 12.66, 13.18, 12.67, 12.52)
"""Table 5: run time of SPARS by timeout, seconds."""


def _run_times() -> Made:
    findings = []
    spars.simulate_cell(_nasa(), "easy-psus", 0)  # compiled, where it is not yet
    for timeout_s, theirs in zip(TIMEOUTS_S, _SPARS_S, strict=True):
        begin = time.process_time()
        spars.simulate_cell(_nasa(), "easy-psus", timeout_s)
        spent = time.process_time() - begin
        minutes = f"{timeout_s / 60:g}"
        findings.append(
            Finding(f"run time with a timeout of {minutes} min, s", theirs, spent, 0.1, ".3f")
        )
    return Made(findings)


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    yield entry(
        "spars-figure-1",
        shows="two ends at one instant, and what is started then",
        config="Four jobs on two nodes, EASY",
        make=_batched,
    )
    yield entry(
        "spars-figure-3",
        shows="Gantt chart of 200 jobs under EASY",
        config="200 generated jobs, seed 0, 16 nodes",
        because=f"its workload is not published, and {NO_NUMBERS}",
        make=_easy_gantt,
    )
    yield entry(
        "spars-figure-4",
        shows="energy and waiting of six schedulers",
        config="Last fifth of NASA iPSC/860, 128 nodes, timeouts of 5 to 60 min; FCFS by the published rule, "
        "EASY by the sound one",
        because="SPARS's EASY forms have faults that the sound rule has not; what each moves is told by the "
        "command",
        make=_six_schedulers,
        more="hpctwin experiment spars --more",
    )
    yield entry(
        "spars-table-5",
        shows="run time of EASY with PSUS by timeout",
        config="As figure 4; processor time",
        because="it is another program on another machine",
        make=_run_times,
    )
