"""What a file cannot say, fitted on a site's past in time order, and how wrong it was in what came after."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.jobs.fidelity import Fidelity

__all__ = ["PARTS", "fitted_on_the_past"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

PARTS = 6
_LEAST = 20


def fitted_on_the_past(
    tried: Mapping[tuple[str, str], Fidelity], parts: int = PARTS
) -> pl.DataFrame:
    """Before each part of the past: what fits best what was known by then; and its error in that part.

    Fitted are which assumption to replace, if any, and how much later jobs start than simulated (what the
    scheduler and prologs take): by the least median error of the jobs that had started by then.

    Args:
        tried: simulations beside the recorded starts, by assumption and what stands in its place; the first
            is as it was asked for.
        parts: so many, of equally many jobs in order of submission; the first is only learnt from.

    Returns:
        A row for each other part before which 20 jobs or more had started: ``from_s`` and ``until_s`` (of
        submissions), ``jobs``, ``assumption`` and ``instead`` (of the one that was fitted), ``delay_s``,
        ``error_s`` and ``within_1min`` (with these; the median, and the share), ``taken_error_s`` and
        ``taken_within_1min`` (as it was asked for).
    """
    names, jobs = list(tried), _laid(list(tried.values()))
    submit_s, started_s = (jobs[name].to_numpy() for name in ("submit_s", "started_s"))
    errors = jobs.select(pl.col(f"error_{number}") for number in range(len(names))).to_numpy().T
    rows = []
    for part in np.array_split(np.arange(len(jobs)), parts)[1:]:
        if not len(part):
            continue
        known = started_s < submit_s[part[0]]
        if known.sum() < _LEAST:
            continue
        best, delay_s = _best(errors, known)
        fitted, taken = np.abs(errors[best][part] + delay_s), np.abs(errors[0][part])
        rows.append(
            {
                "from_s": float(submit_s[part[0]]),
                "until_s": float(submit_s[part[-1]]),
                "jobs": len(part),
                "assumption": names[best][0],
                "instead": names[best][1],
                "delay_s": delay_s,
                "error_s": float(np.median(fitted)),
                "taken_error_s": float(np.median(taken)),
                "within_1min": float((fitted <= 60.0).mean()),
                "taken_within_1min": float((taken <= 60.0).mean()),
            }
        )
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = {
    "from_s": pl.Float64, "until_s": pl.Float64, "jobs": pl.Int64, "assumption": pl.String,
    "instead": pl.String, "delay_s": pl.Float64, "error_s": pl.Float64, "taken_error_s": pl.Float64,
    "within_1min": pl.Float64, "taken_within_1min": pl.Float64,
}  # fmt: skip


def _laid(tried: list[Fidelity]) -> pl.DataFrame:
    """Submission, recorded start and the error of each simulation, of the jobs that all of them have."""
    first = tried[0].jobs
    jobs = first.select(
        "job_id", "submit_s", started_s=pl.col("submit_s") + pl.col("recorded_wait_s")
    )
    for number, one in enumerate(tried):
        error = one.jobs.select("job_id", pl.col("error_s").alias(f"error_{number}"))
        jobs = jobs.join(error, on="job_id", how="inner", maintain_order="left")
    return jobs.sort("submit_s", maintain_order=True)


def _best(errors: FloatArray, known: BoolArray) -> tuple[int, float]:
    """Which simulation, and how much later jobs start: with the least median error over what is known."""
    ways = [
        (number, delay_s)
        for number, error in enumerate(errors[:, known])
        for delay_s in (0.0, max(0.0, -float(np.median(error))))
    ]
    # The first of equals: what was asked for stays unless something else is nearer.
    return min(ways, key=lambda way: float(np.median(np.abs(errors[way[0], known] + way[1]))))
