"""Output of commands: files, tables, JSON, notes, and usage errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as Grid

    from hpctwin.facility import Facility
    from hpctwin.model import Cluster, ReadNotes, Workload
    from hpctwin.report.columns import Table
    from hpctwin.simulation import Result, Simulation

__all__ = [
    "as_json",
    "check_outputs",
    "in_our_words",
    "need_jobs",
    "note_classes",
    "note_doomed",
    "note_facility",
    "note_no_network",
    "note_of",
    "note_reading",
    "note_rejected",
    "note_unstarted",
    "note_walltimes",
    "note_without_effect",
    "plain_table",
    "print_json",
    "print_lines",
    "print_table",
    "screen",
    "with_notes",
]

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def _kind(found: re.Match[str]) -> str:
    return f"{found[1]} is '{found[2]}'; it must be {_KINDS.get(found[3], f'a {found[3]}')}"


def _choice(found: re.Match[str]) -> str:
    names = found[3].replace('"', "")
    return f"{found[2]} is '{found[1]}'; it must be one of {names}.{found[4] or ''}"


def _missing(found: re.Match[str]) -> str:
    if found[2].startswith("-"):
        return f"{found[2]} needs a value"
    return f"{found[2]} is missing; see hpctwin {found[1]} --help"


_WORDS = (
    (r'Invalid value for (\S+): unable to convert "(.*)" into (\w+)\.', _kind),
    (r'Invalid value "(.*)" for (\S+)\. Choose from: (.*?)\.( Did you mean .*)?', _choice),
    (
        r'Invalid value "(.*)" for (\S+)\. Must be >= (\S+)\.',
        "\\2 is '\\1'; it must be \\3 or more",
    ),
    (r'Command "(.*)" parameter (\S+) requires an argument\.', _missing),
    (r"Parameter (\S+) specified multiple times\.", "\\1 is given twice; give it once"),
    (r"Unused Tokens: \[(.*)\]\.", "\\1 is not accepted here; see --help"),
)


def in_our_words(message: str) -> str:
    """Return a message of cyclopts in this wording; unchanged if it is not a known one."""
    for pattern, words in _WORDS:
        found = re.fullmatch(pattern, message, re.DOTALL)
        if found is not None:
            return words(found) if callable(words) else found.expand(words)
    return message


def check_outputs(
    *sources: Path,
    folders: Iterable[Path | None] = (),
    files: Iterable[Path | None] = (),
    figures: Iterable[Path | None] = (),
) -> None:
    """Check before the work that its results can be written afterwards.

    Args:
        sources: Input files, which must not be overwritten.
        folders, files, figures: Outputs; None for those not requested.

    Raises:
        ConfigError: An output is also a source, or a figure's suffix is not one of a figure.
        OutputError: A file or folder cannot be written.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.model import check_file, check_folder

    for folder in filter(None, folders):
        check_folder(folder)
    for figure in filter(None, figures):
        from hpctwin.report.figures.style import check_figure

        check_figure(figure)
    for file in filter(None, (*files, *figures)):
        check_file(file)
        for source in sources:
            if file.exists() and source.exists() and file.samefile(source):
                raise ConfigError(f"{file} is the input file; write to another file")


def as_json(value: Any) -> str:
    """Return a value as one JSON document."""
    return json.dumps(value, indent=2, default=str)


def screen(*, stderr: bool = False, highlight: bool = True, latex: bool = False) -> Console:
    """Return the console for tables: terminal width; no wrapping in a pipe or a file.

    Args:
        stderr: Whether it prints on standard error.
        highlight: Whether numbers are colored.
        latex: Whether it prints tables as LaTeX, and other lines as its comments.
    """
    from rich.console import Console

    if latex:
        from hpctwin.report.latex import as_latex

        class LatexConsole(Console):
            def print(self, *shown: Any, **_: Any) -> None:
                for one in shown:
                    print(as_latex(one))

        return LatexConsole(width=100_000)
    console = Console(stderr=stderr, highlight=highlight)
    if not console.file.isatty():  # FORCE_COLOR, which Jupyter sets, makes no terminal
        console.width = 100_000
    return console


