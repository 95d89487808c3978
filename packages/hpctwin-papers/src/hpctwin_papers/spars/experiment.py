"""SPARS's experiment: schedulers, timeouts, faults, value of known runtimes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model import Workload, write_atomically
from hpctwin.report.columns import Cell, Table
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results
from hpctwin_papers.spars.published import (
    COMPUTE_ALONE_J,
    NO_MANAGEMENT_J,
    PUBLISHED,
    TIMEOUTS_S,
    published,
)  # fmt: skip
from hpctwin_papers.spars.schedulers import (
    BEST,
    FAULTS,
    MACHINE,
    SCHEDULERS,
    TRACE,
    Row,
    Rule,
    make_row,
    overestimated,
    simulate_cell,
    workload,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hpctwin.energy import Energy

OURS = (*SCHEDULERS, BEST)


@dataclass(frozen=True)
class Spars(Experiment[tuple[Workload, str, Rule, float], Row]):
    """Each scheduler with each timeout; the FCFS schedulers also by the published rule.

    Args:
        schedulers: Some of `SCHEDULERS`, and `BEST`.
        timeouts_s: Idle times before switch-off, in seconds.
    """

    schedulers: tuple[str, ...] = tuple(SCHEDULERS)
    timeouts_s: tuple[float, ...] = TIMEOUTS_S
    title = "SPARS's schedulers"
    data = (TRACE,)

    def points(self) -> Sequence[tuple[Workload, str, Rule, float]]:
        """See `Experiment`; jobs, scheduler, rule and timeout."""
        for name in self.schedulers:
            if name not in OURS:
                raise UnknownNameError("scheduler", name, OURS)
        if any(not seconds >= 0 for seconds in self.timeouts_s):
            raise ConfigError(f"--timeout is {min(self.timeouts_s):g} s; it must be 0 or more")
        jobs = workload()
        return [
            (jobs, scheduler, rule, timeout_s)
            for scheduler in self.schedulers
            for rule in _rules(scheduler)
            for timeout_s in self.timeouts_s
        ]

    def run(self, point: tuple[Workload, str, Rule, float], progress: Progress) -> Row:
        """See `Experiment`."""
        jobs, scheduler, rule, timeout_s = point
        begin = time.perf_counter()
        energy = simulate_cell(jobs, scheduler, timeout_s, rule)
        return make_row(scheduler, timeout_s, rule, energy, time.perf_counter() - begin)

    def results(self, found: Sequence[Row]) -> Results:
        """See `Experiment`."""
        rules: tuple[Rule, ...] = ("as-published", "sound")
        tables = [
            _table(found, rule, title, value)
            for rule in rules
            for title, value in (("total energy, GJ", _joules), ("mean wait, s", _wait))
            if any(row.rule == rule for row in found)
        ]
        jobs = workload()
        return Results(
            compared(found) if self.timeouts_s == TIMEOUTS_S else [],
            _figures(jobs, found),
            tables,
            _verdict(found),
            f"{jobs.name}: {len(jobs):,} jobs on {MACHINE.node_count} nodes",
            [row.plain() for row in found],
            {"cells.json": partial(_write_json, found), "cells.csv": partial(_write_csv, found)},
        )


def _rules(scheduler: str) -> tuple[Rule, ...]:
    return ("as-published", "sound") if scheduler.startswith("fcfs") else ("sound",)


def compared(rows: Sequence[Row]) -> list[Finding]:
    """Compare figure 4: the schedulers' energies and waits, means over timeouts."""
    findings = []
    for name in SCHEDULERS:
        rule = _rules(name)[0]
        own = [row for row in rows if (row.scheduler, row.rule) == (name, rule) and row.published]
        theirs = [row.published for row in own if row.published is not None]
        for what, here, there, form in (
            ("total energy, GJ", [r.total_energy_j / 1e9 for r in own], [c.total_j / 1e9 for c in theirs],
            ".3f"), ("mean wait, s", [r.mean_wait_s for r in own], [c.mean_wait_s for c in theirs], ",.1f"),
        ):  # fmt: skip
            if own:
                title = f"{name}, {what}, mean over {len(own)} timeouts"
                means = float(np.mean(there)), float(np.mean(here))
                findings.append(Finding(title, *means, 0.001, form, ("spars-figure-4",)))
    return findings


def _joules(total_j: float, wait_s: float) -> str:
    return f"{total_j / 1e9:.3f}"


def _wait(total_j: float, wait_s: float) -> str:
    return f"{wait_s:,.0f}"


