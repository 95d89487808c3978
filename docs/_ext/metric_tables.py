"""Sphinx extension: fills the tables on the page of metrics from the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpctwin.metrics.registry import JOB_METRICS, METRICS, STATISTICS, JobMetric, Metric, Statistic
from hpctwin.twin.what_if.objective import METRICS as OBJECTIVES

__all__ = ["TABLES", "filled", "setup"]

PAGE = "metrics"


def job_table() -> Iterator[str]:
    """Lines of Markdown: the metrics of each job."""
    yield from ("| column | formula | unit | source |", "|---|---|---|---|")
    for metric in JOB_METRICS:
        yield _row(metric.name, metric.formula, metric.unit or "1", metric.source)


def run_table() -> Iterator[str]:
    """Lines of Markdown: the metrics of a run; the statistics of one metric of jobs share a row."""
    yield from (
        "| key | formula | unit | source | better | objective |",
        "|---|---|---|---|---|---|",
    )
    grouped: set[JobMetric] = set()
    for metric in METRICS.values():
        values = _values(metric)
        if values in grouped:
            continue
        name, formula = metric.name, metric.formula
        if values is not None:
            grouped.add(values)
            words = "`, `".join(f"{word}_{values.name}" for word in STATISTICS)
            name, formula = words, f"mean, median, quantiles and maximum of `{values.name}`"
        offered = "yes" if metric.name in OBJECTIVES else ""
        yield _row(name, formula, metric.unit or "1", metric.source, metric.better or "", offered)


def _values(metric: Metric) -> JobMetric | None:
    """The metric of jobs of which this is one of the usual statistics."""
    if isinstance(metric.of, Statistic):
        for word, statistic in STATISTICS.items():
            if metric.of == statistic(metric.of.values) and metric.name.startswith(f"{word}_"):
                return metric.of.values
    return None


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