def plain_table(
    heads: Iterable[str],
    rows: Iterable[Iterable[RenderableType]],
    *,
    numbers: slice = slice(0),
) -> Grid:
    """Return a table without lines.

    Args:
        heads: Column headers.
        rows: Cells, as many per row as headers.
        numbers: Columns aligned to the right.
    """
    from hpctwin.report.verbatim import VerbatimTable

    table = VerbatimTable(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for column in table.columns[numbers]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    return table


def print_json(value: Any) -> None:
    """Print a value as one JSON document on standard output."""
    print(as_json(value))


def print_lines(lines: Iterable[str]) -> None:
    """Print sentences on standard output: wrapped in a terminal, elsewhere one per line."""
    import shutil
    from textwrap import fill

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        if width and len(line) > width:
            # A path is not wrapped, so that it can be copied.
            line = fill(
                line,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        print(line)


def note_reading(workload: Workload) -> None:
    """Report on standard error what the reader changed or excluded."""
    note_of(workload.name, workload.notes)


def note_of(name: str, notes: ReadNotes) -> None:
    """Report the notes of any reader on standard error, as `note_reading` does."""
    for remark in notes.remarks:
        print(f"{name}: {remark}", file=sys.stderr)
    for what, count in notes.counts.items():
        print(f"{name}: {count:,} × {what}", file=sys.stderr)
    for message in notes.skipped[:10]:
        print(f"skipped: {message}", file=sys.stderr)
    if len(notes.skipped) > 10:
        print(f"… and {len(notes.skipped) - 10:,} more skipped", file=sys.stderr)


def need_jobs(workload: Workload) -> None:
    """Raise an error if there is nothing to simulate.

    Raises:
        WorkloadError: The workload has no jobs.
    """
    from hpctwin.errors import WorkloadError

    if not len(workload):
        raise WorkloadError(
            f"{workload.name} contains no jobs to simulate; give a trace, or a part of one, with at "
            "least one job"
        )


def note_without_effect(workload: Workload, cluster: Cluster) -> None:
    """Report on standard error the ignored job fields, and the assumptions."""
    from hpctwin.model.demand import unused

    for sentence in unused(workload, cluster):
        print(f"{workload.name}: {sentence}", file=sys.stderr)


def note_no_network(workload: Workload) -> None:
    """Report on standard error that a command ignores what jobs compute and communicate."""
    if workload.demands:
        print(
            f"{workload.name}: columns of computation, communication, reads and writes are ignored, "
            "because this command does not simulate the network",
            file=sys.stderr,
        )


def note_facility(workload: Workload, facility: Facility) -> list[str]:
    """Report as `note_without_effect`, for each cluster of a facility, and as `note_no_network`.

    Returns:
        The reader's notes, then these sentences.
    """
    from hpctwin.facility.jobs import facility_jobs

    notes = facility_jobs(facility, workload).notes(facility)
    for sentence in notes[len(workload.notes.sentences()) :]:
        print(f"{workload.name}: {sentence}", file=sys.stderr)
    note_no_network(workload)
    return notes


def with_notes(notes: Iterable[str]) -> dict[str, list[str]]:
    """Return the ``notes`` entry of a JSON document; empty without notes."""
    said = [*notes]
    return {"notes": said} if said else {}


def note_classes(workload: Workload, by: str | None) -> None:
    """Report on standard error that no job has the field of the breakdown."""
    labels = getattr(workload, by or "", None)
    if by in ("user", "account", "partition") and len(workload) and not labels.labels:  # type: ignore[union-attr]
        print(f"{workload.name}: --by {by}: no job has a {by}", file=sys.stderr)


def note_rejected(result: Result) -> int:
    """Report on standard error how many jobs the cluster can never run, and why.

    Returns:
        The exit code: 1 if the cluster rejected all jobs, so nothing was simulated; else 0, because
        a cluster that rejects some jobs works as intended.
    """
    counts = result.rejection_reasons
    rejected, jobs = sum(counts.values()), len(result.workload)
    if rejected:
        reasons = "; ".join(f"{count:,} {clause}" for clause, count in counts.items())
        print(
            f"{result.workload.name}: {rejected:,} of {jobs:,} jobs "
            f"({rejected / jobs:.0%}) were rejected, because they can never run on cluster "
            f"{result.cluster.name!r}: {reasons}",
            file=sys.stderr,
        )
    return int(rejected == jobs)


def note_walltimes(result: Result, sharing: str | None) -> None:
    """Report on standard error that walltimes ended many jobs, or that an input had no effect.

    Args:
        result: Result of a simulation.
        sharing: How jobs were to share the network; None if they were not.
    """
    from hpctwin.simulation.result.result import unshared_notes, walltime_notes

    for note in (*unshared_notes(result.workload), *walltime_notes(result.figures)):
        print(f"{result.workload.name}: {note}", file=sys.stderr)
    if sharing is not None and "contention_slowdown" not in result.jobs.columns:
        print(
            f"{result.workload.name}: no job computes, communicates, reads or writes, so --sharing "
            "has no effect",
            file=sys.stderr,
        )


def note_unstarted(result: Result) -> None:
    """Report on standard error that jobs never started, if a whole simulation left some."""
    from hpctwin.simulation.result.result import unstarted_notes

    for note in unstarted_notes(result.figures):
        print(f"{result.workload.name}, {result.policy}: {note}", file=sys.stderr)


def note_doomed(simulation: Simulation) -> None:
    """Report on standard error which jobs can never start, and because of which job."""
    for sentence in simulation.unsatisfiable_jobs():
        print(f"{simulation.workload.name}: {sentence}", file=sys.stderr)


def print_table(table: Table) -> None:
    """Print a table on standard output."""
    from rich import box
    from rich.text import Text

    from hpctwin.report.verbatim import VerbatimTable

    grid = VerbatimTable(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
        title=table.title or None, caption=table.caption or None,
    )  # fmt: skip
    for number, head in enumerate(table.heads):
        if number < table.words:
            grid.add_column(head, overflow="fold")
        else:
            grid.add_column(head, justify="right", no_wrap=True)
    for number, row in enumerate(table.rows):
        cells = [
            one if isinstance(one, str) else Text.assemble(f"{one[0]}\n", (f"{one[1]}", "dim"))
            for one in row
        ]
        grid.add_row(*cells, style="yellow" if number in table.marked else "")
    screen().print(grid)
