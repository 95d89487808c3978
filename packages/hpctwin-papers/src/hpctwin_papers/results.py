"""Results of an experiment: comparisons with published numbers, tables, figures, rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError
from hpctwin.model import write_folder
from hpctwin.report.columns import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """A number of a published table or figure.

    Args:
        what: Name of the number, with its unit.
        expected: Published value.
        obtained: Reproduced value.
        within: Maximum relative deviation that counts as agreement.
        form: Format of both values.
        entries: Published tables and figures with this number, by their names in `hpctwin
            experiment list`.
    """

    what: str
    expected: float
    obtained: float
    within: float
    form: str = ",.1f"
    entries: tuple[str, ...] = ()

    @property
    def off(self) -> float | None:
        """Relative deviation from the published value; None if that is 0."""
        return self.obtained / self.expected - 1 if self.expected else None

    @property
    def agrees(self) -> bool:
        """Whether it agrees, to the printed digits or within the allowed share."""
        return abs(self.obtained - self.expected) <= self.within * abs(self.expected) + 1e-12


@dataclass(frozen=True)
class Results:
    """Results of an experiment.

    Args:
        findings: Its published numbers.
        figures: Figures by name, drawn on demand; a name of a published figure means that figure.
        tables: Tables in print order.
        notes: Sentences below the tables.
        about: Description of the simulation.
        rows: All numbers, in a form for JSON.
        files: Functions that write additional files, by file name.
    """

    findings: Sequence[Finding] = ()
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    about: str = ""
    rows: Any = ()
    files: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)

    def first_figure(self) -> tuple[Callable[[], Figure], Results]:
        """Return the function that draws the first figure, and the remaining results."""
        figures = dict(self.figures)
        if not figures:
            raise ConfigError("--plot: this result has no figure; omit --plot")
        return figures.pop(next(iter(figures))), replace(self, figures=figures)

    def part(self, entry: str) -> Results:
        """Return the results of one published table or figure."""
        return Results(
            [one for one in self.findings if entry in one.entries],
            {name: draw for name, draw in self.figures.items() if name == entry},
        )


def comparison_table(findings: Sequence[Finding]) -> Table:
    """Return numbers with the published ones; differing rows are marked."""
    rows = []
    for one in findings:
        off = "" if one.off is None else f"{one.off * 100:+.1f} %".replace("-", "−")
        values = (format(value, one.form) for value in (one.expected, one.obtained))
        rows.append([one.what, *values, off, "agrees" if one.agrees else "differs"])
    differ = frozenset(number for number, one in enumerate(findings) if not one.agrees)
    return Table(["", "published", "here", "off", ""], rows, marked=differ)


def write_files(results: Results, folder: Path) -> None:
    """Write all files and figures into a folder."""
    from hpctwin.report.figures.style import save_figure

    with write_folder(folder) as new:
        for name, write in results.files.items():
            write(new / name)
        for name, draw in results.figures.items():
            save_figure(draw(), new / f"{name}.png")
