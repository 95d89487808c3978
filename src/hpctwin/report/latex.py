r"""Tables for the terminal as LaTeX tables, for the package ``booktabs``.

A unit that all numbers of a column share is in its heading. Numbers are aligned to the right, so
those with equal decimals are aligned at the decimal point. A cell of several lines has several rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from hpctwin.report.tables import BEST_MARK

__all__ = ["as_latex", "escaped"]

_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "−": "$-$", "–": "--", "…": r"\dots{}", "×": r"$\times$", "·": r"$\cdot$", "±": r"$\pm$",
    "≤": r"$\leq$", "≥": r"$\geq$", "µ": r"$\mu$", "√": r"$\surd$", "²": "$^2$", "³": "$^3$",
    "★": r"$\star$", "\n": " ",
}  # fmt: skip
_NONE = ("", "–", "same", "0")
"""Numbers without a unit."""


def escaped(text: str) -> str:
    """Return a text with its special characters written as LaTeX writes them."""
    return "".join(_SIGNS.get(one, one) for one in text)


def as_latex(shown: RenderableType) -> str:
    """Return a table, or several one after the other; other texts become comments."""
    if isinstance(shown, Group):
        return "\n".join(as_latex(one) for one in shown.renderables)
    if isinstance(shown, Table):
        return _table(shown)
    return "".join(f"{line}\n" for line in _comment(shown))


def _comment(text: RenderableType) -> list[str]:
    return [f"% {line}" for line in _text(text).plain.splitlines()]


def _table(table: Table) -> str:
    rows = [
        line
        for row in zip(*(column.cells for column in table.columns), strict=True)
        for line in zip_longest(*(_text(cell).split("\n") for cell in row), fillvalue=Text())
    ]
    columns = [_column(one, [row[at] for row in rows]) for at, one in enumerate(table.columns)]
    sides = "".join("r" if one.justify == "right" else "l" for one in table.columns)
    heads = [head for head, _ in columns]
    lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule"]
    if table.show_header:
        lines += [f"{' & '.join(heads)} \\\\", r"\midrule"]
    shown = zip(*(cells for _, cells in columns), strict=True)
    lines += [f"{' & '.join(row)} \\\\" for row in shown]
    lines += [r"\bottomrule", r"\end{tabular}"]
    about = [line for one in (table.title, table.caption) if one for line in _comment(one)]
    return "".join(f"{line}\n" for line in [*about, *lines])


def _column(column: Column, cells: Sequence[Text]) -> tuple[str, list[str]]:
    """Return the heading and the cells."""
    head = " ".join(_text(column.header).plain.replace("-\n", "").split())
    number = column.justify == "right"
    units = {_unit(one) for one in cells if _value(one) not in _NONE} if number else set()
    unit = units.pop() if len(units) == 1 else ""
    if unit:
        head = f"{head} ({unit})"
    return escaped(head), [_cell(one, unit) for one in cells]


def _value(cell: Text) -> str:
    return cell.plain.strip().removesuffix(BEST_MARK)


def _unit(cell: Text) -> str:
    return _value(cell).partition(" ")[2]


def _cell(cell: Text, unit: str) -> str:
    text = escaped(_value(cell).removesuffix(f" {unit}") if unit else _value(cell))
    if not cell.plain.strip().endswith(BEST_MARK):
        return text
    # The mark of an interval that excludes 0 takes no room, so the number stays aligned.
    return rf"\textbf{{{text}}}" if "bold" in str(cell.style) else rf"{text}\rlap{{$^*$}}"


def _text(shown: RenderableType) -> Text:
    return shown if isinstance(shown, Text) else Text.from_markup(str(shown))
