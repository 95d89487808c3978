"""When jobs would start in futures that are drawn from the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.forecast.workload_model import Expectations
from hpctwin.twin.settings.config import CoreSettings

if TYPE_CHECKING:
    from hpctwin.twin.what_if.present import Present

__all__ = ["drawn_starts"]

FloatArray = npt.NDArray[np.float64]

MOST_ARRIVALS = 40
"""So many jobs come in a future at most."""
STRETCHES = 4
"""So many stretches of past submissions are drawn; each comes in every so many futures."""
FEWEST, MOST_STARTS = 4, 8000
"""With a long queue fewer futures are drawn, so that the starts in all of them are not more than that."""
_APART = 1 << 20
"""Of the seed's draws these are others than those by which policies are judged."""


def drawn_starts(
    expectations: Expectations,
    settings: CoreSettings,
    jobs: Sequence[JobRecord],
    now_s: float,
    seed: int,
    simulated: Callable[[Sequence[JobSpec]], Present],
) -> dict[str, FloatArray]:
    """When each waiting job would start in each of some futures, by id [futures].

    In each, jobs run as long as others have, and a stretch of past submissions comes once more; see
    `Expectations`. A job that does not start is left out.

    Args:
        expectations: what is drawn from.
        settings: how many futures, and for how long jobs come in them.
        jobs: those that wait or run.
        now_s: the present.
        seed: of what is drawn.
        simulated: the present with jobs that will come.
    """
    if not settings.futures:
        return {}
    rng = np.random.default_rng([seed, _APART])
    futures = min(settings.futures, max(FEWEST, MOST_STARTS // max(1, len(jobs))))
    coming = [
        expectations.arrivals(now_s, settings.arrivals, MOST_ARRIVALS, rng, f"future-{number}")
        for number in range(min(STRETCHES, futures))
    ]
    arriving = [spec for specs in coming for spec in specs]
    there = [*jobs, *(JobRecord.model_construct(spec=spec) for spec in arriving)]
    runtime_s = expectations.runtimes(there, now_s, futures, rng)
    return simulated(arriving).futures(
        {job.spec.id: column for job, column in zip(there, runtime_s.T, strict=True)},
        [{spec.id for spec in coming[number % len(coming)]} for number in range(futures)],
    )
