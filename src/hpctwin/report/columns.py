"""Metrics and plain tables for people: names, units and better direction."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from hpctwin.metrics import METRICS, TAU_S, Summary
from hpctwin.model.text import format_duration

__all__ = [
    "COLUMNS",
    "NO_CURRENCY",
    "Cell",
    "Column",
    "Table",
    "best_labels",
    "column_of",
    "format_alike",
    "format_change",
    "format_metric",
    "format_paired",
    "is_share",
    "metric_name",
    "shown_columns",
    "tau_note",
    "tau_of",
]

_SHARES = ("utilization", "availability", "loss", "share", "fraction", "delayed")
_UNITS = {"_node_s": "node-seconds", "_s": "s", "_j": "J", "_kg": "kg"}
_NAMES = {
    "preempted_node_s": "lost to preemption",
    "pp": "per-processor",
}
"""Names in words, in addition to those of `METRICS`."""


@dataclass(frozen=True)
class Column:
    """A metric as a column of a comparison.

    Args:
        key: Key in the summary.
        header: Header of the column.
        better: Better end of the scale; None if neither.
        short: Header for narrow tables, if it differs.
    """

    key: str
    header: str
    better: Literal["low", "high"] | None
    short: str = ""


def shown_columns(summaries: Iterable[Summary]) -> list[Column]:
    """Return the columns that at least one summary has."""
    summaries = list(summaries)
    return [column for column in COLUMNS if any(column.key in summary for summary in summaries)]


def best_labels(column: Column, summaries: Mapping[str, Summary]) -> set[str]:
    """Return the labels with a column's best value; none if all are equal.

    Values with the same text in the table count as equal.
    """
    values = {
        label: value
        for label, summary in summaries.items()
        if (value := summary.get(column.key)) is not None
    }
    texts = {label: format_metric(column.key, value) for label, value in values.items()}
    if column.better is None or len(set(texts.values())) < 2:
        return set()
    best = min(values.values()) if column.better == "low" else max(values.values())
    best_text = format_metric(column.key, best)
    return {label for label, text in texts.items() if text == best_text}


def format_metric(key: str, value: float | int | str | None) -> str:
    """Return a value with its unit, such as ``3.4 h`` or ``84.2 %``; ``–`` for None.

    Texts are returned as they are.
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    unit = _unit(key)
    if unit == "node-seconds":
        return f"{value / 3600:,.1f} node-hours"
    if unit == "s":
        return format_duration(value)
    if unit == "J":
        if 0 < abs(value) < 3.6e5:  # 0.1 kWh
            return f"{value:,.0f} J"
        kwh = value / 3.6e6
        return f"{kwh:,.1f} kWh" if abs(kwh) < 10_000 else f"{kwh / 1000:,.1f} MWh"
    if unit == "kg":
        return f"{value:,.1f} kg"
    if key.startswith(_SHARES) or key.endswith(_SHARES):
        return f"{value * 100:.1f} %"
    if isinstance(value, int):
        return f"{value:,}"
    if "fairness" in key:
        return f"{value:.3f}"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {_currency(key)}".rstrip()


NO_CURRENCY = "(no currency)"
"""Unit of a price that is a number without a currency."""

_COST = re.compile(r"(?:window_)?cost_([a-z]+)")


def _currency(key: str) -> str:
    """Return the currency of a cost; empty if the metric is none."""
    found = _COST.fullmatch(key)
    return "" if found is None else found[1].upper().replace("CURRENCY", NO_CURRENCY)


_SIZES = {
    "s": {"d": 86400.0, "h": 3600.0, "min": 60.0},
    "node-seconds": {"node-hours": 3600.0},
    "J": {"MWh": 3.6e9, "kWh": 3.6e6},
    "kg": {"t": 1000.0},
}
"""Sizes of larger units, the largest first."""


def format_alike(key: str, values: Sequence[float | int | str | None]) -> list[str]:
    """Return values of a metric with one unit and one number of decimals; ``–`` for None."""
    numbers = [abs(one) for one in values if isinstance(one, (int, float)) and math.isfinite(one)]
    unit = _unit(key) if _unit(key) in _SIZES else ""
    factor, decimals = 1.0, 0
    largest, smallest = max(numbers, default=0), min(filter(None, numbers), default=0)
    if format_metric(key, 0.5).endswith("%"):
        unit, factor, decimals = "%", 0.01, 1
    elif not all(isinstance(one, int) for one in values if one is not None):
        for name, size in (_SIZES[unit] if unit else {}).items():
            if largest >= 1.5 * size:
                unit, factor = name, size
                break
        # Three digits of the smallest value; more than two decimals only if all need them.
        digits = [2 - math.floor(math.log10(one / factor)) for one in (smallest, largest) if one]
        decimals = max(0, min(max(digits), max(2, min(digits)))) if digits else 0
    return [
        one if isinstance(one, str)
        else "–" if one is None
        else f"{one / factor:,.{decimals}f} {unit}".rstrip()
        for one in values
    ]  # fmt: skip


