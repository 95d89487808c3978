"""PAS's table and figure with results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from hpctwin.experiments import pas
from hpctwin.experiments.entries import SEEDS, Entry, Finding, Made

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["entries"]


@cache
def _pas_rows() -> tuple[pas.Row, ...]:
    rows: list[pas.Row] = []
    for own, _ in pas.run_seeds(range(SEEDS), methods=tuple(pas.PUBLISHED)):
        rows += own
    return tuple(pas.means(rows))


def _pas_table() -> Made:
    findings = []
    for row in _pas_rows():
        paper = pas.PUBLISHED[row.method]
        findings += [
            Finding(f"{row.method}, makespan, ms", paper.makespan, row.makespan, pas.NEAR, ",.0f"),
            Finding(f"{row.method}, mean wait, ms", paper.mean_wait, row.mean_wait, pas.NEAR),
            Finding(
                f"{row.method}, jobs that violate a dependency", paper.dependency_violations,
                row.dependency_violations, pas.NEAR, ",.0f",
            ),
        ]  # fmt: skip
    return Made(findings)


def _pas_bars() -> Figure:
    from hpctwin.report import plot_compare_bars
    from hpctwin.report.columns import Column

    bars: dict[str, dict[str, Any]] = {}
    for row in _pas_rows():
        paper = pas.PUBLISHED[row.method]
        for label, makespan, wait in (
            (f"{row.method} (paper)", paper.makespan, paper.mean_wait),
            (f"{row.method} (here)", row.makespan, row.mean_wait),
        ):
            bars[label] = {"makespan_ms": makespan, "mean_wait_ms": wait}
    shown = [
        Column("makespan_ms", "makespan, ms", "low"),
        Column("mean_wait_ms", "mean wait, ms", "low"),
    ]
    return plot_compare_bars(bars, shown, title="PAS, figure 2: published and here")


_PAS_OPEN = (
    "the paper gives no distributions, runtimes or seed: they were chosen so that FCFS comes out. PAS as "
    "published takes longer, and dependencies hold here under every method"
)


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    config = f"5,000 jobs, seeds 0 to {SEEDS - 1}, means"
    yield entry(
        "pas-table-1",
        shows="makespan, mean wait and violations of four schedulers",
        config=config,
        because=_PAS_OPEN,
        make=_pas_table,
        more="hpctwin experiment pas",
    )
    yield entry(
        "pas-figure-2",
        shows="the same as bars",
        config=config,
        because=_PAS_OPEN,
        make=lambda: Made(_pas_table().findings, {"pas-figure-2": _pas_bars}),
    )
