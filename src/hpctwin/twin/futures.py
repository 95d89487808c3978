"""When jobs would start in futures that are drawn from the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpctwin.policies import Policy
from hpctwin.rms.records import JobRecord

if TYPE_CHECKING:
    from hpctwin.twin.core import Core

__all__ = ["drawn_starts"]

FloatArray = npt.NDArray[np.float64]

MOST_ARRIVALS = 40
"""So many jobs come in a future at most."""
_APART = 1 << 20
"""Of the seed's draws these are others than those by which policies are judged."""


def drawn_starts(
    core: Core, jobs: Sequence[JobRecord], now_s: float, policy: Policy, seed: int
) -> dict[str, FloatArray]:
    """When each waiting job would start in each of some futures, by id [futures].

    In each, jobs run as long as others have, and a stretch of past submissions comes once more; see
    `Expectations`. A job that does not start is left out.

    Args:
        core: expects this, and has the machine.
        jobs: those that wait or run.
        now_s: the present.
        policy: what starts them.
        seed: of what is drawn.
    """
    settings, expectations = core.settings, core.expectations
    if not settings.futures:
        return {}
    rng = np.random.default_rng([seed, _APART])
    coming = [
        expectations.arrivals(now_s, settings.arrivals, MOST_ARRIVALS, rng, f"future-{number}")
        for number in range(settings.futures)
    ]
    arriving = [spec for specs in coming for spec in specs]
    now = core.simulated(jobs, now_s, policy, arriving, {})
    there = [*jobs, *(JobRecord.model_construct(spec=spec) for spec in arriving)]
    runtime_s = expectations.runtimes(there, now_s, settings.futures, rng)
    return now.futures(
        policy,
        {job.spec.id: column for job, column in zip(there, runtime_s.T, strict=True)},
        [{spec.id for spec in specs} for specs in coming],
    )
