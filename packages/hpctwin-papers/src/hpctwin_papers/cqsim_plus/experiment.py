"""CQSim+'s experiment: cases under strategies, by CQSim+'s and hpctwin's rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from hpctwin.errors import UnknownNameError
from hpctwin.facility import FacilityResult, Strategy, parse_strategy
from hpctwin.model import Workload
from hpctwin.report.columns import Table
from hpctwin_papers.cqsim_plus.cases import CASES, EXCHANGED, MORE, PUBLISHED_WAYS
from hpctwin_papers.cqsim_plus.tables import Row, run_by_our_rule, run_by_their_rule, ways
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GUIDED = ("sgs-t", "oracle")
"""The paper's strategy, and its knowledge."""
TABLES = {
    ("homogeneous", "size"): "cqsim-plus-table-1",
    ("homogeneous", "walltime"): "cqsim-plus-table-2",
    ("heterogeneous", "size"): "cqsim-plus-table-3",
    ("heterogeneous", "walltime"): "cqsim-plus-table-4",
    ("theta-polaris", "ways"): "cqsim-plus-table-5",
}
FIGURES = {
    ("homogeneous", "weeks"): "cqsim-plus-figure-5",
    ("heterogeneous", "weeks"): "cqsim-plus-figure-6",
    ("theta-polaris", "sizes"): "cqsim-plus-figure-7",
    ("theta-polaris", "moved"): "cqsim-plus-figure-8",
}


@dataclass(frozen=True, eq=False)
class Point:
    """One strategy in one case.

    Args:
        case: Name of the case.
        jobs, about: Jobs of the case, and their description.
        strategy: Strategy; a name stands for CQSim+'s rule.
        seed: Seed of the draws.
    """

    case: str
    jobs: Workload
    about: str
    strategy: str | Strategy
    seed: int


@dataclass(frozen=True, eq=False)
class Run:
    """Result of one strategy in one case.

    Args:
        about: Description of the simulation.
        row: Metrics of the result.
        jobs: Jobs with their origins and destinations.
        result: Result by hpctwin's rule; None by CQSim+'s.
    """

    about: str
    row: Row
    jobs: pl.DataFrame
    result: FacilityResult | None


@dataclass(frozen=True)
class CqsimPlus(Experiment[Point, Run]):
    """Jobs distributed to two clusters.

    Args:
        cases: Some of `CASES`.
        by_rule: Whether the published strategies also run by CQSim+'s rule.
        ours: Strategies by hpctwin's rule: all, ``pair`` for the baseline and SGS-T as published,
            or none.
        further: Strategies in addition to those of the case.
        more: Whether extensions of the paper also run.
        seeds: Number of seeds 0, 1, … for strategies that draw clusters.
    """

    cases: tuple[str, ...] = tuple(CASES)
    by_rule: bool = True
    ours: str = "all"
    further: tuple[str, ...] = ()
    more: bool = False
    seeds: int = 3
    title = "CQSim+'s clusters"
    serial = True

    def points(self) -> Sequence[Point]:
        """See `Experiment`."""
        for name in self.cases:
            if name not in CASES:
                raise UnknownNameError("case", name, CASES)
        found = []
        for name in self.cases:
            ours = self._ours(name)
            jobs, words = CASES[name].workload()
            about = f"{name}: {words}, {len(jobs):,} jobs"
            by_rule = CASES[name].by_rule if self.by_rule else ()
            strategies: list[str | Strategy] = [*by_rule, *ours]
            for one in strategies:
                draws = str(getattr(one, "name", one)).startswith(("random", "user"))
                seeds = range(self.seeds if draws else 1)
                found += [Point(name, jobs, about, one, seed) for seed in seeds]
        return found

    def _ours(self, case: str) -> list[Strategy]:
        if self.ours == "none":
            return []
        published = CASES[case].strategies()
        if self.ours == "pair":
            return [published[0], next(one for one in published if one.name == GUIDED[0])]
        chosen = [*published, *map(parse_strategy, self.further)]
        return chosen + (MORE() if self.more else [])

    def run(self, point: Point, progress: Progress) -> Run:
        """See `Experiment`."""
        if isinstance(point.strategy, str):
            ran = run_by_their_rule(point.case, point.jobs, point.strategy, point.seed, progress)
            return Run(point.about, *ran, None)
        row, result = run_by_our_rule(point.case, point.jobs, point.strategy, point.seed, progress)
        return Run(point.about, row, result.jobs, result)

    def results(self, found: Sequence[Run]) -> Results:
        """See `Experiment`."""
        runs = _with_ways(found)
        rows = [one.row for one in runs]
        tables: list[Table] = []
        figures: dict[str, Callable[[], Figure]] = {}
        findings: list[Finding] = []
        for name in self.cases:
            mine = [one for one in runs if one.row.case == name]
            tables += _tables(name, [one.row for one in mine])
            figures |= _figures(name, mine)
            findings += compared([one.row for one in mine if one.row.rule == "cqsim+"])
        notes = [EXCHANGED] if any(row.ways for row in rows) else []
        about = "\n".join(dict.fromkeys(one.about for one in runs))
        return Results(findings, figures, tables, notes, about, [row.plain() for row in rows])


