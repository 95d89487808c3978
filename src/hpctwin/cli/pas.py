"""``hpctwin experiment pas``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.numbers import AT_LEAST_1

if TYPE_CHECKING:
    from rich.table import Table

    from hpctwin.experiments.pas import Row
    from hpctwin.simulation import Result

__all__ = ["pas"]


def pas(
    *,
    seeds: Annotated[int, AT_LEAST_1] = 10,
    jobs: Annotated[int, AT_LEAST_1] = 5000,
    method: Annotated[tuple[str, ...], Parameter(name=["--method", "-m"])] = (),
    failures: float = 0.0,
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """PAS: jobs that depend on each other and share four resources, beside its Table I.

    Times are milliseconds. Dependencies hold under every method; "if ignored" is what the violations
    would be if the scheduler were not told of them.

    Args:
        seeds: how many workloads, with seeds 0, 1, ….
        jobs: of each workload.
        method: fcfs, sjf, pfm, pas-published, easy, adaptive; all if left out.
        failures: share of the jobs that fail, for what prediction is worth; 0 for none, as in the paper.
        plot: file for a heat map of resources in use over time, of seed 0 (.png, .svg, .pdf).
        json: print one row per method and seed as JSON.
    """
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.experiments import pas as experiment
    from hpctwin.model.progress import progress_bar

    check_outputs(figures=[plot])
    rows: list[Row] = []
    with progress_bar("simulating") as progress:
        for own, results in experiment.run_seeds(
            range(seeds),
            methods=method or tuple(experiment.METHODS),
            jobs=jobs,
            failures=failures,
        ):
            if plot is not None and not rows:
                _figure(results, plot)
            rows += own
            progress(len({row.seed for row in rows}) / seeds)
    if json:
        print_json([row.plain() for row in rows])
        return 0
    console = screen()
    overall = experiment.means(rows)
    console.print(_table(overall))
    console.print(_use(overall))
    if failures:
        console.print(_failures(overall))
    if jobs == experiment.JOBS and not failures:
        console.print(_beside(overall))
        for line in experiment.compared(rows):
            console.print(f"- {line}", highlight=False)
    names = {row.method for row in rows}
    for other in (experiment.THEIRS, "easy"):
        if {experiment.OURS, other} <= names:
            won = experiment.wins(rows, experiment.OURS, other)
            console.print(
                f"{experiment.OURS} beats {other} on makespan and mean wait on {won} of {seeds} workloads"
            )
    return 0


def _new_table(title: str, heads: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=title)
    table.add_column("method", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _table(rows: Sequence[Row]) -> Table:
    many = "" if rows[0].seed == 1 else "s"
    table = _new_table(
        f"Mean over {rows[0].seed} workload{many} of {rows[0].jobs:,} jobs",
        [
            "makespan\nms",
            "mean wait\nms",
            "max wait\nms",
            "viola-\ntions",
            "if\nignored",
            "delayed",
        ],
    )
    for row in rows:
        table.add_row(
            row.method,
            f"{row.makespan:,.0f}",
            f"{row.mean_wait:,.1f}",
            f"{row.max_wait:,.0f}",
            f"{row.dependency_violations:,.0f}",
            f"{row.violations_if_ignored:,.0f}",
            f"{row.delayed:,.0f}",
        )
    return table


def _beside(rows: Sequence[Row]) -> Table:
    from hpctwin.experiments.pas import PUBLISHED

    table = _new_table(
        "Beside Table I of the paper",
        ["makespan\nms", "\npaper", "mean wait\nms", "\npaper", "viola-\ntions", "\npaper"],
    )
    for row in rows:
        theirs = PUBLISHED.get(row.method)
        if theirs is None:
            continue
        table.add_row(
            row.method,
            f"{row.makespan:,.0f}",
            f"{theirs.makespan:,.0f}",
            f"{row.mean_wait:,.1f}",
            f"{theirs.mean_wait:,.1f}",
            f"{row.dependency_violations:,.0f}",
            f"{theirs.dependency_violations:,}",
        )
    return table


def _use(rows: Sequence[Row]) -> Table:
    names = list(rows[0].utilization)
    table = _new_table("Share of each resource in use until the makespan", names)
    for row in rows:
        table.add_row(row.method, *(f"{row.utilization[name]:.1%}" for name in names))
    return table


def _failures(rows: Sequence[Row]) -> Table:
    heads = ["completed", "failed", "cancelled for a\nfailed job", "mean wait of\ncompleted, ms"]
    table = _new_table("Jobs that fail", heads)
    for row in rows:
        table.add_row(
            row.method,
            f"{row.completed:,.0f}",
            f"{row.failed:,.0f}",
            f"{row.cancelled:,.0f}",
            f"{row.mean_wait_completed:,.1f}",
        )
    return table


def _figure(results: dict[str, Result], path: Path) -> None:
    from hpctwin.generate.pas import RESOURCES
    from hpctwin.metrics import resource_use
    from hpctwin.model import MS_PER_S
    from hpctwin.report.resources import plot_resource_use
    from hpctwin.report.saving import save_figure

    ends = {name: float(result.jobs["end_s"].to_numpy().max()) for name, result in results.items()}
    last = max(ends.values())
    use = {
        name: resource_use(result.jobs, result.workload.resources, RESOURCES, until_s=last)
        for name, result in results.items()
    }
    save_figure(
        plot_resource_use(
            use, ends, title="Resources in use, seed 0", unit_s=1 / MS_PER_S, unit="ms"
        ),
        path,
    )
