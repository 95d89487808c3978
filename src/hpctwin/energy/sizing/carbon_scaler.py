"""CarbonScaler: a job has more nodes while energy is clean (or cheap), and fewer or none while it is not.

W. A. Hanafy, Q. Liang, N. Bashir, D. Irwin, P. Shenoy: CarbonScaler: Leveraging Cloud Workload Elasticity for
Optimizing Carbon-Efficiency, Proc. ACM Meas. Anal. Comput. Syst. 7(3), 2023. The order of steps is that of
the authors' program (github.com/umassos/CarbonScaler), with equal power for every node.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.energy.prices.slots import Slots
from hpctwin.energy.sizing.sizing import SizedJob, Sizes, SizeView
from hpctwin.errors import ConfigError

__all__ = ["CarbonScaler", "marginal_speeds", "served", "slot_sizes"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_MANY = 100_000
"""So many plans are remembered, at most."""


def marginal_speeds(speeds: FloatArray, least: int) -> FloatArray:
    """What each further node adds to a job's speed: the first ``least`` together, for each of them.

    Args:
        speeds: on 0, 1, … nodes.
        least: it runs on so many at least.

    Returns:
        Of the ``least``-th node, and of each after it.
    """
    return np.concatenate([[speeds[least] / least], np.diff(speeds[least:])])


def slot_sizes(
    left_s: float, speeds: FloatArray, least: int, length_s: FloatArray, price: FloatArray
) -> IntArray:
    """On how many nodes a job runs in each slot, so that its work costs little.

    Steps (a slot, one node more) are taken by how much work they do for their price, the most first, until
    all work is done; a job's first ``least`` nodes of a slot are one step. Of equal ones the earlier slot
    comes first. If all steps do not suffice, it has all of them.

    Args:
        left_s: work that is left, seconds on the nodes it asks for.
        speeds: on 0, 1, … nodes, on those it asks for 1.
        least: it runs on so many at least, or not at all.
        length_s: of each slot [slots].
        price: or intensity of each [slots].

    Returns:
        Nodes [slots].
    """
    most = len(speeds) - 1
    # Who may have a node has those before it: one that adds more than they did comes right after them.
    gains = np.minimum.accumulate(marginal_speeds(speeds, least))
    with np.errstate(divide="ignore"):
        worth = np.where(price[:, None] > 0, gains / price[:, None], np.inf)
    slot, step = np.divmod(np.arange(worth.size), len(gains))
    # Who is paid for using energy uses it first where most is paid.
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
    """As many nodes for each job as it wants and there are: first what those need that may not stop.

    Args:
        view: how it stands.
        wanted: by job; the others keep what they have. Who finds fewer than it wants gets what is left, if
            that is as many as it may run on.

    Returns:
        Sizes by job id, in the order in which they find room.
    """
    free = view.free_nodes + sum(job.size for job in wanted)
    must = [job for job in wanted if job.must_run]
    free -= sum(job.min_nodes for job in must)
    sizes: dict[object, int] = {}
    for job in [*must, *(job for job in wanted if not job.must_run)]:
        kept = job.min_nodes if job.must_run else 0
        size = min(max(wanted[job], kept), free + kept)
        size = 0 if size < job.min_nodes else size
        free -= size - kept
        sizes[job.job_id] = size
    return sizes


class CarbonScaler:
    """Each job by itself is planned to its deadline, anew in each slot by what is known of the intensity.

    What it wants it gets as far as nodes are free, by submit time; between two slots only jobs that wait
    are looked at. A job that may not be suspended begins at once, and has its ``min_nodes`` in any case.
    After its deadline a job has ``max_nodes``; one that runs longer than expected has the nodes it asks for.

    Args:
        slots: of the intensity, or the price.
        slack_s: a job's deadline is so much later than if it ran at once on its nodes for as long as it is
            expected to run, seconds.

    Raises:
        ConfigError: the slack is below 0.
    """

    def __init__(self, slots: Slots, slack_s: float, name: str = "carbonscaler") -> None:
        if not 0 <= slack_s < np.inf:
            raise ConfigError(f"{name}: slack is {slack_s!r} s, it must be 0 or more")
        self.name = name
        self._slots, self._slack_s = slots, slack_s
        self._plans: dict[tuple[object, ...], int] = {}

    def __call__(self, view: SizeView) -> Sizes:
        """On how many nodes each job is to run now."""
        if not view.jobs:
            return Sizes()
        slot, fresh = self._slots.at(view.now_s), self._slots.begins(view.now_s)
        wanted = {job: self._wanted(job, slot) for job in view.jobs if fresh or not job.size}
        return Sizes(served(view, wanted), self._slots.begin_s(slot + 1))

    def _wanted(self, job: SizedJob, slot: int) -> int:
        """So many nodes it is to have in a slot."""
        if job.left_s <= 0:
            return job.nodes
        deadline_s = job.submit_s + job.expected_s + self._slack_s
        asks = job.speedup, job.nodes, job.min_nodes, job.max_nodes, job.suspendable
        begin_s = max(self._slots.begin_s(slot), job.submit_s)
        # Remembered, as a job that waits is looked at whenever anything happens.
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
        """As `slot_sizes` for the first slot, where the job has its least nodes in each until it ends."""
        base = float(job.speeds[job.min_nodes])
        more = np.maximum(job.speeds[job.min_nodes :] - base, 0.0)
        left = job.left_s - base * float(length_s.sum())
        if left <= 0 or len(more) == 1:
            return job.min_nodes
        return job.min_nodes + int(slot_sizes(left, more, 1, length_s, price)[0])
