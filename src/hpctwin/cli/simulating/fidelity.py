"""Output of ``hpctwin import --check``: a simulation compared with a site's past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpctwin.metrics import By
    from hpctwin.sweep.assumptions import Checked

__all__ = ["fidelity_figures", "fidelity_tables", "print_fidelity"]

_CLASSES: tuple[By, ...] = ("size", "partition", "user")
_HEAD = ("", "jobs", "wait, recorded", "simulated", "median error", "p95", "within 1 min", "1 h")


def fidelity_figures(checked: Checked) -> dict[str, Any]:
    """Return the comparison as it is written to JSON."""
    taken = checked.taken
    return {
        **taken.figures(),
        "not_compared": taken.without,
        **{f"by_{by}": taken.by(by).to_dicts() for by in _CLASSES},
        "assumptions": checked.instead.to_dicts(),
        "fitted": checked.rolling.to_dicts(),
        "not_tried": list(checked.refused),
    }


def fidelity_tables(checked: Checked) -> dict[str, Any]:
    """Return the comparison as tables of texts: a header and rows, by title."""
    taken = checked.taken
    tables: dict[str, Any] = {
        "Simulated and recorded starts": (_HEAD, [_row("all", taken.figures())])
    }
    for by in _CLASSES:
        rows = (
            taken.by(by)
            .sort("jobs", descending=True, maintain_order=True)
            .head(12)
            .iter_rows(named=True)
        )
        found = [_row(one["bin"], one) for one in rows]
        if len(found) > 1:
            tables[f"By {by}" if by != "user" else "By user, most jobs first"] = (_HEAD, found)
    tables["Other assumptions, largest improvement first"] = (
        ("assumption", "taken", "instead", *_HEAD[3:]),
        [
            (one["assumption"], one["taken"], one["instead"], *_row("", one)[3:])
            for one in checked.instead.iter_rows(named=True)
        ],
    )
    if len(checked.rolling):
        tables["Fitted on earlier jobs, with the error on later jobs"] = (
            ("from", "until", "jobs", "fitted", "delay", "median error", "as asked for"),
            [_rolled(one) for one in checked.rolling.iter_rows(named=True)],
        )
    return tables


def _rolled(one: Mapping[str, Any]) -> tuple[str, ...]:
    from hpctwin.model import format_duration

    times = (format_duration(round(one[name])) for name in ("from_s", "until_s"))
    fitted = f"{one['assumption']}: {one['instead']}" if one["instead"] else one["assumption"]
    seconds = (format_duration(one[name]) for name in ("delay_s", "error_s", "taken_error_s"))
    return (*times, f"{one['jobs']:,}", fitted, *seconds)


def _row(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    from hpctwin.model import format_duration

    waits = ("recorded_wait_s", "simulated_wait_s", "median_error_s", "p95_error_s")
    return (
        name,
        f"{figures['jobs']:,}",
        *(format_duration(figures[one]) for one in waits),
        *(f"{figures[one]:.0%}" for one in ("within_1min", "within_1h")),
    )


def print_fidelity(checked: Checked) -> None:
    """Print the tables on standard output."""
    from rich.table import Table

    from hpctwin.cli.output import screen

    console = screen()
    for title, (head, rows) in fidelity_tables(checked).items():
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for number, name in enumerate(head):
            is_number = rows and rows[0][number][:1].isdigit()
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for refused in checked.refused:
        console.print(f"not tried: {refused}")
