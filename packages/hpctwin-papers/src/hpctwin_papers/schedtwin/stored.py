"""Stored runs of SchedTwin's experiment, compared with the emulated cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hpctwin.twin.service.comparison import TWIN, Row, means, objective_table
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results
from hpctwin_papers.schedtwin import experiment
from hpctwin_papers.schedtwin.live import Collected, LiveRun, collected, costs, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Stored(Experiment[list[LiveRun], list[LiveRun]]):
    """The tables of stored runs.

    Args:
        folder: Folder of the runs.
        late_s: Maximum delay of a submission in the experiment's time, in seconds; runs with a
            later one are excluded.
    """

    folder: Path
    late_s: float = 90.0
    title = "the emulated cluster beside stored runs"

    def points(self) -> Sequence[list[LiveRun]]:
        """See `Experiment`; one point, because runs are judged against each other."""
        return [stored(self.folder)]

    def run(self, point: list[LiveRun], progress: Progress) -> list[LiveRun]:
        """See `Experiment`."""
        return point

    def results(self, found: Sequence[list[LiveRun]]) -> Results:
        """See `Experiment`."""
        runs = [run for run in found[0] if run.late_s <= self.late_s]
        parts = {on: part for on, part in collected(runs).items() if part.rows}
        seeds = sorted({row.seed for part in parts.values() for row in part.rows})
        rows = {
            "emulated": [row for one in experiment.run_seeds(seeds) for row in one],
            **{on: part.rows for on, part in parts.items()},
        }
        spent = costs(runs)
        tables = []
        for on, mine in rows.items():
            title = f"{on}: mean over {len({row.seed for row in mine})} workloads"
            caption = "\n".join(_told(mine, spent.get(on), parts.get(on)))
            tables.append(objective_table(means(mine), title=title, caption=caption))
        notes = [
            f"{run.on}, {run.under}, seed {run.seed} omitted: a submission was {run.late_s:.0f} s "
            "late, and that is another workload"
            for run in found[0]
            if run.late_s > self.late_s
        ]
        overall = {on: means(mine) for on, mine in rows.items()}
        plain = [{"on": on, **row.plain()} for on, mine in rows.items() for row in mine]
        return Results(
            figures={"schedtwin-live": partial(_radars, overall)},
            tables=tables,
            notes=notes,
            rows=plain,
        )


def _told(
    rows: Sequence[Row], cost: Mapping[str, float] | None, part: Collected | None
) -> list[str]:
    """Return the lines below a table: wins by method, delays, excluded seeds."""
    won = dict.fromkeys((row.method for row in rows), 0)
    for seed in {row.seed for row in rows}:
        won[min((r for r in rows if r.seed == seed), key=lambda r: r.objective).method] += 1
    lines = ["best of all on: " + ", ".join(f"{m} {n}" for m, n in won.items())]
    if cost is not None:
        lines.append(
            f"first jobs started after {cost['start_s']:.1f} s; jobs held their nodes "
            f"{cost['run_s']:.1f} s longer than they ran; limits {cost['limit_s']:.1f} s longer "
            f"than asked; load {cost['load']:.1f}"
        )
    missing = () if part is None else part.missing
    return lines + [f"seed {seed} omitted: not all methods ran it" for seed in missing]


def _radars(overall: Mapping[str, Sequence[Row]]) -> Figure:
    from hpctwin.report import plot_radars

    # The twin first, so that it has the same color in each chart.
    charts = {
        on: {row.method: row.plain() for row in sorted(rows, key=lambda row: row.method != TWIN)}
        for on, rows in overall.items()
    }
    title = "SchedTwin's experiment, emulated and real (outer is better)"
    return plot_radars(charts, title=title, scale="range")
