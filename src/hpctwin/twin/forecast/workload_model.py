"""Expectations of the twin: how long jobs run, and which jobs will arrive.

They are learned from events alone and kept as plain values, so that they can be saved and repeated.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.forecast.learned_runtimes import LearnedRuntimes, Quantiles

__all__ = ["DrawnFutures", "Expectations", "Predictor"]

Predictor = Literal["walltime", "recent"]
FloatArray = npt.NDArray[np.float64]

RECENT = 2
"""Number of a user's last jobs that the prediction averages.

Source:
    Tsafrir, Etsion, Feitelson 2007, §3.2.
"""
OF_USER = 8
"""Number of a user's last jobs that runtimes are drawn from."""
SHARES, ARRIVALS = 500, 500
"""Numbers of runtimes (as shares of walltimes) and submissions kept for sampling."""
MAX_USERS = 100_000
MAX_ARRIVALS = 40
"""Maximum number of jobs that arrive in a future."""
STRETCHES = 4
"""Number of stretches of past submissions that are drawn; the futures take turns."""
MIN_FUTURES, MAX_STARTS = 4, 8000
"""Minimum number of futures, and maximum number of starts in all futures together.

With a long queue, fewer futures are drawn.
"""

_LIKE, _FADES, _OTHERS = 4.0, 0.8, 0.5
"""Weights of past jobs in a draw.

`_LIKE` is the factor of a user's jobs with the same nodes and walltime. `_FADES` is the factor per
older job of the user. `_OTHERS` is the weight of all recent jobs of any user together.
"""

_LEARNED = 4.0
"""Weight of a trained predictor's quantiles, which replace the jobs of any user."""

_TOGETHER = 0.5
"""Share of a user's jobs that are drawn alike in a future.

A campaign is long or fails as a whole. If its jobs were drawn independently, their runtimes would
average out.
"""

_Ran = tuple[float, float, int]
"""Runtime and walltime of a past job, in seconds, and its number of nodes."""


class _Coming(NamedTuple):
    """A job that has not been submitted, in place of its record."""

    spec: JobSpec
    start_s: None = None


_Job = JobRecord | _Coming


class DrawnFutures(NamedTuple):
    """Futures of a cluster, drawn from the past.

    Args:
        arriving: Jobs that arrive in any of the futures.
        runtime_s: Runtime of each job, by id, in seconds [futures].
        coming: Ids of the jobs that arrive in each future [futures].
    """

    arriving: list[JobSpec]
    runtime_s: dict[str, FloatArray]
    coming: list[set[str]]


