"""What is said of when jobs start; of many at once as columns, of which rows are made where they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple, overload

from hpctwin.model.input.cached_attributes import kept

__all__ = ["NOW", "Forecast", "Forecasts", "to_keep"]

NOW = 0
"""The group of jobs that are expected to start at once."""


class Forecast(NamedTuple):
    """When a waiting job will start.

    Args:
        job_id: which.
        made_s: when this was said.
        start_s: the forecast; None if it would never start as things are.
        low_s, high_s: between these with a probability of `forecast.COVERAGE`.
        calibrated: whether the interval comes from earlier errors; with too few of them it reaches
            from now to twice the forecast wait.
        kept: whether it will be compared with what comes true: a job's first forecast, and each
            one whose wait is half of that of the last one kept.
        nodes: how many the job asks for.
        group: whose starts its own is compared with: jobs of its class of sizes (1, 2, 3 to 4, 5 to 8 …
            nodes), apart for first forecasts and later ones; or those that were expected to start at once.
        early_s, late_s: by when it has started in a tenth and in nine tenths of the futures that were drawn.
        last_s: when it starts if all run to their walltimes.
        below, above: the shares of such forecasts whose start is to lie below and above the interval.
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
"""As `Forecast._make`, in a third of the time."""


class Forecasts(Sequence[Forecast]):
    """Forecasts of some jobs; few of them are ever read of most decisions.

    Args:
        columns: by field of `Forecast`, all of them [jobs].
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = columns

    @kept
    def rows(self) -> tuple[Forecast, ...]:
        """One of each job."""
        return tuple(map(_FORECAST, zip(*self._in_order(), strict=True)))

    def to_keep(self) -> list[Forecast]:
        """Those that will be compared with what comes true."""
        which = self._columns["kept"]
        if True not in which:
            return []
        columns = [compress(column, which) for column in self._in_order()]
        return list(map(_FORECAST, zip(*columns, strict=True)))

    def ids_later(self) -> list[str]:
        """Ids of the jobs that are not expected to start at once, whose group is not 0 (`NOW`)."""
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
    """Those that will be compared with what comes true."""
    if isinstance(forecasts, Forecasts):
        return forecasts.to_keep()
    return [one for one in forecasts if one.kept]
