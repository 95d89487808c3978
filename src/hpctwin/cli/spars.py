"""``hpctwin experiment spars``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hpctwin.experiments.spars import Effect, Row
    from hpctwin.model import Workload

__all__ = ["spars"]


def spars(
    *,
    method: Annotated[tuple[str, ...], Parameter(name=["--method", "-m"])] = (),
    timeout: Annotated[tuple[str, ...], Parameter(name=["--timeout", "-t"])] = (),
    more: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """SPARS (SoftwareX 34, 102693): six schedulers, twelve timeouts, beside its published results.

    The FCFS forms are run by the published rule too. The workload is the last fifth of the NASA iPSC/860
    log, which the folder in HPCTWIN_TRACES must have.

    Args:
        method: some of fcfs-psus, easy-psus, fcfs-auto, easy-auto, fcfs-ipm, easy-ipm; all if left out.
        timeout: idle so long, a node is switched off, such as 20m; 5 to 60 minutes if left out.
        more: also what each published fault alone moves, overestimated walltimes, and wfp-ipm, which is
            ahead of all six.
        out: folder for figures and tables.
        json: print one row per scheduler, timeout and rule as JSON.
    """
    from hpctwin.cli.output import check_outputs, print_json, screen
    from hpctwin.errors import ConfigError, UnknownNameError
    from hpctwin.experiments import spars as experiment
    from hpctwin.experiments.spars_published import TIMEOUTS_S
    from hpctwin.model import parse_duration_s
    from hpctwin.model.progress import progress_bar

    check_outputs(folders=[out])
    known = (*experiment.SCHEDULERS, experiment.BEST)
    for name in method:
        if name not in known:
            raise UnknownNameError("scheduler", name, known)
    timeouts = tuple(parse_duration_s(text) for text in timeout) or TIMEOUTS_S
    if any(not seconds >= 0 for seconds in timeouts):
        raise ConfigError(f"--timeout {min(timeouts):g} s must be 0 or more")
    chosen = method or (known if more or out is not None else tuple(experiment.SCHEDULERS))
    workload = experiment.workload()
    console = screen(stderr=json)
    console.print(
        f"[bold]{workload.name}[/]: {len(workload):,} jobs on {experiment.MACHINE.node_count} nodes"
    )
    with progress_bar("simulating") as progress:
        rows = list(
            experiment.run(workload, schedulers=chosen, timeouts_s=timeouts, progress=progress)
        )
    if out is not None:
        _write(out, workload, rows, console)
    if json:
        print_json([row.plain() for row in rows])
        return 0
    for rule in ("as-published", "sound"):
        for title, value in (("total energy, GJ", _joules), ("mean wait, s", _wait)):
            console.print(_table(rows, rule, title, value))
    console.print(_verdict(rows))
    if more:
        with progress_bar("each fault alone") as progress:
            console.print(
                _effects(list(experiment.effects(workload, timeouts_s=timeouts, progress=progress)))
            )
        middle = timeouts[len(timeouts) // 3]
        console.print(_knowledge(list(experiment.knowledge(workload, middle)), middle))
    return 0


def _joules(total_j: float, wait_s: float) -> str:
    return f"{total_j / 1e9:.3f}"


def _wait(total_j: float, wait_s: float) -> str:
    return f"{wait_s:,.0f}"


def _plain_table(title: str, caption: str = "") -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=title, caption=caption
    )


def _table(
    rows: Sequence[Row], rule: str, title: str, value: Callable[[float, float], str]
) -> Table:
    """Ours by timeout, with the published figure below; Batsim's EASY-PSUS beside them."""
    from hpctwin.experiments.spars_published import published

    mine = [row for row in rows if row.rule == rule]
    names = list(dict.fromkeys(row.scheduler for row in mine))
    table = _plain_table(f"{title} ({rule} rule)", "below each: what SPARS published")
    table.add_column("timeout\nmin", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name.replace("-", "\n"), justify="right", no_wrap=True)
    if rule == "sound":
        table.add_column("easy\nbatsim", justify="right", no_wrap=True)
    for timeout_s in dict.fromkeys(row.timeout_s for row in mine):
        cells = [f"{timeout_s / 60:g}"]
        for row in mine:
            if row.timeout_s == timeout_s:
                text = value(row.total_energy_j, row.mean_wait_s)
                theirs = row.published
                more = f"\n[dim]{value(theirs.total_j, theirs.mean_wait_s)}[/]" if theirs else ""
                cells.append(text + more)
        batsim = published("batsim", timeout_s)
        if rule == "sound" and batsim is not None:
            cells.append(f"\n[dim]{value(batsim.total_j, batsim.mean_wait_s)}[/]")
        table.add_row(*cells)
    return table


