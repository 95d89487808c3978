"""``hpctwin experiments cqsim-plus``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hpctwin.experiments.cqsim_plus import Row
    from hpctwin.facility import FacilityResult

__all__ = ["cqsim_plus"]


def cqsim_plus(
    *,
    case: Annotated[tuple[str, ...], Parameter(name=["--case", "-c"])] = (),
    strategy: Annotated[tuple[str, ...], Parameter(name=["--strategy", "-s"])] = (),
    more: Annotated[bool, Parameter(negative=())] = False,
    seeds: int = 3,
    figures: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.

    SGS-T is run as published (it knows all runtimes: oracle), with walltimes (honest), and with what
    like jobs ran lately (recent). Traces come from the folder in HPCTWIN_TRACES.

    Args:
        case: homogeneous, heterogeneous, theta-polaris; all if left out.
        strategy: further strategies, with walltimes; see `hpctwin facility simulate --help`.
        more: all that goes beyond the paper too: peer, sampled futures, trees, moving, ….
        seeds: for strategies that draw clusters, with seeds 0, 1, ….
        figures: folder for figures like the paper's 5 to 8.
        json: print one row per case, strategy, knowledge and seed as JSON.
    """
    from rich.console import Console

    from hpctwin.cli.output import note_reading, print_json, progress_bar
    from hpctwin.errors import ConfigError, UnknownNameError
    from hpctwin.experiments import cqsim_plus as experiment
    from hpctwin.facility import parse_strategy

    if seeds < 1:
        raise ConfigError(f"--seeds is {seeds}, it must be at least 1")
    for name in case:
        if name not in experiment.CASES:
            raise UnknownNameError("case", name, experiment.CASES)
    console = Console(stderr=json)
    every: list[Row] = []
    for name in case or tuple(experiment.CASES):
        chosen = experiment.CASES[name].strategies()
        chosen += [parse_strategy(text) for text in strategy]
        if more:
            chosen += experiment.MORE()
        workload, about = experiment.CASES[name].workload()
        note_reading(workload)
        console.print(f"[bold]{name}[/]: {about}, {len(workload):,} jobs")
        with progress_bar(name) as progress:
            rows, results = experiment.run_case(
                name, workload, chosen, seeds=seeds, progress=lambda _, share: progress(share)
            )
        every += rows
        if figures is not None:
            _figures(name, results, figures, console)
        if not json:
            _show(rows, console)
    if json:
        print_json([row.plain() for row in every])
    return 0


def _show(rows: list[Row], console: Console) -> None:
    console.print(_overall(rows))
    with_bins = [row for row in rows if row.published_wait_min is not None and row.seed == 0]
    for by in ("size", "walltime") if with_bins else ():
        console.print(_bins(with_bins, by))
    for row in rows:
        if row.ways:
            console.print(_ways(row))


def _overall(rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("strategy", overflow="fold")
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
        paper = row.published_wait_min
        spread = row.utilization_spread
        table.add_row(
            row.strategy,
            row.knowledge,
            str(row.seed),
            f"{row.jobs:,}",
            f"{row.mean_wait_min:.1f}",
            "" if paper is None else f"{paper:.1f}",
            f"{row.mean_turnaround_min:.1f}",
            "" if spread is None else f"{spread:.1%}",
            f"{row.decision_ms_mean:.2f}",
            f"{row.run_s:.1f}",
        )
    return table


def _bins(rows: list[Row], by: str) -> Table:
    """Bins as rows; a column for each row, and one for each strategy's published figures."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
        title=f"mean wait by {by}, min",
    )  # fmt: skip
    table.add_column(by, no_wrap=True)
    table.add_column("jobs", justify="right", no_wrap=True)
    cells: dict[str, list[str]] = {}
    last = ""
    for row in rows:
        published = row.strategy != last
        last = row.strategy
        if published:
            table.add_column(f"{row.strategy}\n(paper)", justify="right", no_wrap=True)
        table.add_column(f"{row.strategy}\n{row.knowledge}", justify="right", no_wrap=True)
        for one in row.bins[by]:
            texts = cells.setdefault(one["bin"], [f"{one['jobs']:,}"])
            if published:
                paper = one["published_wait_min"]
                texts.append("" if paper is None else f"({paper:.1f})")
            texts.append(f"{one['mean_wait_min']:.1f}")
    for label, texts in cells.items():
        table.add_row(label, *texts)
    return table


def _ways(row: Row) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
        title=f"{row.strategy}, {row.knowledge}: jobs by where they came from and went (published)",
    )  # fmt: skip
    for head in ("from", "to"):
        table.add_column(head)
    for head in ("jobs", "siloed, min", "here, min", "less"):
        table.add_column(head, justify="right")
    for way in row.ways:
        count, alone, wait = way.published
        siloed = way.siloed_min
        less = "" if siloed is None else f"{1 - way.mean_wait_min / siloed:.1%}"
        table.add_row(
            way.origin,
            way.cluster,
            f"{way.jobs:,} ({count:,.0f})",
            "" if siloed is None else f"{siloed:.1f} ({alone:.1f})",
            f"{way.mean_wait_min:.1f} ({wait:.1f})",
            f"{less} ({1 - wait / alone:.1%})",
        )
    return table


def _figures(name: str, results: dict[str, FacilityResult], folder: Path, console: Console) -> None:
    from hpctwin.report.accessor import save_figure
    from hpctwin.report.facility import plot_moved, plot_waits_by_size, plot_weeks

    folder.mkdir(parents=True, exist_ok=True)
    first, guided = next(iter(results)), "sgs-t oracle"
    pair = {label: results[label] for label in (first, guided)}
    made = {f"{name}-weeks.png": plot_weeks({k: r.weeks for k, r in pair.items()})}
    if name == "theta-polaris":
        jobs = {label: result.jobs for label, result in pair.items()}
        edges = {
            "polaris": (1, 8, 32, 64, 128, 256, 560),
            "theta": (1, 128, 256, 512, 1024, 2180, 4360),
        }
        made[f"{name}-waits.png"] = plot_waits_by_size(jobs, edges)
        made[f"{name}-moved.png"] = plot_moved(jobs, origin="polaris", cluster="theta")
    for file, figure in made.items():
        save_figure(figure, folder / file)
        console.print(f"figure: {folder / file}")
