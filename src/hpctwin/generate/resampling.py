"""Random replicates of a workload that exists once: pieces of time, users, and shifted arrivals."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.model import MS_PER_S, Category, Dependencies, Workload
from hpctwin.model.columns import UNKNOWN
from hpctwin.model.text import to_ms

__all__ = ["check_users", "resample_pieces", "resample_users", "shift_arrivals"]

IntArray = npt.NDArray[np.int64]

_DAY_MS = 86_400 * MS_PER_S
_WEEK_MS = 7 * _DAY_MS


def resample_pieces(workload: Workload, piece_s: float, seed: int = 0) -> Workload:
    """Join pieces of the workload that are drawn with replacement (block bootstrap).

    There are as many pieces as in the workload. Dependencies are dropped.

    Args:
        workload: The jobs.
        piece_s: Length of a piece, in seconds.
        seed: Seed of the draws.
    """
    if not len(workload):
        return workload
    piece = to_ms(piece_s)
    since = workload.submit_ms - workload.submit_ms[0]
    count = math.ceil((int(since[-1]) + 1) / piece)
    drawn = np.random.default_rng(seed).integers(0, count, count)
    edges = np.searchsorted(since, np.arange(count + 1) * piece)
    rows = np.concatenate([np.arange(edges[one], edges[one + 1]) for one in drawn])
    moved = np.repeat((np.arange(count) - drawn) * piece, np.diff(edges)[drawn])
    return _copied(workload, rows, workload.submit_ms[rows] + moved)


def resample_users(workload: Workload, seed: int = 0) -> Workload:
    """Draw as many users as the workload has, with replacement, each with all of its jobs.

    A user that is drawn twice becomes two users. The jobs of each drawn user are moved by a random
    number of whole weeks; of days, if the workload spans less than two weeks. Jobs beyond the end
    continue at the beginning. So time of day and day of the week are kept, and users meet other
    jobs of others. Dependencies are dropped.

    Source:
        N. Zakay, D. G. Feitelson, "Workload resampling for performance evaluation of parallel job
        schedulers", Concurrency and Computation 26 (12), 2014.

    Args:
        workload: The jobs.
        seed: Seed of the draws.

    Raises:
        WorkloadError: The users are unknown, or there is only one.
    """
    check_users(workload)
    found, codes = np.unique(workload.user.codes, return_inverse=True)
    users = len(found)
    rng = np.random.default_rng(seed)
    since = workload.submit_ms - workload.submit_ms[0]
    step = _WEEK_MS if since[-1] >= 2 * _WEEK_MS else _DAY_MS
    steps = int(since[-1]) // step + 1
    drawn, moved = rng.integers(0, users, users), rng.integers(0, steps, users) * step
    by_user = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[by_user], np.arange(users + 1))
    rows = np.concatenate([by_user[edges[one] : edges[one + 1]] for one in drawn])
    copy = np.repeat(np.arange(users), np.diff(edges)[drawn])
    submit = workload.submit_ms[0] + (since[rows] + moved[copy]) % (steps * step)
    order = np.lexsort((rows, submit))
    earlier = [int((drawn[:one] == user).sum()) for one, user in enumerate(drawn)]
    labels = tuple(
        workload.user.labels[found[user]] + (f"#{times + 1}" if times else "")
        for user, times in zip(drawn, earlier, strict=True)
    )
    copied = _copied(workload, rows[order], submit[order])
    return copied.replace(user=Category(copy[order].astype(np.int32), labels))


def check_users(workload: Workload) -> None:
    """Check that `resample_users` can draw users.

    Raises:
        WorkloadError: The users are unknown, or there is only one.
    """
    if workload.user.codes.min(initial=0) < 0 or len(np.unique(workload.user.codes)) < 2:
        raise WorkloadError(
            f"{workload.name}: users cannot be resampled; each job needs a user, and there must "
            "be two users or more"
        )


def shift_arrivals(
    workload: Workload, max_shift_s: float, seed: int | np.random.Generator = 0
) -> Workload:
    """Move each submission by a random time, uniform up to a maximum in both directions.

    No submission moves to before the first one. Dependencies are kept.

    Source:
        D. Tsafrir, K. Ouaknine, D. G. Feitelson, "Reducing performance evaluation sensitivity and
        variability by input shaking", MASCOTS 2007.

    Args:
        workload: The jobs.
        max_shift_s: Maximum shift, in seconds.
        seed: Seed of the shifts, or a random number generator.
    """
    if not len(workload):
        return workload
    most = to_ms(max_shift_s)
    shift = np.random.default_rng(seed).integers(-most, most, len(workload), endpoint=True)
    submit = np.maximum(workload.submit_ms + shift, workload.submit_ms[0])
    order = np.lexsort((workload.job_id, submit))
    moved = submit - workload.submit_ms
    return _moved(workload, submit, moved).in_order(order)


def _copied(workload: Workload, rows: IntArray, submit_ms: IntArray) -> Workload:
    """Return the jobs at ``rows``, which may repeat, with new ids and submit times."""
    plain = workload.replace(dependencies=Dependencies.none()).in_order(rows)
    found = plain.replace(job_id=np.arange(1, len(rows) + 1))
    return _moved(found, submit_ms, submit_ms - plain.submit_ms)


def _moved(workload: Workload, submit_ms: IntArray, moved_ms: IntArray) -> Workload:
    """Return the jobs with other submit times, and without what is no longer true."""
    cancel = np.where(workload.cancel_ms < 0, UNKNOWN, workload.cancel_ms + moved_ms)
    return workload.replace(
        submit_ms=submit_ms,
        cancel_ms=cancel,
        recorded_start_ms=np.full(len(workload), UNKNOWN),
        recorded_nodes=None,
    )
