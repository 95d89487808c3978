"""What the twin expects: how long jobs run, and which will come.

Learnt from the events alone, and kept as plain values, so that it can be saved and repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hpctwin.rms.records import JobRecord, JobSpec

__all__ = ["Expectations", "Predictor"]

Predictor = Literal["walltime", "recent"]

RECENT = 2
"""How many of a user's last jobs the prediction averages (Tsafrir, Etsion, Feitelson 2007, §3.2)."""
SHARES, ARRIVALS = 500, 500
"""How many runtimes (as shares of the walltime) and submissions are remembered for sampling."""
MAX_USERS = 100_000


class Expectations:
    """Runtimes and arrivals seen so far, and what they let one expect.

    Args:
        predictor: ``walltime``: a job runs as long as it asked for; ``recent``: as the mean of its
            user's last two jobs, but not longer than it asked for.
    """

    def __init__(self, predictor: Predictor = "walltime") -> None:
        self.predictor = predictor
        self._recent: dict[str, deque[float]] = {}
        self._shares: deque[float] = deque(maxlen=SHARES)
        self._arrivals: deque[JobSpec] = deque(maxlen=ARRIVALS)

    def saw_end(self, job: JobRecord, end_s: float) -> None:
        """A job has run to its own end, or to its walltime."""
        runtime_s = 0.0 if job.start_s is None else max(0.0, end_s - job.start_s)
        if job.spec.user not in self._recent and len(self._recent) >= MAX_USERS:
            self._recent.pop(next(iter(self._recent)))
        self._recent.setdefault(job.spec.user, deque(maxlen=RECENT)).append(runtime_s)
        self._shares.append(min(1.0, runtime_s / job.spec.walltime_s))

    def saw_submission(self, spec: JobSpec) -> None:
        """A job was submitted."""
        self._arrivals.append(spec)

    def runtime_s(self, jobs: Sequence[JobRecord]) -> dict[str, float]:
        """Expected runtime of the jobs for which it is not the walltime, by id."""
        if self.predictor == "walltime":
            return {}
        result = {}
        for job in jobs:
            recent = self._recent.get(job.spec.user)
            if recent:
                result[job.spec.id] = min(sum(recent) / len(recent), job.spec.walltime_s)
        return result

    def sample(
        self, jobs: Sequence[JobRecord], now_s: float, horizon_s: float, rng: np.random.Generator
    ) -> tuple[dict[str, float], list[JobSpec]]:
        """One possible future: runtimes by id, and jobs that come within the horizon.

        Runtimes are the walltime times a share drawn from those seen; a running job's is longer than
        it has run already. Arrivals repeat past submissions, drawn with replacement, at intervals
        drawn in the same way.
        """
        shares = np.array(self._shares) if self._shares else np.ones(1)
        runtime_s = {}
        for job in jobs:
            limit = job.spec.walltime_s
            ran = 0.0 if job.start_s is None else max(0.0, now_s - job.start_s)
            possible = shares[shares * limit > ran]
            share = rng.choice(possible) if len(possible) else 1.0
            runtime_s[job.spec.id] = float(share * limit)
        arrivals: list[JobSpec] = []
        if len(self._arrivals) > 1:
            submits = np.sort([spec.submit_s for spec in self._arrivals])
            gaps = np.diff(submits)
            time_s = now_s
            # A burst may have no gaps at all; the limit keeps the sample finite.
            while len(arrivals) < ARRIVALS:
                time_s += float(rng.choice(gaps))
                if time_s > now_s + horizon_s:
                    break
                spec = self._arrivals[int(rng.integers(len(self._arrivals)))]
                coming = spec.model_copy(
                    update={
                        "id": f"sample-{len(arrivals)}",
                        "submit_s": time_s,
                        "not_before_s": None,
                        "dependencies": (),
                        "held": False,
                    }
                )
                runtime_s[coming.id] = float(rng.choice(shares) * coming.walltime_s)
                arrivals.append(coming)
        return runtime_s, arrivals

    def state(self) -> dict[str, Any]:
        """All that was learnt, as plain values."""
        return {
            "recent": {user: list(times) for user, times in self._recent.items()},
            "shares": list(self._shares),
            "arrivals": [spec.model_dump(mode="json") for spec in self._arrivals],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._recent = {u: deque(times, maxlen=RECENT) for u, times in state["recent"].items()}
        self._shares = deque(state["shares"], maxlen=SHARES)
        self._arrivals = deque(
            (JobSpec.model_validate(spec) for spec in state["arrivals"]), maxlen=ARRIVALS
        )
