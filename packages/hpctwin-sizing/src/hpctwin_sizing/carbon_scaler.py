"""CarbonScaler: more nodes while energy is clean or cheap, few or none otherwise.

Source: W. A. Hanafy, Q. Liang, N. Bashir, D. Irwin, P. Shenoy: CarbonScaler: Leveraging Cloud
Workload Elasticity for Optimizing Carbon-Efficiency, Proc. ACM Meas. Anal. Comput. Syst. 7(3),
2023. The order of steps is that of the authors' program (github.com/umassos/CarbonScaler), with
equal power for every node.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin_sizing.slots import Slots
from hpctwin_sizing.view import SizedJob, Sizes, SizeView

__all__ = ["CarbonScaler", "marginal_speeds", "served", "slot_sizes"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_MANY = 100_000
"""Largest number of cached plans."""


def marginal_speeds(speeds: FloatArray, least: int) -> FloatArray:
    """Return what each further node adds to a job's speed.

    The first ``least`` nodes count together, with their mean.

    Args:
        speeds: Speed on 0, 1, … nodes.
        least: Smallest number of nodes that the job runs on.

    Returns:
        Gain of the ``least``-th node, and of each node after it.
    """
    return np.concatenate([[speeds[least] / least], np.diff(speeds[least:])])


def slot_sizes(
    left_s: float, speeds: FloatArray, least: int, length_s: FloatArray, price: FloatArray
) -> IntArray:
    """Return a job's nodes in each slot such that its work costs little.

    Steps (one more node in a slot) are taken by work per price, the largest first, until all work
    is done. The first ``least`` nodes of a slot are one step. Ties go to the earlier slot. If all
    steps do not suffice, the job gets all of them.

    Args:
        left_s: Remaining work, in seconds on the nodes the job asks for.
        speeds: Speed on 0, 1, … nodes, relative to the nodes the job asks for.
        least: Smallest number of nodes that the job runs on, unless it has none.
        length_s: Length of each slot, in seconds [slots].
        price: Price or intensity of each slot [slots].

    Returns:
        Nodes [slots].
    """
    most = len(speeds) - 1
    # A node needs those before it, so one that adds more than they do comes right after them.
    gains = np.minimum.accumulate(marginal_speeds(speeds, least))
    with np.errstate(divide="ignore"):
        worth = np.where(price[:, None] > 0, gains / price[:, None], np.inf)
    slot, step = np.divmod(np.arange(worth.size), len(gains))
    # With negative prices, energy is used first where it earns most.
    order = np.lexsort((step, slot, np.minimum(price, 0.0)[slot], -worth.ravel()))
    added = np.concatenate([[speeds[least]], np.diff(speeds[least:])])
    done = np.cumsum((length_s[:, None] * added).ravel()[order])
    enough = int(np.searchsorted(done, left_s * (1 - 1e-12))) + 1
    if done.size and done[-1] < left_s * (1 - 1e-12):
        return np.full(len(price), most)
    sizes = np.zeros(len(price), np.int64)
    np.maximum.at(sizes, slot[order[:enough]], least + step[order[:enough]])
    return sizes


def served(view: SizeView, wanted: dict[SizedJob, int]) -> dict[object, int]:
    """Return sizes of jobs that fit the free nodes; jobs that may not stop go first.

    Args:
        view: The sizing's view.
        wanted: Wanted nodes by job; other jobs keep theirs. A job with fewer free nodes than wanted
            gets the rest, if it can run on that many.

    Returns:
        Sizes by job id, in the order in which they are served.
    """
    free = view.free_nodes + sum(job.size for job in wanted)
    must = [job for job in wanted if job.must_run]
    free -= sum(job.min_nodes for job in must)
    sizes: dict[object, int] = {}
    for job in [*must, *(job for job in wanted if not job.must_run)]:
        # The smallest sizes of jobs that must run are set aside in ``free``; ``kept`` adds a job's
        # own back.
        kept = job.min_nodes if job.must_run else 0
        size = min(max(wanted[job], kept), job.max_nodes, free + kept)
        size = 0 if size < job.min_nodes else size
        free -= size - kept
        sizes[job.job_id] = size
    return sizes


class CarbonScaler:
    """Rule that plans each job on its own up to its deadline, again in each slot.

    Jobs get what they want as far as nodes are free, by submit time. Between two slot starts only
    jobs without nodes are considered. A job that may not be suspended begins at once, and always
    keeps its ``min_nodes``. After its deadline a job gets ``max_nodes``. A job that runs longer
    than expected gets the nodes it asks for.

    Args:
        slots: Slots of the intensity or the price, with what is known of later ones.
        slack_s: Time by which deadlines are later than an immediate run on the requested nodes for
            the expected runtime, in seconds.

    Raises:
        ConfigError: The slack is below 0.
    """

    def __init__(self, slots: Slots, slack_s: float, name: str = "carbonscaler") -> None:
        if not 0 <= slack_s < np.inf:
            raise ConfigError(f"{name}: slack is {slack_s!r} s; it must be 0 or more")
        self.name = name
        self._slots, self._slack_s = slots, slack_s
        self._plans: dict[tuple[object, ...], int] = {}

    def __call__(self, view: SizeView) -> Sizes:
        """Return the number of nodes of each job from now on."""
        if not view.jobs:
            return Sizes()
        slot, fresh = self._slots.at(view.now_s), self._slots.begins(view.now_s)
        wanted = {job: self._wanted(job, slot) for job in view.jobs if fresh or not job.size}
        return Sizes(served(view, wanted), self._slots.begin_s(slot + 1))

    def _wanted(self, job: SizedJob, slot: int) -> int:
        """Return the number of nodes that a job should have in a slot."""
        if job.left_s <= 0:
            return job.nodes
        deadline_s = job.submit_s + job.expected_s + self._slack_s
        asks = job.speedup, job.nodes, job.min_nodes, job.max_nodes, job.suspendable
        begin_s = max(self._slots.begin_s(slot), job.submit_s)
        # Plans are cached, because a pending job is considered at every event.
        key = (slot, begin_s, deadline_s, job.left_s, *asks)
        if key not in self._plans:
            if len(self._plans) >= _MANY:
                self._plans.clear()
            self._plans[key] = self._planned(job, slot, begin_s, deadline_s)
        return self._plans[key]

    def _planned(self, job: SizedJob, slot: int, begin_s: float, deadline_s: float) -> int:
        last = self._slots.at(deadline_s)
        if deadline_s <= begin_s:
            return job.max_nodes
        edges = self._slots.begin_s(slot) + np.arange(last - slot + 2) * self._slots.step_s
        edges = np.clip(edges, begin_s, deadline_s)
        length_s = np.diff(edges)
        price = self._slots.ahead(slot, len(length_s))
        there = length_s > 0
        length_s, price = length_s[there], price[there]
        if job.suspendable:
            sizes = slot_sizes(job.left_s, job.speeds, job.min_nodes, length_s, price)
            return int(sizes[0])
        return self._at_least(job, length_s, price)

    def _at_least(self, job: SizedJob, length_s: FloatArray, price: FloatArray) -> int:
        """Return the first of `slot_sizes` for a job that keeps its smallest size.

        The job has at least that size in each slot until it ends.
        """
        base = float(job.speeds[job.min_nodes])
        more = np.maximum(job.speeds[job.min_nodes :] - base, 0.0)
        left = job.left_s - base * float(length_s.sum())
        if left <= 0 or len(more) == 1:
            return job.min_nodes
        return job.min_nodes + int(slot_sizes(left, more, 1, length_s, price)[0])
