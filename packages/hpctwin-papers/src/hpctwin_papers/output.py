"""Output of all experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpctwin_papers.experiment import Experiment
    from hpctwin_papers.results import Results


def run_and_show(
    experiment: Experiment[Any, Any],
    *,
    plot: Path | None = None,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Run an experiment and show its results.

    Args:
        out: Folder for its tables and its other figures.
        json: Whether to print its rows as JSON.
    """
    from hpctwin.cli.output import check_outputs

    check_outputs(folders=[out], figures=[plot])
    return show(run_with_progress(experiment), plot=plot, out=out, json=json)


def run_with_progress(experiment: Experiment[Any, Any]) -> Results:
    """Run an experiment with a progress bar."""
    from hpctwin.model.text import progress_bar
    from hpctwin_papers.experiment import run

    with progress_bar(experiment.title) as progress:
        return run(experiment, progress)


def show(
    results: Results, *, plot: Path | None = None, out: Path | None = None, json: bool = False
) -> int:
    """Show the results of an experiment; arguments as of `run_and_show`."""
    from hpctwin.cli.output import print_json, print_table, screen
    from hpctwin_papers.results import comparison_table, write_files

    if results.about:
        screen(stderr=json).print(results.about, highlight=False)
    if plot is not None:
        from hpctwin.report.figures.style import save_figure

        draw, results = results.first_figure()
        save_figure(draw(), plot)
    if out is not None:
        write_files(results, out)
    if json:
        print_json(results.rows)
        return 0
    for table in results.tables:
        print_table(table)
    if results.findings:
        print_table(comparison_table(results.findings))
    console = screen()
    for note in results.notes:
        console.print(note, highlight=False)
    if out is not None:
        console.print(f"figures and tables: {out}")
    return 0