def _unit(key: str) -> str:
    """Return the unit of a metric; metrics outside `METRICS` have it in their name."""
    if key in METRICS:
        return METRICS[key].unit
    return next((unit for suffix, unit in _UNITS.items() if key.endswith(suffix)), "")


def format_change(key: str, change: float) -> str:
    """Return a difference of two values of a metric with its sign; for shares in points."""
    sign = "+" if change > 0 else "−" if change < 0 else ""
    text = format_metric(key, abs(change))
    return sign + (f"{text.removesuffix(' %')} pts" if text.endswith(" %") else text)


def is_share(key: str) -> bool:
    """Return whether a metric is a share, which is shown in percent and changes in points."""
    return format_metric(key, 0.5).endswith(" %")


def format_paired(key: str, row: Mapping[str, Any], between: str = " ") -> tuple[str, bool]:
    """Return a paired change with its interval, and whether the interval excludes zero.

    It is in points for shares, else in percent, from the geometric mean of the pairs' ratios. If a
    value is 0, there are no ratios, and it is in the metric's unit.

    Args:
        key: The metric.
        row: Row of a table as of `hpctwin.sweep.SweepResult.compare`.
        between: Text before the interval.
    """
    if row["ratio"] is None or is_share(key):
        value, low, high = (row[f"difference{end}"] for end in ("", "_low", "_high"))
        text: Callable[[float], str] = partial(format_change, key)
    else:
        value, low, high = (
            None if row[name] is None else row[name] - 1
            for name in ("ratio", "ratio_low", "ratio_high")
        )
        text = _percent
    # Without spread all runs were alike, as if there were one.
    if low is None or low == high:
        return text(value), False
    sure = low > 0 or high < 0
    ends = f"[{text(low)}, {text(high)}]"
    if text is _percent or is_share(key):
        ends = ends.replace(" %", "").replace(" pts", "")
    return f"{text(value)}{'*' if sure else ''}{between}{ends}", sure


def _percent(change: float) -> str:
    return f"{100 * change:+,.1f} %".replace("-", "−")


def tau_of(summaries: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the threshold of bounded slowdowns, in seconds; None if it is the default."""
    return next((value for one in summaries if (value := one.get("tau_s")) is not None), None)


def tau_note(
    metrics: Iterable[str], tau_s: float | None, words: str = "bounded slowdown with "
) -> list[str]:
    """Return a note on the threshold of bounded slowdowns, unless it is the default.

    Args:
        metrics: The metrics that are shown; without a bounded slowdown there is no note.
        tau_s: The threshold, in seconds; None for the default.
        words: Beginning of the note.
    """
    if tau_s in (None, TAU_S) or not any("bounded_slowdown" in name for name in metrics):
        return []
    return [f"{words}τ = {tau_s:g} s"]


def metric_name(key: str) -> str:
    """Return a metric's name in words: ``mean wait``, ``p95 bounded slowdown``."""
    if key in METRICS and METRICS[key].label:
        return METRICS[key].label
    if key in _NAMES:
        return _NAMES[key]
    if key.startswith("jobs_"):
        return f"jobs {key.removeprefix('jobs_').replace('_', ' ')}"
    if _currency(key):
        key = key.rpartition("_")[0]
    words = key.removesuffix("_s").removesuffix("_j").removesuffix("_kg").split("_")
    return " ".join(_NAMES.get(word, word) for word in words)


def column_of(key: str) -> Column:
    """Return the column of a metric."""
    metric = METRICS[key]
    return Column(key, metric.header or metric_name(key), metric.better, metric.short)


COLUMNS = (
    *(column_of(key) for key, metric in METRICS.items() if metric.main),
    Column("mean_contention_slowdown", "mean contention slowdown", "low", "contention"),
    Column("engine_ms", "engine ms", None),
)


Cell = str | tuple[str, str]
"""Text of a cell; or the text and the published value."""


@dataclass(frozen=True)
class Table:
    """A table to print.

    Args:
        heads: Column headers.
        rows: Cells, as many per row as headers.
        title, caption: Texts above and below the table.
        words: Number of columns of words at the left; the other columns are numbers.
        marked: Highlighted rows.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    caption: str = ""
    words: int = 1
    marked: frozenset[int] = frozenset()

    @classmethod
    def turned(
        cls, columns: Mapping[str, Mapping[str, Any]], lines: Sequence[tuple[str, str, float, str]]
    ) -> Table:
        """Return metrics as rows and their subjects as columns; empty rows are skipped.

        Args:
            columns: Metrics by subject.
            lines: For each metric its label, key, factor and format.
        """
        rows = []
        for label, key, factor, form in lines:
            values = [one.get(key) for one in columns.values()]
            if any(value is not None for value in values):
                cells = ["" if value is None else format(factor * value, form) for value in values]
                rows.append([label, *cells])
        return cls(["", *columns], rows)
