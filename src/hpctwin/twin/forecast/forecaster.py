"""Start-time forecasts, with intervals learned from the outcomes of earlier ones."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, repeat
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.twin.forecast.interval_correction import (
    LOWEST,
    Missed,
    Sides,
    knots,
    levels,
    place,
    times,
)

__all__ = ["COVERAGE", "LEVELS", "NOW", "WAITS_S", "Forecast", "Forecaster", "Forecasts", "to_keep"]

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
    """Forecasts of several jobs as columns, since few rows of most decisions are read."""

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


FloatArray = npt.NDArray[np.float64]

COVERAGE = 0.8
"""Share of starts that should be within their interval."""

WAITS_S = (60.0, 600.0, 3600.0, 14_400.0, 86_400.0)
"""Bounds of the wait classes by which forecast errors are reported, in seconds."""

LEVELS = tuple(level / 20 for level in range(1, 20))
"""Levels of the quantiles by which a forecast's distribution is reported."""

ERRORS, ENOUGH = 300, 20
LEAST_S = 60.0
AGAIN_S = 1.0
"""Minimum time between two draws, by the cluster's clock, unless a job is new."""
_ROUNDING_S = 1e-3
_TAIL = (1 - COVERAGE) / 2
_WEEK_S = 7 * 86_400.0
_OF_CLASS_S, _OF_ALL_S = 4 * _WEEK_S, _WEEK_S
"""Memory of missed forecasts, for one size class and for all jobs, in seconds."""
_ALL = -1
"""Group of all jobs together, except those that are expected to start at once."""


_NONE_DRAWN: Mapping[str, FloatArray] = {}