class Expectations:
    """Runtimes and arrivals observed so far, and the expectations drawn from them.

    Args:
        predictor: Expected runtime of a job: its ``walltime``, or ``recent``, the mean of its
            user's last two jobs, up to its walltime.
        learned: Quantiles of a trained predictor, which runtimes are also drawn from; None
            without one.
    """

    def __init__(self, predictor: Predictor = "walltime", learned: Quantiles | None = None) -> None:
        self.predictor = predictor
        self._learned = None if learned is None else LearnedRuntimes(learned)
        self._recent: dict[str, deque[_Ran]] = {}
        self._shares: deque[float] = deque(maxlen=SHARES)
        self._arrivals: deque[JobSpec] = deque(maxlen=ARRIVALS)

    def copy(self) -> Expectations:
        """Return expectations of the same state, independent of later changes of these."""
        other = copy.copy(self)
        other._learned = None if self._learned is None else self._learned.copy()
        other._recent = {user: ran.copy() for user, ran in self._recent.items()}
        other._shares, other._arrivals = self._shares.copy(), self._arrivals.copy()
        return other

    def saw_end(self, job: JobRecord, end_s: float) -> None:
        """Learn from a job that ran to its own end or to its walltime."""
        runtime_s = 0.0 if job.start_s is None else max(0.0, end_s - job.start_s)
        if job.spec.user not in self._recent and len(self._recent) >= MAX_USERS:
            self._recent.pop(next(iter(self._recent)))
        spec = job.spec
        ran = (runtime_s, spec.walltime_s, spec.nodes)
        self._recent.setdefault(spec.user, deque(maxlen=OF_USER)).append(ran)
        self._shares.append(min(1.0, runtime_s / job.spec.walltime_s))
        if self._learned is not None:
            self._learned.saw_end(spec, runtime_s, end_s)

    def saw_submission(self, spec: JobSpec) -> None:
        """Learn from a submission."""
        self._arrivals.append(spec)
        if self._learned is not None:
            self._learned.saw_submission(spec)

    def saw_all(self, jobs: Mapping[str, JobRecord]) -> None:
        """Adjust to the jobs of a snapshot: unknown ones were submitted meanwhile."""
        if self._learned is not None:
            self._learned.keep(jobs)
            for job in jobs.values():
                self._learned.saw_submission(job.spec)

    def runtime_s(self, jobs: Sequence[JobRecord]) -> dict[str, float]:
        """Return expected runtimes in seconds, by job id; the walltime if not in it."""
        if self.predictor == "walltime":
            return {}
        result = {}
        for job in jobs:
            if recent := self._recent.get(job.spec.user):
                last = [ran[0] for ran in recent][-RECENT:]
                result[job.spec.id] = min(sum(last) / len(last), job.spec.walltime_s)
        return result

    def sample(
        self, jobs: Sequence[JobRecord], now_s: float, horizon_s: float, rng: np.random.Generator
    ) -> tuple[dict[str, float], list[JobSpec]]:
        """Draw one future: runtimes by job id, and the jobs that arrive within a horizon.

        See `runtimes` and `arrivals`.
        """
        coming = self.arrivals(now_s, horizon_s, ARRIVALS, rng, "sample")
        there: list[_Job] = [*jobs, *map(_Coming, coming)]
        runtime_s = self.runtimes(there, now_s, 1, rng)[0]
        ids = [job.spec.id for job in there]
        return dict(zip(ids, runtime_s.tolist(), strict=True)), coming

    def futures(
        self,
        jobs: Sequence[JobRecord],
        now_s: float,
        number: int,
        arrivals_s: float,
        rng: np.random.Generator,
    ) -> DrawnFutures:
        """Draw futures with runtimes of past jobs, and a stretch of past submissions.

        Args:
            jobs: Pending and running jobs.
            now_s: The present, in seconds.
            number: Number of futures; fewer are drawn with many jobs.
            arrivals_s: Time from now within which jobs arrive, in seconds.
            rng: Random generator.
        """
        number = min(number, max(MIN_FUTURES, MAX_STARTS // max(1, len(jobs))))
        stretches = [
            self.arrivals(now_s, arrivals_s, MAX_ARRIVALS, rng, f"future-{i}")
            for i in range(min(STRETCHES, number))
        ]
        arriving = [spec for specs in stretches for spec in specs]
        there: list[_Job] = [*jobs, *map(_Coming, arriving)]
        runtime_s = self.runtimes(there, now_s, number, rng)
        coming = [{spec.id for spec in specs} for specs in stretches]
        return DrawnFutures(
            arriving,
            {job.spec.id: column for job, column in zip(there, runtime_s.T, strict=True)},
            [coming[i % len(coming)] for i in range(number)],
        )

    def runtimes(
        self, jobs: Sequence[_Job], now_s: float, samples: int, rng: np.random.Generator
    ) -> FloatArray:
        """Draw runtimes from those of past jobs, in seconds [samples, jobs].

        A runtime is drawn from one of these sources:

        - a recent job of the same user; similar and later jobs have larger weights;
        - the walltime times the share of the walltime that any recent job ran;
        - the quantiles of a trained predictor, instead of the share, if it knows the job.

        For a running job, only past jobs that ran longer than it has so far are considered. In each
        sample, half of a user's jobs are drawn alike.

        Args:
            jobs: Pending and running jobs.
            now_s: The present, in seconds.
            samples: Number of samples.
            rng: Random generator.
        """
        if not jobs:
            return np.zeros((samples, 0))
        limit = np.array([job.spec.walltime_s for job in jobs])
        start = np.array([now_s if job.start_s is None else job.start_s for job in jobs])
        so_far = np.maximum(now_s - start, 0.0)
        known, weight = self._of_users(jobs, limit, so_far)
        upto = np.cumsum(weight, axis=1)
        chance, share = (self._draws(jobs, samples, rng) for _ in range(2))
        # The predictor has no quantiles for a job that has not arrived or is only asked about.
        learned = self._learned
        foretold = np.array([learned is not None and job.spec.id in learned for job in jobs])
        # A draw below the sum of the user's weights picks one of its jobs (a column of `known`);
        # a draw above it picks one of the other sources.
        draw = chance * (upto[:, -1] + np.where(foretold, _LEARNED, _OTHERS))
        place = (upto[None] <= draw[:, :, None]).sum(axis=2)
        own = place < OF_USER
        found = np.take_along_axis(known[None], np.minimum(place, OF_USER - 1)[:, :, None], axis=2)
        others = self._of_others(so_far, limit, share)
        if learned is not None and foretold.any():
            there = [job.spec for job, told in zip(jobs, foretold.tolist(), strict=True) if told]
            others[:, foretold] = learned.runtimes(there, so_far[foretold], share[:, foretold])
        result: FloatArray = np.where(own, found[:, :, 0], others)
        return result

    def _of_others(self, so_far: FloatArray, limit: FloatArray, draw: FloatArray) -> FloatArray:
        """Return walltimes times drawn shares of recent jobs, in seconds [samples, jobs]."""
        shares = np.sort(np.array([*self._shares, 1.0]))
        # Shares that a job has already exceeded are excluded; the walltime itself (1.0) always
        # remains.
        first = np.minimum(np.searchsorted(shares, so_far / limit, "right"), len(shares) - 1)
        drawn = first + draw * (len(shares) - first)
        runtime_s: FloatArray = shares[drawn.astype(np.int64)] * limit
        return runtime_s

    def _draws(self, jobs: Sequence[_Job], samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw numbers in [0, 1), partly the same for a user's jobs [samples, jobs]."""
        users = {user: number for number, user in enumerate({job.spec.user: 0 for job in jobs})}
        common = rng.random((samples, len(users)))[:, [users[job.spec.user] for job in jobs]]
        alone = rng.random((samples, len(jobs)))
        return np.where(rng.random((samples, len(jobs))) < _TOGETHER, common, alone)

    def _of_users(
        self, jobs: Sequence[_Job], limit: FloatArray, so_far: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return runtimes of each job's user, and their weights [jobs, `OF_USER`].

        Columns go from the user's latest job to older ones. Runtimes are in seconds and at most the
        job's walltime. A weight is 0 if there is no such past job, or if it ran no longer than the
        job has run so far.
        """
        table = np.zeros((len(jobs), OF_USER, 3))
        by_user = {user: np.array(ran)[::-1] for user, ran in self._of(jobs)}
        for row, job in enumerate(jobs):
            ran = by_user.get(job.spec.user)
            if ran is not None:
                table[row, : len(ran)] = ran
        nodes = np.array([job.spec.nodes for job in jobs])
        known = np.minimum(table[:, :, 0], limit[:, None])
        like = (table[:, :, 1] == limit[:, None]) & (table[:, :, 2] == nodes[:, None])
        weight = np.where(like, _LIKE, 1.0) * _FADES ** np.arange(OF_USER)
        weight[(table[:, :, 1] == 0.0) | (known <= so_far[:, None])] = 0.0
        return known, weight

    def _of(self, jobs: Sequence[_Job]) -> list[tuple[str, deque[_Ran]]]:
        users = {job.spec.user for job in jobs}
        return [(user, self._recent[user]) for user in sorted(users) if user in self._recent]

    def arrivals(
        self, now_s: float, horizon_s: float, most: int, rng: np.random.Generator, name: str
    ) -> list[JobSpec]:
        """Draw jobs that may arrive: a stretch of past submissions, repeated from now on.

        The stretch begins at a random time and continues at the first submission after the last
        one (circular block bootstrap, Politis and Romano 1992).
        """
        if len(self._arrivals) < 2 or horizon_s <= 0:
            return []
        past = sorted(self._arrivals, key=lambda spec: spec.submit_s)
        submit = np.array([spec.submit_s for spec in past])
        span = float(submit[-1] - submit[0])
        if span <= 0:
            return []
        begin = float(submit[0]) + rng.random() * span
        first = int(np.searchsorted(submit, begin, "right"))
        coming = []
        for number in range(min(most, len(past))):
            spec, laps = past[(first + number) % len(past)], (first + number) // len(past)
            time_s = now_s + spec.submit_s + laps * span - begin
            if time_s > now_s + horizon_s:
                break
            coming.append(
                spec.model_copy(
                    update={
                        "id": f"{name}-{number}",
                        "submit_s": time_s,
                        "not_before_s": None,
                        "dependencies": (),
                        "held": False,
                        "reason": "",
                    }
                )
            )
        return coming

    def state(self) -> dict[str, Any]:
        """Return everything that was learned, as plain values."""
        learned = {} if self._learned is None else {"learned": self._learned.state()}
        return {
            **learned,
            "recent": {user: list(map(list, known)) for user, known in self._recent.items()},
            "shares": list(self._shares),
            "arrivals": [spec.model_dump(mode="json") for spec in self._arrivals],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what was learned from `state`."""
        self._recent = {
            user: deque((tuple(ran) for ran in known), maxlen=OF_USER)
            for user, known in state["recent"].items()
        }
        self._shares = deque(state["shares"], maxlen=SHARES)
        self._arrivals = deque(
            (JobSpec.model_validate(spec) for spec in state["arrivals"]), maxlen=ARRIVALS
        )
        if self._learned is not None and "learned" in state:
            self._learned.restore(state["learned"])