def _table(
    rows: Sequence[Row], rule: Rule, title: str, value: Callable[[float, float], str]
) -> Table:
    """Return hpctwin's values by timeout, with published ones and Batsim's EASY-PSUS."""
    mine = [row for row in rows if row.rule == rule]
    names = list(dict.fromkeys(row.scheduler for row in mine))
    heads = ["timeout\nmin", *(name.replace("-", "\n") for name in names)]
    lines: list[list[Cell]] = []
    for timeout_s in dict.fromkeys(row.timeout_s for row in mine):
        line: list[Cell] = [f"{timeout_s / 60:g}"]
        for row in mine:
            if row.timeout_s == timeout_s:
                text = value(row.total_energy_j, row.mean_wait_s)
                theirs = row.published
                line.append((text, value(theirs.total_j, theirs.mean_wait_s)) if theirs else text)
        if rule == "sound":
            batsim = published("batsim", timeout_s)
            line.append(("", value(batsim.total_j, batsim.mean_wait_s)) if batsim else "")
        lines.append(line)
    heads += ["easy\nbatsim"] if rule == "sound" else []
    return Table(
        heads, lines, f"{title} ({rule} rule)", "below each: what SPARS published", words=0
    )


def _verdict(rows: Sequence[Row]) -> list[str]:
    """Return deviations from the published rule, and where hpctwin is better."""
    lines = []
    same = [row for row in rows if row.rule == "as-published" and row.published]
    if same:
        apart = max(
            abs(ours / theirs - 1)
            for row in same
            if row.published
            for ours, theirs in (
                (row.total_energy_j, row.published.total_j),
                (row.wasted_energy_j, row.published.wasted_j),
                (row.mean_wait_s, row.published.mean_wait_s),
            )
        )
        lines.append(
            f"published rule: {len(same)} cells, each total energy, wasted energy and mean wait within "
            f"{apart:.3%} of the published one"
        )
    found = []
    for name in dict.fromkeys(row.scheduler for row in rows):
        beside = [
            (row, cell)
            for row in rows
            if row.scheduler == name and row.rule == "sound"
            if (cell := published("easy-ipm", row.timeout_s)) is not None
        ]
        ahead = sum(
            row.total_energy_j < cell.total_j and row.mean_wait_s < cell.mean_wait_s
            for row, cell in beside
        )
        if ahead:
            found.append(f"{name} at {ahead} of {len(beside)} timeouts")
    lines.append(
        "less energy and less waiting than the published easy-ipm (sound rule): "
        + (", ".join(found) or "none")
    )
    return lines


def _figures(jobs: Workload, rows: Sequence[Row]) -> dict[str, Callable[[], Figure]]:
    @cache
    def runs() -> dict[str, Energy]:
        return {n: simulate_cell(jobs, n, 1200, log=True) for n in ("easy-psus", "easy-ipm")}

    def states(name: str) -> Figure:
        from hpctwin.report.energy import plot_node_states

        title = f"Node states of {name}, timeout 20 min, first two days"
        return plot_node_states(runs()[name], end_s=2 * 86400, title=title)

    def power() -> Figure:
        from hpctwin.report.energy import plot_power

        return plot_power(runs(), title="Power drawn, timeout 20 min")

    return {
        "spars-figure-4": partial(_pareto, rows),
        "spars-by-timeout": partial(_by_timeout, rows),
        "spars-states-easy-psus": partial(states, "easy-psus"),
        "spars-states-easy-ipm": partial(states, "easy-ipm"),
        "spars-power": power,
    }