def _verdict(rows: Sequence[Row]) -> str:
    """How far the published rule is met, and where ours is ahead."""
    from hpctwin.experiments.spars_published import published

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
    return "\n".join(lines)


def _effects(found: Sequence[Effect]) -> Table:
    table = _plain_table(
        "What each published fault alone moves",
        "on top of the sound rule: mean over the timeouts; least and most change of the mean wait at one of "
        "them; most that the longest wait grows",
    )
    table.add_column("scheduler")
    table.add_column("fault")
    for head in (
        "energy\nGJ",
        "mean wait\ns",
        "least … most\ns",
        "max wait\ns",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            one.scheduler,
            one.fault,
            f"{one.energy_j / 1e9:+.3f}",
            f"{one.mean_wait_s:+,.0f}",
            f"{one.least_wait_s:+,.0f} … {one.most_wait_s:+,.0f}",
            f"{one.max_wait_s:+,.0f}",
        )
    return table


def _knowledge(found: Sequence[tuple[str, str, Row]], timeout_s: float) -> Table:
    table = _plain_table(
        f"What is known of runtimes (timeout {timeout_s / 60:g} min)",
        "overestimated: walltimes drawn between the runtime and five times it, rounded up to round times; "
        "clairvoyant: the same, but the scheduler is told the runtimes",
    )
    table.add_column("scheduler")
    for knows in ("honest", "overestimated", "clairvoyant"):
        table.add_column(f"{knows}\nGJ", justify="right", no_wrap=True)
        table.add_column("wait\ns", justify="right", no_wrap=True)
    for name in dict.fromkeys(scheduler for scheduler, _, _ in found):
        cells = []
        for scheduler, _, row in found:
            if scheduler == name:
                cells += [f"{row.total_energy_j / 1e9:.3f}", f"{row.mean_wait_s:,.0f}"]
        table.add_row(name, *cells)
    return table


def _write(folder: Path, workload: Workload, rows: Sequence[Row], console: Console) -> None:
    """Figures and tables into a folder."""
    import json

    import polars as pl

    from hpctwin.experiments import spars as experiment
    from hpctwin.experiments.spars_published import (
        COMPUTE_ALONE_J,
        NO_MANAGEMENT_J,
        PUBLISHED,
        TIMEOUTS_S,
        published,
    )
    from hpctwin.model import write_atomically, write_folder
    from hpctwin.report.energy import (
        plot_by_timeout,
        plot_energy_against_wait,
        plot_node_states,
        plot_power,
    )
    from hpctwin.report.saving import save_figure

    flat = pl.DataFrame(
        [
            {key: value for key, value in row.plain().items() if not isinstance(value, dict)}
            for row in rows
        ]
    ).drop("published", strict=False)
    sound = {
        name: [
            (row.timeout_s, row.total_energy_j, row.mean_wait_s)
            for row in rows
            if row.scheduler == name and row.rule == "sound"
        ]
        for name in dict.fromkeys(row.scheduler for row in rows)
    }
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
        for name, points in sound.items()
        if not name.startswith("fcfs")
    }
    figures = {
        "pareto": plot_energy_against_wait(
            ours,
            published=theirs,
            bounds={"no power management": NO_MANAGEMENT_J, "compute alone": COMPUTE_ALONE_J},
            title="Energy against waiting, timeouts of 5 to 60 minutes",
        ),
        "by-timeout": plot_by_timeout(sound, title="By timeout, sound rule"),
    }
    runs = {
        name: experiment.simulate_cell(workload, name, 1200, log=True)
        for name in ("easy-psus", "easy-ipm")
    }
    for name, energy in runs.items():
        figures[f"states-{name}"] = plot_node_states(
            energy, end_s=2 * 86400, title=f"Node states of {name}, timeout 20 min, first two days"
        )
    figures["power"] = plot_power(runs, title="Power drawn, timeout 20 min")
    with write_folder(folder) as new:
        with write_atomically(new / "cells.json") as file:
            file.write(json.dumps([row.plain() for row in rows], indent=2).encode())
        with write_atomically(new / "cells.csv") as file:
            flat.write_csv(file)
        for name, figure in figures.items():
            save_figure(figure, new / f"{name}.png")
    console.print(f"figures and tables: {folder}")
