"""What the twin expects: how long jobs run, and which will come.

Learnt from the events alone, and kept as plain values, so that it can be saved and repeated.
"""

from __future__ import annotations

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
"""How many of a user's last jobs the prediction averages (Tsafrir, Etsion, Feitelson 2007, §3.2)."""
OF_USER = 8
"""From so many of a user's last jobs run times are drawn."""
SHARES, ARRIVALS = 500, 500
"""How many runtimes (as shares of the walltime) and submissions are remembered for sampling."""
MAX_USERS = 100_000
MAX_ARRIVALS = 40
"""At most this many jobs arrive in a future."""
STRETCHES = 4
"""How many stretches of past submissions are drawn; the futures take them in turn."""
MIN_FUTURES, MAX_STARTS = 4, 8000
"""With a long queue fewer futures are drawn, so that all of them have at most this many starts."""

_LIKE, _FADES, _OTHERS = 4.0, 0.8, 0.5
"""Of a user's jobs that of the same nodes and walltime weighs so much more, each older one less by this
factor; all jobs of others together weigh so much."""

_LEARNED = 4.0
"""What a trained predictor foretells of a job weighs so much, in the place of the jobs of others."""

_TOGETHER = 0.5
"""In a future so many of a user's jobs run as the same earlier one did: a campaign is long or fails as one,
and drawn apart the lengths of its jobs would make up for each other."""

_Ran = tuple[float, float, int]
"""How long a job ran, its walltime, its nodes."""


class DrawnFutures(NamedTuple):
    """Some futures of a cluster, drawn from the past.

    Args:
        arriving: The jobs that arrive in any of them.
        runtime_s: How long each job runs, by id [futures].
        coming: ids of the jobs that arrive in each future.
    """

    arriving: list[JobSpec]
    runtime_s: dict[str, FloatArray]
    coming: list[set[str]]