def _with_ways(runs: Sequence[Run]) -> list[Run]:
    """Add the destinations under SGS-T, with the same jobs siloed by the same rule."""
    siloed = {
        (one.row.case, one.row.rule): one.jobs for one in runs if one.row.strategy == "siloed"
    }
    told = []
    for one in runs:
        row = one.row
        if CASES[row.case].ways and row.strategy.startswith("sgs-t"):
            row = dataclasses.replace(row, ways=ways(one.jobs, siloed.get((row.case, row.rule))))
        told.append(dataclasses.replace(one, row=row))
    return told


def compared(rows: Sequence[Row]) -> list[Finding]:
    """Compare tables 1 to 5 with the results by CQSim+'s rule with seed 0."""
    findings = []
    for by in ("size", "walltime"):
        for row in rows:
            if row.seed or row.published_wait_min is None:
                continue
            # The paper used other random numbers.
            within = 0.001 if row.strategy == "sgs-t" else 0.15
            unit, entries = "nodes" if by == "size" else "min", (TABLES[row.case, by],)
            waits = [
                (f"{one['bin']} {unit}", one["published_wait_min"], one["mean_wait_min"])
                for one in row.bins[by]
            ]
            waits.append(("all", row.published_wait_min, row.mean_wait_min))
            findings += [
                Finding(
                    f"{row.strategy}, {what}, mean wait, min", there, here, within, entries=entries
                )
                for what, there, here in waits
                if there is not None and here is not None
            ]
    entries = (TABLES["theta-polaris", "ways"],)
    for row in rows:
        for way, (origin, cluster, jobs, alone_s, wait_s) in zip(
            row.ways, PUBLISHED_WAYS, strict=False
        ):
            findings += [
                Finding(f"{origin} to {cluster}, {what}", there, here, 0.001, ",.0f", entries)
                for what, there, here in (
                    ("jobs", jobs, way.jobs),
                    ("mean wait siloed, s", alone_s, 60 * (way.siloed_min or 0.0)),
                    ("mean wait, s", wait_s, 60 * way.mean_wait_min),
                )
            ]
    return findings


def _tables(case: str, rows: Sequence[Row]) -> list[Table]:
    tables = [_overall(case, rows)]
    with_bins = [row for row in rows if row.published_wait_min is not None and row.seed == 0]
    if with_bins:
        tables += [_bins(with_bins, by) for by in ("size", "walltime")]
    return tables + [_ways(row) for row in rows if row.ways]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _overall(case: str, rows: Sequence[Row]) -> Table:
    heads = [
        "strategy", "rule", "knowledge", "seed", "jobs", "wait\nmin", "(paper)", "turn-\naround", "spread",
        "ms a\njob", "run\ns",
    ]  # fmt: skip
    lines = [
        [
            row.strategy,
            row.rule,
            row.knowledge,
            str(row.seed),
            f"{row.jobs:,}",
            f"{row.mean_wait_min:.1f}",
            _number(row.published_wait_min, ".1f"),
            f"{row.mean_turnaround_min:.1f}",
            _number(row.utilization_spread, ".1%"),
            _number(row.decision_ms_mean, ".2f"),
            f"{row.run_s:.1f}",
        ]
        for row in rows
    ]
    return Table(heads, lines, case, words=3)