class Forecaster:
    """Makes forecasts of start times, and learns from their outcomes.

    A forecast is the median of futures that were drawn. Its interval depends on two things:

    - the places of earlier starts among their futures, by size class (see `coverage`);
    - how often recent intervals were missed, in the size class and among all jobs (see
      `interval_correction`).
    """

    def __init__(self) -> None:
        self._open: dict[str, list[Forecast]] = {}
        self._half: dict[str, float] = {}  # longest wait of the next kept forecast, s, by job
        self._places: dict[int, deque[float]] = {}
        self._missed: dict[int, Missed] = {}  # by size class
        self._errors: deque[float] = deque(maxlen=ERRORS)
        self._last: Forecasts | dict[str, Forecast] = {}  # of jobs that do not start at once
        self._told: Container[str] = self._last  # ids of these jobs
        self._last_s = 0.0

    def copy(self) -> Forecaster:
        """Return a forecaster of the same state, independent of later changes of this one."""
        other = copy.copy(self)
        other._open = {job_id: list(made) for job_id, made in self._open.items()}
        other._half, other._errors = self._half.copy(), self._errors.copy()
        other._places = {group: places.copy() for group, places in self._places.items()}
        other._missed = copy.deepcopy(self._missed)
        return other

    def is_due(self, start_s: Mapping[str, float], now_s: float) -> bool:
        """Return whether futures must be drawn: a job has no forecast, or the draw is old.

        Args:
            start_s: Starts under the policy in force, by job id, in seconds.
            now_s: The present, in seconds.
        """
        later = [job_id for job_id, time_s in start_s.items() if time_s > now_s]
        if not later:
            return False
        known = all(map(self._told.__contains__, later))
        return not known or not 0.0 <= now_s - self._last_s < AGAIN_S

    def forecast(
        self,
        waiting: Mapping[str, int],
        start_s: Mapping[str, float],
        now_s: float,
        drawn_s: Mapping[str, FloatArray] | None = _NONE_DRAWN,
    ) -> Sequence[Forecast]:
        """Return a forecast for each pending job; some are kept to learn from.

        Args:
            waiting: Number of nodes that each pending job requests, by id.
            start_s: Starts under the policy in force, by job id, in seconds.
            now_s: The present, in seconds.
            drawn_s: Starts in the futures that were drawn, by job id, in seconds [futures]. None if
                no draw is due; then the last forecasts are repeated for jobs that do not start now.
        """
        if drawn_s is None:
            again, ids = self._said_again(waiting, start_s, now_s)
        else:
            again, ids, self._last_s = {}, list(filter(start_s.__contains__, waiting)), now_s
        half = list(map(self._half.get, ids, repeat(math.inf)))
        made = self._made(waiting, ids, start_s, now_s, drawn_s or {}, half)
        for one in made.to_keep():
            self._keep(one)
        # Forecasts of jobs that start now are not repeated: only the others are remembered.
        if drawn_s is None:
            self._last = self._told = again | _later(made)
            self._keep_new(again)
        else:
            self._last, self._told = made, set(made.ids_later())
        if len(made) == len(waiting):
            return made
        return tuple(_of_all(waiting, again | _by_id(made), now_s))

    def preview(
        self,
        waiting: Mapping[str, int],
        start_s: Mapping[str, float],
        now_s: float,
        drawn_s: Mapping[str, FloatArray] | None = None,
    ) -> list[Forecast]:
        """Return forecasts as `forecast` does, for a query: nothing is kept or learned."""
        ids = list(filter(start_s.__contains__, waiting))
        none = [-np.inf] * len(ids)
        made = self._made(waiting, ids, start_s, now_s, drawn_s or {}, none)
        return _of_all(waiting, _by_id(made), now_s)

    def quantiles(self, said: Forecast) -> tuple[float, ...]:
        """Return the times by which a job has started with the probabilities `LEVELS`.

        The result is empty if the job never starts or too few starts were observed.
        """
        places = self._places_of(said.group)
        if said.start_s is None or places is None:
            return ()
        found = _quantiles(places, np.array(LEVELS))
        return tuple(times(np.repeat(_knots_of(said), len(found), axis=0), found).tolist())

    def came_true(self, job_id: str, start_s: float) -> None:
        """Learn from the forecasts of a job that has started."""
        self._half.pop(job_id, None)
        for one in self._open.pop(job_id, ()):
            assert one.start_s is not None
            assert one.low_s is not None
            assert one.high_s is not None
            error_s = start_s - one.start_s
            self._errors.append(error_s / max(one.start_s - one.made_s, LEAST_S))
            there = place(_knots_of(one)[0], start_s)
            for group in (one.group,) if one.group == NOW else (one.group, _ALL):
                self._places.setdefault(group, deque(maxlen=ERRORS)).append(there)
            if one.calibrated:
                below = float(start_s < one.low_s - _ROUNDING_S)
                above = float(start_s > one.high_s + _ROUNDING_S)
                for missed in self._missed_of(one.group):
                    missed.settle(one.made_s, (one.below, one.above), (below, above))

    def forget(self, job_id: str) -> None:
        """Drop the forecasts of a job that will not start."""
        self._half.pop(job_id, None)
        for one in self._open.pop(job_id, ()):
            if one.calibrated:
                for missed in self._missed_of(one.group):
                    missed.drop(one.made_s, (one.below, one.above))

    def keep(self, jobs: Container[str]) -> None:
        """Drop the forecasts of all jobs but the given ones."""
        for job_id in [job_id for job_id in self._open if job_id not in jobs]:
            self.forget(job_id)

    @property
    def median_error(self) -> float | None:
        """Median absolute relative error of recent forecasts; None with fewer than 20."""
        return float(np.median(np.abs(self._errors))) if len(self._errors) >= ENOUGH else None

    def state(self) -> dict[str, Any]:
        """Return everything that was learned, as plain values."""
        return {
            "open": {i: [list(one) for one in said] for i, said in self._open.items()},
            "places": [[group, list(places)] for group, places in sorted(self._places.items())],
            "missed": [[size, missed.state()] for size, missed in sorted(self._missed.items())],
            "last": [list(one) for one in self._said_last().values()],
            "last_s": self._last_s,
            "errors": list(self._errors),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what was learned from `state`."""
        if "places" not in state:
            return  # from a version that compared starts differently: learn from scratch
        self._open = {i: [Forecast(*one) for one in said] for i, said in state["open"].items()}
        self._half = {i: _half_of(said[-1]) for i, said in self._open.items()}
        self._errors = deque(state["errors"], maxlen=ERRORS)
        self._last = self._told = _by_id([Forecast(*row) for row in state["last"]])
        self._last_s = state["last_s"]
        self._places = {group: deque(places, maxlen=ERRORS) for group, places in state["places"]}
        self._missed = {size: Missed.of(missed) for size, missed in state["missed"]}

    def _made(
        self,
        waiting: Mapping[str, int],
        ids: Sequence[str],
        start_s: Mapping[str, float],
        now_s: float,
        drawn_s: Mapping[str, FloatArray],
        half: Sequence[float],
    ) -> Forecasts:
        """Return a forecast for each job; it is kept if its wait is at most ``half``.

        Without enough observed starts, an interval reaches from now to twice the forecast wait.
        """
        # Jobs are usually few; then lists are faster than arrays.
        expected = list(map(start_s.__getitem__, ids))
        early, start, late = _of_futures(ids, expected, now_s, drawn_s)
        last = expected if late is expected else list(map(max, expected, late))
        nodes = list(map(waiting.__getitem__, ids))
        # First forecasts of size class c are in group 2c − 1, later ones in 2c; see `_missed_of`.
        first = {asked: 1 + 2 * ((asked or 1) - 1).bit_length() for asked in set(nodes)}
        group = [
            first[asked] + (job_id in self._half) if at > now_s else NOW
            for job_id, asked, at in zip(ids, nodes, expected, strict=True)
        ]
        low = [now_s] * len(ids)
        waits_s = [at - now_s for at in start]
        kept = [wait_s <= most for wait_s, most in zip(waits_s, half, strict=True)]
        high = [
            at + (wait_s if wait_s > LEAST_S else LEAST_S)
            for at, wait_s in zip(start, waits_s, strict=True)
        ]
        calibrated, below, above = ([no] * len(ids) for no in (False, 0.0, 0.0))
        # Calibrated intervals replace the ones from now to twice the wait, group by group.
        for one, sides in self._sides(group, kept, now_s).items():
            rows, levels_of = list(sides), np.array(list(sides.values()))
            of = (np.array([column[row] for row in rows]) for column in (early, start, late, last))
            read = knots(now_s, *of)
            ends = [times(read, end) for end in _ends(self._places_of(one) or (), *levels_of.T)]
            told = np.column_stack([*ends, np.maximum(levels_of, 0.0)]).tolist()
            for row, (low[row], high[row], below[row], above[row]) in zip(rows, told, strict=True):
                calibrated[row] = True
        columns = {"job_id": ids, "made_s": [now_s] * len(ids), "start_s": start, "low_s": low}
        columns |= {"high_s": high, "calibrated": calibrated, "kept": kept, "nodes": nodes}
        columns |= {"group": group, "early_s": early, "late_s": late, "last_s": last}
        return Forecasts({**columns, "below": below, "above": above})

    def _sides(
        self, group: Sequence[int], kept: Sequence[bool], now_s: float
    ) -> dict[int, dict[int, Sides]]:
        """Return the levels of the calibrated intervals, by group and row.

        Each kept forecast corrects a part of the excess of misses. It is counted at once, so that
        the next one corrects only the rest.
        """
        known = [one for one in sorted(set(group)) if self._places_of(one) is not None]
        if not known:
            return {}
        level = {one: self._level(one, now_s) for one in known}
        sides: dict[int, dict[int, Sides]] = {one: {} for one in known}
        for row, one in enumerate(group):
            if one in level:
                sides[one][row] = level[one]
        for row in compress(range(len(group)), kept):
            if (one := group[row]) in level:
                sides[one][row] = side = self._level(one, now_s)
                self._promise(one, now_s, _shares(side))
        return sides

    def _level(self, group: int, now_s: float) -> tuple[float, float]:
        return levels(_TAIL, [one.excess(now_s, _TAIL) for one in self._missed_of(group)])

    def _promise(self, group: int, made_s: float, expected: tuple[float, float]) -> None:
        for missed in self._missed_of(group):
            missed.add(made_s, expected)

    def _keep(self, one: Forecast) -> None:
        """Keep a forecast to compare it with the actual start."""
        self._open.setdefault(one.job_id, []).append(one)
        self._half[one.job_id] = _half_of(one)

    def _keep_new(self, again: dict[str, Forecast]) -> None:
        """Keep repeated forecasts of jobs that have no kept one.

        The kept forecasts of such a job have been compared with an actual start already.
        """
        if again.keys() <= self._half.keys():
            return
        for job_id in [job_id for job_id in again if job_id not in self._half]:
            again[job_id] = kept = again[job_id]._replace(kept=True)
            self._keep(kept)
            if kept.calibrated:
                self._promise(kept.group, kept.made_s, (kept.below, kept.above))

    def _said_last(self) -> dict[str, Forecast]:
        """Return the last forecasts of jobs that did not start at once, by id."""
        if isinstance(self._last, Forecasts):
            self._last = self._told = _later(self._last)
        return self._last

    def _said_again(
        self, waiting: Mapping[str, int], start_s: Mapping[str, float], now_s: float
    ) -> tuple[dict[str, Forecast], list[str]]:
        """Return the forecasts to repeat, by job id, and the ids of the other jobs.

        The others start now, should have started by their last forecast, or are new.
        """
        again, others = {}, []
        last = self._said_last()
        for job_id in waiting:
            at = start_s.get(job_id)
            if at is None:
                continue
            one = last.get(job_id)
            if at > now_s and one is not None and (one.start_s or 0.0) > now_s:
                again[job_id] = one._replace(kept=False) if one.kept else one
            else:
                others.append(job_id)
        return again, others

    def _places_of(self, group: int) -> deque[float] | None:
        """Return the places of past starts in a group; None if there are too few.

        If a group has too few, those of all sizes count.
        """
        for known in (group, _ALL) if group != NOW else (group,):
            places = self._places.get(known)
            if places is not None and len(places) >= ENOUGH:
                return places
        return None

    def _missed_of(self, group: int) -> list[Missed]:
        """Return the counts of missed forecasts for a group's size class and for all jobs.

        Groups 2c − 1 and 2c are the first and the later forecasts of size class c; both share one
        count. Jobs expected to start at once are counted alone.
        """
        spans = (
            {NOW: _OF_CLASS_S} if group == NOW else {(group + 1) // 2: _OF_CLASS_S, _ALL: _OF_ALL_S}
        )
        return [self._missed.setdefault(size, Missed(span_s)) for size, span_s in spans.items()]


def _quantiles(places: Sequence[float], shares: FloatArray) -> FloatArray:
    """Return quantiles of places; the next one counts as one more value.

    Source:
        Vovk, Gammerman, Shafer 2005.
    """
    known = np.sort(np.array(places))
    count = len(known)
    found: FloatArray = np.interp(shares * (count + 1) - 1.0, np.arange(count), known)
    return found


def _ends(
    places: Sequence[float], below: FloatArray, above: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the places of both ends of intervals [jobs].

    A negative level moves its end beyond the observed places. At `LOWEST` the lower end is at place
    0, which is now. The upper end is at place 1, the last possible start.

    Args:
        places: Places of past starts.
        below: Levels of the lower ends; see `levels` [jobs].
        above: Levels of the upper ends [jobs].
    """
    one = _quantiles(places, np.maximum(below, 0.0))
    other = _quantiles(places, 1.0 - np.maximum(above, 0.0))
    first, last = np.minimum(one, other), np.maximum(one, other)
    wider = np.minimum([below, above], 0.0) / LOWEST
    return first * (1.0 - wider[0]), last + wider[1] * np.maximum(1.0 - last, 0.0)


def _knots_of(said: Forecast) -> FloatArray:
    """Return the `knots` of a forecast, in seconds [1, 5]."""
    of = (said.early_s, said.start_s or 0.0, said.late_s, said.last_s)
    return knots(said.made_s, *np.array(of)[:, None])


def _by_id(forecasts: Iterable[Forecast]) -> dict[str, Forecast]:
    return {one.job_id: one for one in forecasts}


def _later(forecasts: Iterable[Forecast]) -> dict[str, Forecast]:
    """Return the forecasts of jobs that do not start now, by id."""
    return {one.job_id: one for one in forecasts if one.group != NOW}


def _of_all(
    waiting: Mapping[str, int], found: Mapping[str, Forecast], now_s: float
) -> list[Forecast]:
    """Return the forecasts of all pending jobs; a job that was not found never starts."""
    if len(found) == len(waiting):
        return list(map(found.__getitem__, waiting))
    none = (now_s, None, None, None)
    return [found.get(i) or Forecast(i, *none) for i in waiting]


def _half_of(kept: Forecast) -> float:
    """Return half of a kept forecast's wait: the longest wait of the next one, s.

    After a forecast without a wait, no other is kept.
    """
    wait_s = (kept.start_s or 0.0) - kept.made_s
    return 0.5 * wait_s if wait_s > 0 else -np.inf


def _of_futures(
    ids: Sequence[str], expected: list[float], now_s: float, drawn_s: Mapping[str, FloatArray]
) -> tuple[list[float], list[float], list[float]]:
    """Return when jobs have started in 10 %, 50 % and 90 % of the futures, s [jobs]."""
    # A job that is expected to start now does so in any future.
    rows = (
        [row for row, at in enumerate(expected) if at > now_s and ids[row] in drawn_s]
        if drawn_s
        else []
    )
    if not rows:
        return expected, expected, expected
    drawn = np.array([drawn_s[ids[row]] for row in rows])
    quantiles = np.quantile(drawn, (_TAIL, 0.5, 1 - _TAIL), axis=1).tolist()
    early, start, late = columns = [expected.copy() for _ in quantiles]
    for column, of_drawn in zip(columns, quantiles, strict=True):
        for row, at in zip(rows, of_drawn, strict=True):
            column[row] = at
    return early, start, late


def _shares(side: Sides) -> Sides:
    """Return the shares of starts to expect below and above, for the given levels."""
    below, above = side
    return max(below, 0.0), max(above, 0.0)
