"""Forecasts of start times, as rows or as columns whose rows are made when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple, overload

from hpctwin.attributes import kept

__all__ = ["NOW", "Forecast", "Forecasts", "to_keep"]

NOW = 0
"""Group of the jobs that are expected to start at once."""


class Forecast(NamedTuple):
    """Forecast of a pending job's start.

    Args:
        job_id: Id of the job.
        made_s: Time at which the forecast was made, in seconds.
        start_s: Forecast start, in seconds; None if the job would never start.
        low_s, high_s: Interval that includes the start with probability `forecaster.COVERAGE`, in
            seconds.
        calibrated: Whether the interval comes from earlier errors. With too few of them it reaches
            from now to twice the forecast wait.
        kept: Whether it will be compared with the actual start. This holds for a job's first
            forecast, and for each one with at most half the wait of the last one kept.
        nodes: Number of nodes that the job requests.
        group: Group of jobs whose starts it is compared with. It has the jobs expected to start at
            once, or those of a size class (1, 2, 3 to 4, 5 to 8 … nodes). Each class has separate
            groups for first and for later forecasts.
        early_s, late_s: Times by which it has started in 10 % and in 90 % of the drawn futures, in
            seconds.
        last_s: Start if all jobs run to their walltimes, in seconds.
        below, above: Shares of such forecasts whose start should be below and above the interval.
    """

    job_id: str
    made_s: float
    start_s: float | None
    low_s: float | None
    high_s: float | None
    calibrated: bool = False
    kept: bool = False
    nodes: int = 1
    group: int = NOW
    early_s: float = 0.0
    late_s: float = 0.0
    last_s: float = 0.0
    below: float = 0.0
    above: float = 0.0


_FORECAST: Callable[[Any], Forecast] = partial(tuple.__new__, Forecast)
"""Make a forecast as `Forecast._make` does, in a third of the time."""


class Forecasts(Sequence[Forecast]):
    """Forecasts of several jobs as columns, since few rows of most decisions are read.

    Args:
        columns: All fields of `Forecast`, by name [jobs].
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = columns

    @kept
    def rows(self) -> tuple[Forecast, ...]:
        """Forecasts as rows, one per job."""
        return tuple(map(_FORECAST, zip(*self._in_order(), strict=True)))

    def to_keep(self) -> list[Forecast]:
        """Return the forecasts that will be compared with the actual start."""
        which = self._columns["kept"]
        if True not in which:
            return []
        columns = [compress(column, which) for column in self._in_order()]
        return list(map(_FORECAST, zip(*columns, strict=True)))

    def ids_later(self) -> list[str]:
        """Return the ids of jobs not expected to start at once (their group is not `NOW`)."""
        return list(compress(self._columns["job_id"], self._columns["group"]))

    def _in_order(self) -> list[Sequence[Any]]:
        return [self._columns[field] for field in Forecast._fields]

    def __len__(self) -> int:
        return len(self._columns["job_id"])

    @overload
    def __getitem__(self, number: int) -> Forecast: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Forecast, ...]: ...

    def __getitem__(self, number: int | slice) -> Forecast | tuple[Forecast, ...]:
        return self.rows[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return repr(self.rows)


def to_keep(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """Return the forecasts that will be compared with the actual start."""
    if isinstance(forecasts, Forecasts):
        return forecasts.to_keep()
    return [one for one in forecasts if one.kept]