def _bins(rows: Sequence[Row], by: str) -> Table:
    """Return bins as rows; columns are published, CQSim+'s and hpctwin's waits."""
    unit = {"size": "nodes", "walltime": "min"}[by]
    labels = list(dict.fromkeys(one["bin"] for row in rows for one in row.bins[by]))
    counts = {one["bin"]: one["jobs"] for one in rows[0].bins[by]}
    heads = [f"{by}, {unit}", "jobs"]
    columns = [labels, [f"{counts.get(label, 0):,}" for label in labels]]
    for strategy in dict.fromkeys(row.strategy for row in rows):
        for label, waits in _beside(rows, strategy, by).items():
            heads.append(f"{strategy}\n{label}")
            columns.append([_number(waits.get(one), ".1f") for one in labels])
    return Table(
        heads, list(zip(*columns, strict=True)), f"mean wait by {by}, min",
        "jobs: under the first strategy" if by == "walltime" else "",
    )  # fmt: skip


def _beside(rows: Sequence[Row], strategy: str, by: str) -> dict[str, dict[str, float | None]]:
    """Return waits by bin: of the paper, of CQSim+'s rule and of hpctwin's rule."""
    these = [row for row in rows if row.strategy == strategy]
    found = {"paper": {one["bin"]: one["published_wait_min"] for one in these[0].bins[by]}}
    for row in these:
        label = "CQSim+'s rule" if row.rule == "cqsim+" else f"ours {row.knowledge}".strip()
        found[label] = {one["bin"]: one["mean_wait_min"] for one in row.bins[by]}
    return found


def _ways(row: Row) -> Table:
    rule = "CQSim+'s rule" if row.rule == "cqsim+" else "ours"
    label = f"{row.strategy}, {rule}{', ' if row.knowledge else ''}{row.knowledge}"
    lines = []
    for way in row.ways:
        count, alone, wait = way.published
        siloed = way.siloed_min
        less = "" if siloed is None else f"{1 - way.mean_wait_min / siloed:.1%}"
        lines.append(
            [
                way.origin,
                way.cluster,
                f"{way.jobs:,} ({count:,.0f})",
                "" if siloed is None else f"{60 * siloed:,.0f} ({60 * alone:,.0f})",
                f"{60 * way.mean_wait_min:,.0f} ({60 * wait:,.0f})",
                f"{less} ({1 - wait / alone:.1%})",
            ]
        )
    title = f"{label}: jobs by where they came from and went (as printed)"
    return Table(["from", "to", "jobs", "siloed, s", "here, s", "less"], lines, title, words=2)


def _figures(case: str, runs: Sequence[Run]) -> dict[str, Callable[[], Figure]]:
    """Return the figures of a case for which there are results."""
    made: dict[str, Callable[[], Figure]] = {}
    ours = [one for one in runs if one.result is not None and one.row.seed == 0]
    guided = [one for one in ours if (one.row.strategy, one.row.knowledge) == GUIDED]
    if guided:
        pair = {
            f"{one.row.strategy} {one.row.knowledge}".strip(): one.result
            for one in (ours[0], guided[0])
            if one.result is not None
        }
        jobs = {label: result.jobs for label, result in pair.items()}
        made["weeks"] = partial(_weeks, {label: one.weeks for label, one in pair.items()})
        if CASES[case].sizes:
            made["sizes"] = partial(_sizes, jobs, case)
        if CASES[case].ways:
            made["moved"] = partial(_moved, jobs, case)
    with_bins = [
        one.row for one in runs if one.row.published_wait_min is not None and one.row.seed == 0
    ]
    if with_bins:
        made["bins"] = partial(_waits, with_bins, case)
    return {FIGURES.get((case, name), f"cqsim-plus-{case}-{name}"): d for name, d in made.items()}


def _weeks(weeks: dict[str, pl.DataFrame]) -> Figure:
    from hpctwin.report.facility import plot_weeks

    return plot_weeks(weeks)


def _sizes(jobs: dict[str, pl.DataFrame], case: str) -> Figure:
    from hpctwin.report.facility import plot_waits_by_size

    return plot_waits_by_size(jobs, CASES[case].sizes)


def _moved(jobs: dict[str, pl.DataFrame], case: str) -> Figure:
    from hpctwin.report.facility import plot_moved

    origin, cluster = CASES[case].facility.names
    return plot_moved(jobs, origin=origin, cluster=cluster)


def _waits(rows: Sequence[Row], case: str) -> Figure:
    from hpctwin.report.facility import plot_waits_by_bin

    panels = {
        (strategy, f"{by}, {unit}"): _beside(rows, strategy, by)
        for by, unit in (("size", "nodes"), ("walltime", "min"))
        for strategy in dict.fromkeys(row.strategy for row in rows)
    }
    return plot_waits_by_bin(panels, title=f"Mean wait by bin, {case}")
