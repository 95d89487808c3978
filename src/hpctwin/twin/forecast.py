"""Start-time forecasts, with intervals learnt from how earlier ones came true."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import compress, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.rms.records import JobRecord, JobSpec
from hpctwin.twin.conformal import Conformal

__all__ = ["COVERAGE", "LEVELS", "WAITS_S", "Forecast", "Forecaster"]

FloatArray = npt.NDArray[np.float64]

COVERAGE = 0.8
"""Share of starts that should fall into their interval."""

WAITS_S = (60.0, 600.0, 3600.0, 14_400.0, 86_400.0)
"""Errors are told apart by how long the forecast wait is: bounds of the classes, seconds."""

LEVELS = tuple(level / 20 for level in range(1, 20))
"""Of which quantiles a forecast's distribution is told."""

ERRORS, ENOUGH, STEP = 300, 20, 0.02
LEAST_SCALE_S = 60.0
AGAIN_S = 1.0
"""Futures are drawn so often at most, by the cluster's clock, unless somebody comes to wait."""
_OF_EXPECTED = 0.3
"""So much of the wait that the what-if in force says counts as spread, besides that of the futures."""
_ROUNDING_S = 1e-3
_NOW, _ALL = 0, -1
"""Groups: of jobs that are expected to start at once; of all others together."""


class Forecast(NamedTuple):
    """When a waiting job will start.

    Args:
        job_id: which.
        made_s: when this was said.
        start_s: the forecast; None if it would never start as things are.
        low_s, high_s: between these with a probability of `COVERAGE`.
        calibrated: whether the interval comes from earlier errors; with too few of them it reaches
            from now to twice the forecast wait.
        kept: whether it will be compared with what comes true: a job's first forecast, and each
            one whose wait is half of that of the last one kept.
        nodes: how many the job asks for.
        group: whose errors its own is compared with: jobs of its class of sizes (1, 2, 3 to 4, 5 to 8 …
            nodes), apart for first forecasts and later ones; or those that were expected to start at once.
        scale_s: what errors are compared in, by how far the futures that were drawn lie from each other.
    """

    job_id: str
    made_s: float
    start_s: float | None
    low_s: float | None
    high_s: float | None
    calibrated: bool = False
    kept: bool = False
    nodes: int = 1
    group: int = _NOW
    scale_s: float = LEAST_SCALE_S


_FORECAST: Callable[[Any], Forecast] = partial(tuple.__new__, Forecast)
"""As `Forecast._make`, in a third of the time."""

_NONE_DRAWN: Mapping[str, FloatArray] = {}


