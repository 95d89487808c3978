"""Sphinx extension: fills the tables on the page of metrics from the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpctwin.metrics.registry import JOB_METRICS, METRICS, STATISTICS
from hpctwin.twin.what_if.objective import METRICS as OBJECTIVES

__all__ = ["TABLES", "filled", "setup"]

PAGE = "reference/metrics"


def job_table() -> Iterator[str]:
    """Lines of Markdown: the metrics of each job."""
    yield from ("| column | formula | unit | source |", "|---|---|---|---|")
    for metric in JOB_METRICS:
        yield _row(metric.name, metric.formula, metric.unit or "1", metric.source)


def run_table() -> Iterator[str]:
    """Lines of Markdown: the metrics of a run; all statistics of one metric of jobs share a row."""
    yield from (
        "| key | formula | unit | source | better | objective |",
        "|---|---|---|---|---|---|",
    )
    rows = {metric.name: (metric.name,) for metric in METRICS.values()}
    for values in JOB_METRICS:
        names = tuple(f"{word}_{values.name}" for word in STATISTICS)
        if rows.keys() >= {*names}:
            rows[names[0]] = names
            for name in names[1:]:
                del rows[name]
    for name, names in rows.items():
        metric = METRICS[name]
        together = "mean, median, quantiles and maximum of " + name.removeprefix("mean_")
        yield _row(
            "`, `".join(names), together if len(names) > 1 else metric.formula, metric.unit or "1",
            metric.source, metric.better or "", "yes" if name in OBJECTIVES else "",
        )  # fmt: skip


def _row(name: str, *cells: str) -> str:
    return " | ".join(["| " + f"`{name}`", *(cell.replace("|", "\\|") for cell in cells)]) + " |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "<!-- metrics of jobs -->": job_table,
    "<!-- metrics of a run -->": run_table,
}
"""What fills each mark on the page."""


def filled(page: str) -> str:
    """The page with its tables."""
    for mark, table in TABLES.items():
        page = page.replace(mark, "\n".join(table()))
    return page


def _fill(app, name, source) -> None:
    if name == PAGE:
        source[0] = filled(source[0])


def setup(app):
    """Let Sphinx fill the page."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
