"""``hpctwin experiment cqsim-plus``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.numbers import AT_LEAST_1

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hpctwin.experiments.cqsim_plus import Row
    from hpctwin.facility import FacilityResult

__all__ = ["cqsim_plus"]


def cqsim_plus(
    *,
    case: tuple[str, ...] = (),
    strategy: Annotated[tuple[str, ...], Parameter(name=["--strategy", "-s"])] = (),
    more: bool = False,
    seeds: Annotated[int, AT_LEAST_1] = 3,
    figures: Path | None = None,
    json: bool = False,
) -> int:
    """CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.

    The published strategies are run by CQSim+'s own rule, and by ours: SGS-T as published (it knows all
    runtimes: oracle), with walltimes (honest), and with what like jobs ran lately (like-jobs). Traces come
    from the folder in HPCTWIN_TRACES.

    Args:
        case: homogeneous, heterogeneous, theta-polaris; all if left out.
        strategy: further strategies, with walltimes; see `hpctwin facility simulate --help`.
        more: all that goes beyond the paper too: peer, sampled futures, trees, moving, ….
        seeds: for strategies that draw clusters, with seeds 0, 1, ….
        figures: folder for figures like the paper's 5 to 8, and of the waits by bin.
        json: print one row per case, rule, strategy, knowledge and seed as JSON.
    """
    from hpctwin.cli.output import check_outputs, note_reading, print_json, screen
    from hpctwin.errors import UnknownNameError
    from hpctwin.experiments.cqsim_plus import run_case, run_case_by_rule
    from hpctwin.experiments.cqsim_plus_cases import CASES, MORE
    from hpctwin.facility import parse_strategy
    from hpctwin.model.progress import progress_bar

    check_outputs(folders=[figures])
    for name in case:
        if name not in CASES:
            raise UnknownNameError("case", name, CASES)
    console = screen(stderr=json)
    every: list[Row] = []
    for name in case or tuple(CASES):
        chosen = CASES[name].strategies()
        chosen += [parse_strategy(text) for text in strategy]
        if more:
            chosen += MORE()
        workload, about = CASES[name].workload()
        note_reading(workload)
        console.print(f"[bold]{name}[/]: {about}, {len(workload):,} jobs")
        with progress_bar(f"{name}, CQSim+'s rule") as progress:
            rows = run_case_by_rule(
                name, workload, seeds=seeds, progress=lambda _, share: progress(share)
            )
        with progress_bar(name) as progress:
            ours, results = run_case(
                name, workload, chosen, seeds=seeds, progress=lambda _, share: progress(share)
            )
        rows += ours
        every += rows
        if figures is not None:
            _write_figures(name, rows, results, figures)
            console.print(f"figures: {figures}")
        if not json:
            _show(rows, console)
    if json:
        print_json([row.plain() for row in every])
    return 0


def _show(rows: list[Row], console: Console) -> None:
    from hpctwin.experiments.cqsim_plus_cases import EXCHANGED

    console.print(_overall(rows))
    with_bins = [row for row in rows if row.published_wait_min is not None and row.seed == 0]
    for by in ("size", "walltime") if with_bins else ():
        console.print(_bins(with_bins, by))
    told = [row for row in rows if row.ways]
    for row in told:
        console.print(_ways(row))
    if told:
        console.print(EXCHANGED)


def _label(row: Row) -> str:
    rule = "CQSim+'s rule" if row.rule == "cqsim+" else "ours"
    return f"{row.strategy}, {rule}{', ' if row.knowledge else ''}{row.knowledge}"


def _overall(rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("strategy", overflow="fold")
    table.add_column("rule", no_wrap=True)
    table.add_column("knowledge")
    heads = [
        "seed",
        "jobs",
        "wait\nmin",
        "(paper)",
        "turn-\naround",
        "spread",
        "ms a\njob",
        "run\ns",
    ]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
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
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _bins(rows: list[Row], by: str) -> Table:
    """Bins as rows; for each strategy a column of what is published, of CQSim+'s rule and of ours."""
    from rich import box
    from rich.table import Table

    unit = {"size": "nodes", "walltime": "min"}[by]
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
        title=f"mean wait by {by}, min",
        caption="jobs: under the first strategy" if by == "walltime" else None,
    )  # fmt: skip
    table.add_column(f"{by}, {unit}", no_wrap=True)
    table.add_column("jobs", justify="right", no_wrap=True)
    labels = list(dict.fromkeys(one["bin"] for row in rows for one in row.bins[by]))
    columns: list[list[str]] = []
    for strategy in dict.fromkeys(row.strategy for row in rows):
        these = [row for row in rows if row.strategy == strategy]
        paper = {one["bin"]: one["published_wait_min"] for one in these[0].bins[by]}
        table.add_column(f"{strategy}\n(paper)", justify="right", no_wrap=True)
        columns.append([_number(paper.get(label), ".1f") for label in labels])
        for row in these:
            rule = "CQSim+" if row.rule == "cqsim+" else row.knowledge or "ours"
            table.add_column(f"{strategy}\n{rule}", justify="right", no_wrap=True)
            waits = {one["bin"]: one["mean_wait_min"] for one in row.bins[by]}
            columns.append([_number(waits.get(label), ".1f") for label in labels])
    counts = {one["bin"]: one["jobs"] for one in rows[0].bins[by]}
    for index, label in enumerate(labels):
        table.add_row(label, f"{counts.get(label, 0):,}", *(column[index] for column in columns))
    return table