class Expectations:
    """Runtimes and arrivals seen so far, and what they let one expect.

    Args:
        predictor: ``walltime``: a job runs as long as it asked for; ``recent``: as the mean of its
            user's last two jobs, but not longer than it asked for.
        learned: quantiles that run times are drawn from besides; None for none.
    """

    def __init__(self, predictor: Predictor = "walltime", learned: Quantiles | None = None) -> None:
        self.predictor = predictor
        self._learned = None if learned is None else LearnedRuntimes(learned)
        self._recent: dict[str, deque[_Ran]] = {}
        self._shares: deque[float] = deque(maxlen=SHARES)
        self._arrivals: deque[JobSpec] = deque(maxlen=ARRIVALS)

    def saw_end(self, job: JobRecord, end_s: float) -> None:
        """A job has run to its own end, or to its walltime."""
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
        """A job was submitted."""
        self._arrivals.append(spec)
        if self._learned is not None:
            self._learned.saw_submission(spec)

    def saw_all(self, jobs: Mapping[str, JobRecord]) -> None:
        """Jobs are there, by id, and no others: those that nobody told of have been submitted meanwhile."""
        if self._learned is not None:
            self._learned.keep(jobs)
            for job in jobs.values():
                self._learned.saw_submission(job.spec)

    def runtime_s(self, jobs: Sequence[JobRecord]) -> dict[str, float]:
        """Expected runtime of the jobs for which it is not the walltime, by id."""
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
        """One possible future: runtimes by id, and jobs that come within the horizon.

        As `runtimes` and `arrivals` draw them.
        """
        coming = self.arrivals(now_s, horizon_s, ARRIVALS, rng, "sample")
        there = [*jobs, *(JobRecord.model_construct(spec=spec) for spec in coming)]
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
        """Draw futures: jobs run as long as others have, and a stretch of past submissions comes again.

        Args:
            jobs: Pending and running jobs.
            now_s: The present.
            number: How many futures; fewer are drawn with many jobs.
            arrivals_s: For how long jobs arrive.
            rng: Draws them.
        """
        number = min(number, max(MIN_FUTURES, MAX_STARTS // max(1, len(jobs))))
        stretches = [
            self.arrivals(now_s, arrivals_s, MAX_ARRIVALS, rng, f"future-{i}")
            for i in range(min(STRETCHES, number))
        ]
        arriving = [spec for specs in stretches for spec in specs]
        there = [*jobs, *(JobRecord.model_construct(spec=spec) for spec in arriving)]
        runtime_s = self.runtimes(there, now_s, number, rng)
        return DrawnFutures(
            arriving,
            {job.spec.id: column for job, column in zip(there, runtime_s.T, strict=True)},
            [{spec.id for spec in stretches[i % len(stretches)]} for i in range(number)],
        )

    def runtimes(
        self, jobs: Sequence[JobRecord], now_s: float, samples: int, rng: np.random.Generator
    ) -> FloatArray:
        """How long jobs may run, drawn from how long others did, seconds [samples, jobs].

        Of the last jobs of the same user, like and later ones more often; and now and then the share of its
        walltime that any of the last jobs ran, or, with a predictor that has learnt, what it foretells. A job
        that runs already is drawn from those that ran longer.
        In each sample half of a user's jobs are drawn alike.

        Args:
            jobs: waiting or running.
            now_s: the present.
            samples: so often.
            rng: draws.
        """
        if not jobs:
            return np.zeros((samples, 0))
        limit = np.array([job.spec.walltime_s for job in jobs])
        start = np.array([now_s if job.start_s is None else job.start_s for job in jobs])
        so_far = np.maximum(now_s - start, 0.0)
        known, weight = self._of_users(jobs, limit, so_far)
        upto = np.cumsum(weight, axis=1)
        chance, share = (self._draws(jobs, samples, rng) for _ in range(2))
        # Of a job that is yet to come, or only asked about, nothing was foretold.
        learned = self._learned
        foretold = np.array([learned is not None and job.spec.id in learned for job in jobs])
        draw = chance * (upto[:, -1] + np.where(foretold, _LEARNED, _OTHERS))
        place = (upto[None] <= draw[:, :, None]).sum(axis=2)
        own = place < OF_USER
        found = np.take_along_axis(known[None], np.minimum(place, OF_USER - 1)[:, :, None], axis=2)
        others = self._of_others(so_far, limit, share)
        if learned is not None and foretold.any():
            there = [job for job, told in zip(jobs, foretold.tolist(), strict=True) if told]
            others[:, foretold] = learned.runtimes(there, so_far[foretold], share[:, foretold])
        result: FloatArray = np.where(own, found[:, :, 0], others)
        return result

    def _of_others(self, so_far: FloatArray, limit: FloatArray, draw: FloatArray) -> FloatArray:
        """Walltimes times the shares that any of the last jobs ran of theirs [samples, jobs]."""
        shares = np.sort(np.array([*self._shares, 1.0]))
        # What has run longer than the share is none of those to draw from; the limit is left in any case.
        first = np.minimum(np.searchsorted(shares, so_far / limit, "right"), len(shares) - 1)
        drawn = first + draw * (len(shares) - first)
        runtime_s: FloatArray = shares[drawn.astype(np.int64)] * limit
        return runtime_s

    def _draws(
        self, jobs: Sequence[JobRecord], samples: int, rng: np.random.Generator
    ) -> FloatArray:
        """Numbers between 0 and 1, of which a user's jobs have some in common [samples, jobs]."""
        users = {user: number for number, user in enumerate({job.spec.user: 0 for job in jobs})}
        common = rng.random((samples, len(users)))[:, [users[job.spec.user] for job in jobs]]
        alone = rng.random((samples, len(jobs)))
        return np.where(rng.random((samples, len(jobs))) < _TOGETHER, common, alone)

    def _of_users(
        self, jobs: Sequence[JobRecord], limit: FloatArray, so_far: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """What the last jobs of each one's user ran (to its walltime); their weights [jobs, `OF_USER`]."""
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

    def _of(self, jobs: Sequence[JobRecord]) -> list[tuple[str, deque[_Ran]]]:
        users = {job.spec.user for job in jobs}
        return [(user, self._recent[user]) for user in sorted(users) if user in self._recent]

    def arrivals(
        self, now_s: float, horizon_s: float, most: int, rng: np.random.Generator, name: str
    ) -> list[JobSpec]:
        """Jobs that may come: a stretch of the past once more, from anywhere in it.

        A circular block bootstrap (Politis and Romano 1992).

        Args:
            now_s: the present.
            horizon_s: for how long they come.
            most: so many at most.
            rng: draws.
            name: what their ids begin with.
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
        """All that was learnt, as plain values."""
        learned = {} if self._learned is None else {"learned": self._learned.state()}
        return {
            **learned,
            "recent": {user: list(map(list, known)) for user, known in self._recent.items()},
            "shares": list(self._shares),
            "arrivals": [spec.model_dump(mode="json") for spec in self._arrivals],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
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