def _sound(rows: Sequence[Row]) -> dict[str, list[tuple[float, float, float]]]:
    """Return timeout, energy and mean wait by the sound rule."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        if row.rule == "sound":
            point = row.timeout_s, row.total_energy_j, row.mean_wait_s
            found.setdefault(row.scheduler, []).append(point)
    return found


def _pareto(rows: Sequence[Row]) -> Figure:
    from hpctwin.report.energy import plot_energy_against_wait

    theirs = {
        f"{name} (SPARS)" if name != "batsim" else "easy-psus (Batsim)": [
            (cell.total_j, cell.mean_wait_s)
            for timeout_s in TIMEOUTS_S
            if (cell := published(name, timeout_s)) is not None
        ]
        for name in PUBLISHED
        if name.startswith(("easy", "batsim"))
    }
    ours = {
        name: [point[1:] for point in points]
        for name, points in _sound(rows).items()
        if not name.startswith("fcfs")
    }
    return plot_energy_against_wait(
        ours,
        published=theirs,
        bounds={"no power management": NO_MANAGEMENT_J, "compute alone": COMPUTE_ALONE_J},
        title="Energy against waiting, timeouts of 5 to 60 minutes",
    )


def _by_timeout(rows: Sequence[Row]) -> Figure:
    from hpctwin.report.energy import plot_by_timeout

    return plot_by_timeout(_sound(rows), title="By timeout, sound rule")


def _write_json(rows: Sequence[Row], path: Path) -> None:
    with write_atomically(path) as file:
        file.write(json.dumps([row.plain() for row in rows], indent=2).encode())


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    flat = [{k: v for k, v in row.plain().items() if not isinstance(v, dict)} for row in rows]
    with write_atomically(path) as file:
        pl.DataFrame(flat).drop("published", strict=False).write_csv(file)


@dataclass(frozen=True)
class Effect:
    """Effect of one published fault, compared with the sound rule; means over the timeouts.

    Args:
        scheduler, fault: Names of the scheduler and the fault.
        energy_j, mean_wait_s: Differences with and without the fault.
        max_wait_s: Maximum increase of the longest wait over the timeouts.
        least_wait_s, most_wait_s: Least and greatest change of the mean wait over the timeouts.
    """

    scheduler: str
    fault: str
    energy_j: float
    mean_wait_s: float
    max_wait_s: float
    least_wait_s: float
    most_wait_s: float


@dataclass(frozen=True)
class SparsFaults(Experiment[tuple[Workload, str, str], Effect]):
    """Effect of each of `FAULTS` alone.

    Args:
        timeouts_s: Idle times before switch-off, in seconds.
    """

    timeouts_s: tuple[float, ...] = TIMEOUTS_S
    title = "each of SPARS's faults alone"
    data = (TRACE,)

    def points(self) -> Sequence[tuple[Workload, str, str]]:
        """See `Experiment`; jobs, scheduler, fault."""
        return [(workload(), scheduler, fault) for scheduler, fault in FAULTS]

    def run(self, point: tuple[Workload, str, str], progress: Progress) -> Effect:
        """See `Experiment`."""
        jobs, scheduler, fault = point
        found = []
        for timeout_s in self.timeouts_s:
            sound = simulate_cell(jobs, scheduler, timeout_s)
            faulty = simulate_cell(jobs, scheduler, timeout_s, fault=fault)
            waits = faulty.jobs["wait_s"].to_numpy(), sound.jobs["wait_s"].to_numpy()
            found.append(
                (
                    faulty.total_j - sound.total_j,
                    waits[0].mean() - waits[1].mean(),
                    waits[0].max() - waits[1].max(),
                )
            )
        energy, mean, longest = np.array(found).T
        return Effect(
            scheduler,
            fault,
            float(energy.mean()),
            float(mean.mean()),
            float(longest.max()),
            float(mean.min()),
            float(mean.max()),
        )

    def results(self, found: Sequence[Effect]) -> Results:
        """See `Experiment`."""
        rows = [
            [
                one.scheduler,
                one.fault,
                f"{one.energy_j / 1e9:+.3f}",
                f"{one.mean_wait_s:+,.0f}",
                f"{one.least_wait_s:+,.0f} … {one.most_wait_s:+,.0f}",
                f"{one.max_wait_s:+,.0f}",
            ]
            for one in found
        ]
        caption = (
            "on top of the sound rule: mean over the timeouts; least and most change of the mean wait at one "
            "of them; most that the longest wait grows"
        )
        heads = ["energy\nGJ", "mean wait\ns", "least … most\ns", "max wait\ns"]
        title = "What each published fault alone moves"
        return Results(
            tables=[Table(["scheduler", "fault", *heads], rows, title, caption, words=2)]
        )


_KNOWN = ("honest", "overestimated", "clairvoyant")


@dataclass(frozen=True)
class SparsKnowledge(Experiment[tuple[Workload, str], list[Row]]):
    """Schedulers that know honest walltimes, overestimated walltimes, or runtimes.

    Clairvoyant schedulers get the runtimes as expected times, as PSUS and Auto On do in SPARS.

    Args:
        timeout_s: Timeout of the power policies, in seconds.
    """

    timeout_s: float = 1500
    title = "what is known of runtimes"
    data = (TRACE,)

    def points(self) -> Sequence[tuple[Workload, str]]:
        """See `Experiment`; jobs, scheduler."""
        jobs = workload()
        return [(jobs, scheduler) for scheduler in OURS]

    def run(self, point: tuple[Workload, str], progress: Progress) -> list[Row]:
        """See `Experiment`; with increasing knowledge of the scheduler."""
        return list(self._rows(*point))

    def _rows(self, jobs: Workload, scheduler: str) -> Iterator[Row]:
        asked = overestimated(jobs)
        for given, expected_s in ((jobs, None), (asked, None), (asked, asked.runtime_ms / 1000)):
            begin = time.perf_counter()
            energy = simulate_cell(given, scheduler, self.timeout_s, expected_s=expected_s)
            run_s = time.perf_counter() - begin
            yield make_row(scheduler, self.timeout_s, "sound", energy, run_s)

    def results(self, found: Sequence[list[Row]]) -> Results:
        """See `Experiment`."""
        heads = ["scheduler"]
        for knows in _KNOWN:
            heads += [f"{knows}\nGJ", "wait\ns"]
        lines = []
        for rows in found:
            lines.append([rows[0].scheduler])
            for row in rows:
                lines[-1] += [f"{row.total_energy_j / 1e9:.3f}", f"{row.mean_wait_s:,.0f}"]
        caption = (
            "overestimated: walltimes drawn between the runtime and five times it, rounded up to round "
            "times; clairvoyant: the same, but the scheduler is told the runtimes"
        )
        title = f"What is known of runtimes (timeout {self.timeout_s / 60:g} min)"
        return Results(tables=[Table(heads, lines, title, caption)])
