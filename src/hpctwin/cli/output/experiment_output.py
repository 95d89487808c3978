"""How an experiment is shown: the one printer of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpctwin.experiments.experiment import Experiment
    from hpctwin.experiments.made import Made, Table

__all__ = ["print_table", "run_and_show", "show", "shown_while_run"]


def run_and_show(
    experiment: Experiment[Any, Any],
    *,
    plot: Path | None = None,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Run an experiment and show what it gives.

    Args:
        experiment: what to run.
        plot: file for its first figure.
        out: folder for its tables and its other figures.
        json: print its rows as JSON.

    Raises:
        OutputError: a file cannot be written.
        HpctwinError: it cannot be run.
    """
    from hpctwin.cli.output.output import check_outputs

    check_outputs(folders=[out], figures=[plot])
    return show(shown_while_run(experiment), plot=plot, out=out, json=json)


def shown_while_run(experiment: Experiment[Any, Any]) -> Made:
    """Run an experiment below a bar."""
    from hpctwin.experiments.experiment import run
    from hpctwin.model.text.progress import progress_bar

    with progress_bar(experiment.title) as progress:
        return run(experiment, progress)


def show(
    made: Made, *, plot: Path | None = None, out: Path | None = None, json: bool = False
) -> int:
    """Show what an experiment gave; as `run_and_show`."""
    from hpctwin.cli.output.output import print_json, screen
    from hpctwin.experiments.made import beside, write_all

    if made.about:
        screen(stderr=json).print(made.about, highlight=False)
    if plot is not None:
        from hpctwin.report.figures.saving import save_figure

        draw, made = made.first_figure()
        save_figure(draw(), plot)
    if out is not None:
        write_all(made, out)
    if json:
        print_json(made.rows)
        return 0
    for table in made.tables:
        print_table(table)
    if made.findings:
        print_table(beside(made.findings))
    console = screen()
    for note in made.notes:
        console.print(note, highlight=False)
    if out is not None:
        console.print(f"figures and tables: {out}")
    return 0


def print_table(table: Table) -> None:
    """A table on standard output."""
    from rich import box
    from rich.table import Table as Grid

    from hpctwin.cli.output.output import screen

    grid = Grid(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
        title=table.title or None, caption=table.caption or None,
    )  # fmt: skip
    for number, head in enumerate(table.heads):
        if number < table.words:
            grid.add_column(head, overflow="fold")
        else:
            grid.add_column(head, justify="right", no_wrap=True)
    for number, row in enumerate(table.rows):
        cells = [one if isinstance(one, str) else f"{one[0]}\n[dim]{one[1]}[/]" for one in row]
        grid.add_row(*cells, style="yellow" if number in table.marked else "")
    screen().print(grid)
