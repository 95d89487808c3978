"""What an experiment gives: numbers beside published ones, tables, figures, rows for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError
from hpctwin.model import write_folder
from hpctwin.report.tables.plain_table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Finding", "Results", "comparison_table", "write_files"]


@dataclass(frozen=True)
class Finding:
    """A number of a published table or figure.

    Args:
        what: it is, with its unit.
        expected: as published.
        obtained: as it came out here.
        within: the share by which it may be off and still agree.
        form: how both are written.
        entries: published tables and figures that it stands in, by their names of `hpctwin experiment list`.
    """

    what: str
    expected: float
    obtained: float
    within: float
    form: str = ",.1f"
    entries: tuple[str, ...] = ()

    @property
    def off(self) -> float | None:
        """By which share of the published number it is off; None if that is 0."""
        return self.obtained / self.expected - 1 if self.expected else None

    @property
    def agrees(self) -> bool:
        """Whether it is as published, to the digits that were printed or the share allowed."""
        return abs(self.obtained - self.expected) <= self.within * abs(self.expected) + 1e-12


@dataclass(frozen=True)
class Results:
    """What an experiment gives.

    Args:
        findings: its numbers that are published.
        figures: by name; drawn when they are asked for. Those named as a published figure belong to it.
        tables: in the order in which they are printed.
        notes: sentences below them.
        about: what was simulated.
        rows: all numbers, as JSON can hold them.
        files: what else is written, by name, and what writes it there.
    """

    findings: Sequence[Finding] = ()
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    about: str = ""
    rows: Any = ()
    files: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)

    def first_figure(self) -> tuple[Callable[[], Figure], Results]:
        """What draws its first figure, and the rest of it.

        Raises:
            ConfigError: there is none.
        """
        figures = dict(self.figures)
        if not figures:
            raise ConfigError("there is nothing to draw")
        return figures.pop(next(iter(figures))), replace(self, figures=figures)

    def part(self, entry: str) -> Results:
        """What of it belongs to a published table or figure."""
        return Results(
            [one for one in self.findings if entry in one.entries],
            {name: draw for name, draw in self.figures.items() if name == entry},
        )


def comparison_table(findings: Sequence[Finding]) -> Table:
    """Numbers beside those published; those that differ are to be seen."""
    rows = []
    for one in findings:
        off = "" if one.off is None else f"{one.off * 100:+.1f} %".replace("-", "−")
        values = (format(value, one.form) for value in (one.expected, one.obtained))
        rows.append([one.what, *values, off, "agrees" if one.agrees else "differs"])
    differ = frozenset(number for number, one in enumerate(findings) if not one.agrees)
    return Table(["", "published", "here", "off", ""], rows, marked=differ)


def write_files(results: Results, folder: Path) -> None:
    """Write all files and figures into a folder.

    Raises:
        OutputError: they cannot be written.
    """
    from hpctwin.report.figures.style import save_figure

    with write_folder(folder) as new:
        for name, write in results.files.items():
            write(new / name)
        for name, draw in results.figures.items():
            save_figure(draw(), new / f"{name}.png")