class Forecaster:
    """Makes forecasts, and learns from those that came true.

    The forecast is the median of futures that were drawn. Errors are compared in units of how far these lie
    from each other (locally weighted conformal prediction; Lei et al. 2018, *Distribution-Free Predictive
    Inference for Regression*, §5.2), apart by classes of sizes; see `Conformal`.
    """

    def __init__(self) -> None:
        self._open: dict[str, list[Forecast]] = {}
        self._half: dict[str, float] = {}  # a forecast of no longer wait, s, is kept besides these
        self._learnt: dict[int, Conformal] = {}
        self._errors: deque[float] = deque(maxlen=ERRORS)
        self._last: dict[str, Forecast] = {}
        self._last_s = 0.0

    def is_due(self, start_s: Mapping[str, float], now_s: float) -> bool:
        """Whether futures are to be drawn: somebody waits of whom nothing was said yet, or long enough ago.

        Args:
            start_s: what the what-if in force says, by id.
            now_s: the present.
        """
        later = [job_id for job_id, time_s in start_s.items() if time_s > now_s]
        if not later:
            return False
        known = all(job_id in self._last for job_id in later)
        return not known or not 0.0 <= now_s - self._last_s < AGAIN_S

    def forecast(
        self,
        waiting: Sequence[JobRecord],
        start_s: Mapping[str, float],
        now_s: float,
        drawn_s: Mapping[str, FloatArray] | None = _NONE_DRAWN,
    ) -> tuple[Forecast, ...]:
        """A forecast for each waiting job; some of them are kept, to be learnt from.

        Args:
            waiting: the jobs.
            start_s: what the what-if in force says, by id.
            now_s: the present.
            drawn_s: when they start in futures that were drawn, by id [futures]; None if none are due: then
                the same is said again of whoever does not start now.
        """
        known = [spec for job in waiting if (spec := job.spec).id in start_s]
        if drawn_s is None:
            again = self._said_again(known, start_s, now_s)
            known = [spec for spec in known if spec.id not in again]
        else:
            again, self._last_s = {}, now_s
        ids = [spec.id for spec in known]
        made, start, later = self._made(known, ids, start_s, now_s, drawn_s or {})
        found = again | dict(zip(ids, made, strict=True))
        half = np.fromiter(map(self._half.get, ids, repeat(np.inf)), np.float64, len(ids))
        kept = [made[row] for row in np.flatnonzero(start - now_s <= half).tolist()]
        # What is said again was compared with what had been kept when it was said first.
        kept += [one for job_id, one in again.items() if job_id not in self._half]
        for one in kept:
            found[one.job_id] = self._kept(one)
        self._last = again | dict(compress(zip(ids, made, strict=True), later))
        return tuple(_of_all(waiting, found, now_s))

    def foretell(
        self,
        waiting: Sequence[JobRecord],
        start_s: Mapping[str, float],
        now_s: float,
        drawn_s: Mapping[str, FloatArray] | None = None,
    ) -> list[Forecast]:
        """As `forecast`, for whoever only asks: nothing is kept."""
        known = [spec for job in waiting if (spec := job.spec).id in start_s]
        ids = [spec.id for spec in known]
        made, _, _ = self._made(known, ids, start_s, now_s, drawn_s or {})
        return _of_all(waiting, dict(zip(ids, made, strict=True)), now_s)

    def quantiles(self, said: Forecast) -> tuple[float, ...]:
        """By when a job will have started with the probabilities `LEVELS`; empty where that is not known."""
        learnt = self._learnt_of(said.group)
        if said.start_s is None or learnt is None:
            return ()
        times = np.maximum(said.start_s + said.scale_s * learnt.quantiles(LEVELS), said.made_s)
        return tuple(times.tolist())

    def came_true(self, job_id: str, start_s: float) -> None:
        """A job has started: learn from what was said of it."""
        self._half.pop(job_id, None)
        for one in self._open.pop(job_id, ()):
            assert one.start_s is not None
            assert one.low_s is not None
            assert one.high_s is not None
            error_s = start_s - one.start_s
            self._errors.append(error_s / max(one.start_s - one.made_s, LEAST_SCALE_S))
            groups = (one.group,) if one.group == _NOW else (one.group, _ALL)
            for group in groups:
                learnt = self._learnt.setdefault(group, Conformal(COVERAGE, ERRORS, STEP))
                learnt.learn(error_s / one.scale_s)
            if one.calibrated:
                side = (start_s > one.high_s + _ROUNDING_S) - (start_s < one.low_s - _ROUNDING_S)
                self._learnt[one.group].missed(side)

    def forget(self, job_id: str) -> None:
        """A job will not start."""
        self._open.pop(job_id, None)
        self._half.pop(job_id, None)

    def keep(self, jobs: Container[str]) -> None:
        """Forget the forecasts of all other jobs."""
        self._open = {job_id: said for job_id, said in self._open.items() if job_id in jobs}
        self._half = {job_id: _half_of(said[-1]) for job_id, said in self._open.items()}

    @property
    def median_error(self) -> float | None:
        """Median of the recent relative errors' size, None with fewer than 20."""
        return float(np.median(np.abs(self._errors))) if len(self._errors) >= ENOUGH else None

    def state(self) -> dict[str, Any]:
        """All that was learnt, as plain values."""
        return {
            "open": {i: [list(one) for one in said] for i, said in self._open.items()},
            "learnt": [[group, learnt.state()] for group, learnt in sorted(self._learnt.items())],
            "last": [list(one) for one in self._last.values()],
            "last_s": self._last_s,
            "errors": list(self._errors),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._open = {i: [Forecast(*one) for one in said] for i, said in state["open"].items()}
        self._half = {i: _half_of(said[-1]) for i, said in self._open.items()}
        self._errors = deque(state["errors"], maxlen=ERRORS)
        self._last = {one.job_id: one for one in (Forecast(*row) for row in state["last"])}
        self._last_s = state["last_s"]
        self._learnt = {}
        for group, learnt in state["learnt"]:
            self._learnt[group] = Conformal(COVERAGE, ERRORS, STEP)
            self._learnt[group].restore(learnt)

    def _made(
        self,
        known: Sequence[JobSpec],
        ids: Sequence[str],
        start_s: Mapping[str, float],
        now_s: float,
        drawn_s: Mapping[str, FloatArray],
    ) -> tuple[list[Forecast], FloatArray, list[bool]]:
        """A forecast for each of some jobs, its start, and whether later than now was expected [jobs]."""
        expected = np.array([start_s[i] for i in ids], np.float64)
        start, scale = _of_futures(ids, expected, now_s, drawn_s)
        nodes = np.array([spec.nodes for spec in known], np.int64)
        said = np.fromiter(map(self._half.__contains__, ids), bool, len(ids))
        size = np.ceil(np.log2(np.maximum(nodes, 1))).astype(np.int64)
        later = expected > now_s
        group = np.where(later, 1 + 2 * size + said, _NOW)
        low, high, calibrated = self._spans(group, start, scale, now_s)
        columns = [c.tolist() for c in (start, low, high, calibrated, nodes, group, scale)]
        about, more = columns[:4], columns[4:]
        rows = zip(ids, repeat(now_s), *about, repeat(False), *more)
        return list(map(_FORECAST, rows)), start, later.tolist()

    def _kept(self, one: Forecast) -> Forecast:
        """A forecast that is to be compared with what comes true; see `Forecast`."""
        kept = one._replace(kept=True)
        self._open.setdefault(one.job_id, []).append(kept)
        self._half[one.job_id] = _half_of(kept)
        return kept

    def _said_again(
        self, known: Sequence[JobSpec], start_s: Mapping[str, float], now_s: float
    ) -> dict[str, Forecast]:
        """What was said last of jobs, by id, unless they start now or should have started."""
        last = self._last
        return {
            spec.id: one
            for spec in known
            if (one := last.get(spec.id)) is not None
            and start_s[spec.id] > now_s
            and (one.start_s or 0.0) > now_s
        }

    def _learnt_of(self, group: int) -> Conformal | None:
        """What was learnt of a group; of all sizes, where that is too little."""
        for known in (group, _ALL) if group != _NOW else (group,):
            learnt = self._learnt.get(known)
            if learnt is not None and len(learnt) >= ENOUGH:
                return learnt
        return None

    def _spans(
        self, group: npt.NDArray[np.int64], start: FloatArray, scale: FloatArray, now_s: float
    ) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
        """Low, high, whether they are calibrated [jobs]."""
        low = np.full(len(start), now_s)
        high = start + np.maximum(start - now_s, LEAST_SCALE_S)
        calibrated = np.zeros(len(start), bool)
        for one in np.unique(group).tolist():
            learnt = self._learnt_of(one)
            if learnt is None:
                continue
            here = group == one
            below, above = learnt.interval()
            low[here] = np.maximum(start[here] + scale[here] * below, now_s)
            high[here] = np.maximum(start[here] + scale[here] * above, low[here])
            calibrated[here] = True
        return low, high, calibrated


def _of_all(
    waiting: Sequence[JobRecord], found: Mapping[str, Forecast], now_s: float
) -> list[Forecast]:
    """The forecasts of all that wait; of those that are not among what was found, that they never start."""
    ids = [job.spec.id for job in waiting]
    if len(found) == len(ids):
        return [found[i] for i in ids]
    none = (now_s, None, None, None)
    return [found.get(i) or Forecast(i, *none) for i in ids]


def _half_of(kept: Forecast) -> float:
    """Half of a forecast's wait, s: the next that is kept has no longer one; none is after one of no wait."""
    wait_s = (kept.start_s or 0.0) - kept.made_s
    return 0.5 * wait_s if wait_s > 0 else -np.inf


def _of_futures(
    ids: Sequence[str], expected: FloatArray, now_s: float, drawn_s: Mapping[str, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Forecasts, and what their errors are compared in, seconds [jobs]."""
    start = expected.copy()
    scale = _OF_EXPECTED * np.maximum(expected - now_s, 0.0) + LEAST_SCALE_S
    # Who starts now by what is known does so in any future.
    rows = [r for r in np.flatnonzero(expected > now_s).tolist() if ids[r] in drawn_s]
    if rows:
        drawn = np.array([drawn_s[ids[row]] for row in rows])
        ends = ((1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2)
        low, start[rows], high = np.quantile(drawn, ends, axis=1)
        scale[rows] += high - low
    return start, scale