def _ways(row: Row) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
        title=f"{_label(row)}: jobs by where they came from and went (as printed)",
    )  # fmt: skip
    for head in ("from", "to"):
        table.add_column(head)
    for head in ("jobs", "siloed, s", "here, s", "less"):
        table.add_column(head, justify="right")
    for way in row.ways:
        count, alone, wait = way.published
        siloed = way.siloed_min
        less = "" if siloed is None else f"{1 - way.mean_wait_min / siloed:.1%}"
        table.add_row(
            way.origin,
            way.cluster,
            f"{way.jobs:,} ({count:,.0f})",
            "" if siloed is None else f"{60 * siloed:,.0f} ({60 * alone:,.0f})",
            f"{60 * way.mean_wait_min:,.0f} ({60 * wait:,.0f})",
            f"{less} ({1 - wait / alone:.1%})",
        )
    return table


def _write_figures(
    name: str, rows: list[Row], results: dict[str, FacilityResult], folder: Path
) -> None:
    """Draw a case's figures: each that its figures are there for.

    Args:
        name: the case.
        rows: all of its rows, by both rules.
        results: by our rule, by strategy and knowledge, the baseline first.
        folder: where they go.
    """
    from hpctwin.experiments.cqsim_plus_cases import CASES
    from hpctwin.model import write_folder
    from hpctwin.report.facility import (
        plot_moved,
        plot_waits_by_bin,
        plot_waits_by_size,
        plot_weeks,
    )
    from hpctwin.report.saving import save_figure

    baseline, guided = next(iter(results)), "sgs-t oracle"
    pair = {label: results[label] for label in (baseline, guided)}
    made = {"weeks": plot_weeks({label: result.weeks for label, result in pair.items()})}
    with_bins = [row for row in rows if row.published_wait_min is not None and row.seed == 0]
    if with_bins:
        made["bins"] = plot_waits_by_bin(_beside(with_bins), title=f"Mean wait by bin, {name}")
    case = CASES[name]
    jobs = {label: result.jobs for label, result in pair.items()}
    if case.sizes:
        made["waits"] = plot_waits_by_size(jobs, case.sizes)
    if case.ways:
        source, target = case.facility.names
        made["moved"] = plot_moved(jobs, origin=source, cluster=target)
    with write_folder(folder) as new:
        for what, figure in made.items():
            save_figure(figure, new / f"{name}-{what}.png")


def _beside(rows: list[Row]) -> dict[tuple[str, str], dict[str, dict[str, float | None]]]:
    """Waits by bin, by strategy and what bins are made of: the paper's, CQSim+'s rule's and ours."""
    found: dict[tuple[str, str], dict[str, dict[str, float | None]]] = {}
    for by, unit in (("size", "nodes"), ("walltime", "min")):
        for row in rows:
            panel = found.setdefault((row.strategy, f"{by}, {unit}"), {})
            panel.setdefault(
                "paper", {one["bin"]: one["published_wait_min"] for one in row.bins[by]}
            )
            label = "CQSim+'s rule" if row.rule == "cqsim+" else f"ours {row.knowledge}".strip()
            panel[label] = {one["bin"]: one["mean_wait_min"] for one in row.bins[by]}
    return found
