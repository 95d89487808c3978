"""CarbonFlex: how much of a machine is used in each slot, and by whom, learnt from what an oracle would do.

W. A. Hanafy, L. Wu, D. Irwin, P. Shenoy: CarbonFlex: Enabling Carbon-aware Provisioning and Scheduling for
Cloud Clusters, arXiv:2505.18357, 2025. After its abstract: what makes slots alike, how many of the nearest
are asked, and who comes first are choices made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.prices.slots import Slots
from hpctwin.energy.sizing.carbon_scaler import marginal_speeds, served
from hpctwin.energy.sizing.sizing import SizedJob, Sizes, SizeView
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.workload.malleable import rigid

__all__ = ["CarbonFlex", "CarbonOracle", "OraclePlan", "learnt", "oracle_plan"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_NEAREST = 5
_AGAIN_S = 86_400.0  # so much more time have those that the oracle finds no room for
_ROUNDS = 400


@dataclass(frozen=True)
class _Planned:
    """A job as the oracle sees it: nothing is hidden from it.

    Args:
        speeds: on 0, 1, … nodes; 1 on those it asks for.
        least: it runs on so many at least.
        submit_s: seconds.
        work_s: its runtime on the nodes it asks for, seconds.
        expected_s: what was expected of it, for its deadline, seconds.
    """

    speeds: FloatArray
    least: int
    submit_s: float
    work_s: float
    expected_s: float

    @property
    def gains(self) -> FloatArray:
        """What each further node adds, of what one of the first does; falling."""
        found = np.minimum.accumulate(marginal_speeds(self.speeds, self.least))
        shares: FloatArray = found / found[0]
        return shares


@dataclass(frozen=True)
class OraclePlan:
    """What the oracle does.

    Args:
        sizes: by job id: its first slot, and its nodes from there on.
        used: nodes in use in each slot [slots].
        floor: the least gain of a node that is used, in each slot; 1 where none is [slots].
        waiting: jobs that have been submitted and are not done when each slot begins [slots].
        left_s: work that is left of them, node-seconds [slots].
    """

    sizes: dict[Any, tuple[int, IntArray]]
    used: IntArray
    floor: FloatArray
    waiting: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    left_s: FloatArray = field(default_factory=lambda: np.zeros(0))


def oracle_plan(workload: Workload, nodes: int, slots: Slots, slack_s: float) -> OraclePlan:
    """Who has how many nodes in which slot, if all is known: lengths, arrivals and the intensity.

    As `carbon_scaler.slot_sizes`, but all jobs' steps are taken together, by what they add (of what one of
    the job's first nodes does) for their price, as long as there are nodes; of equal ones, the earlier
    slot, then the job that came first. Jobs run in whole slots from the first that begins after they came,
    to their deadline. Those that find too little there have a day more, after the others; and so on.

    Args:
        workload: the jobs; those that may not be suspended are planned as if they might.
        nodes: of the machine.
        slots: of the series, without a forecast.
        slack_s: deadlines are so much later than if each job ran at once for its walltime.

    Raises:
        ConfigError: a job needs more nodes than there are.
    """
    jobs = [_planned(workload, row) for row in range(len(workload))]
    for row, job in enumerate(jobs):
        if job.least > nodes:
            raise ConfigError(
                f"job {workload.job_id[row]} runs on {job.least} nodes at least, of {nodes}"
            )
    left = np.array([job.work_s for job in jobs])
    first = np.array([_first_slot(slots, job.submit_s) for job in jobs], np.int64)
    after = np.array([slots.at(job.submit_s + job.expected_s + slack_s) for job in jobs], np.int64)
    after = np.maximum(after, first + 1)
    more = max(1, round(_AGAIN_S / slots.step_s))
    size: dict[tuple[int, int], int] = {}
    used: dict[int, int] = {}
    begin = first
    for _ in range(_ROUNDS):
        short = np.flatnonzero(left > 1e-6)
        if not len(short):
            break
        _take_steps(jobs, short, begin, after, left, nodes, slots, size, used)
        begin, after = after, after + more
    return _as_plan(workload, jobs, size, used, first, slots)


def _planned(workload: Workload, row: int) -> _Planned:
    sizes = workload.malleable or rigid(workload.nodes)
    curve, nodes = sizes.speedup_of(row), int(workload.nodes[row])
    least, most = int(sizes.min_nodes[row]), int(sizes.max_nodes[row])
    speeds = np.zeros(most + 1)
    speeds[least:] = [float(curve.at(n) / curve.at(nodes)) for n in range(least, most + 1)]
    walltime_s = float(workload.walltime_ms[row]) / MS_PER_S
    work_s = min(float(workload.runtime_ms[row]) / MS_PER_S, walltime_s)
    return _Planned(speeds, least, float(workload.submit_ms[row]) / MS_PER_S, work_s, walltime_s)


def _first_slot(slots: Slots, submit_s: float) -> int:
    slot = slots.at(submit_s)
    return slot if slots.begins(submit_s) else slot + 1


def _take_steps(
    jobs: Sequence[_Planned],
    short: IntArray,
    begin: IntArray,
    after: IntArray,
    left: FloatArray,
    nodes: int,
    slots: Slots,
    size: dict[tuple[int, int], int],
    used: dict[int, int],
) -> None:
    """Take steps for some jobs, the best first; ``left``, ``size`` and ``used`` change."""
    low, high = int(begin[short].min()), int(after[short].max())
    price = np.maximum(slots.ahead(low, high - low), 1e-300)
    parts = []
    for row in short.tolist():
        gains = jobs[row].gains
        of = np.arange(begin[row], after[row])
        slot, step = np.divmod(np.arange(len(of) * len(gains)), len(gains))
        parts.append((np.full(len(slot), row), of[slot], step, gains[step] / price[of[slot] - low]))
    row, slot, step, worth = (np.concatenate(one) for one in zip(*parts, strict=True))
    order = np.lexsort((step, row, slot, -worth))
    for j, t, k in zip(*(one[order].tolist() for one in (row, slot, step)), strict=True):
        job = jobs[j]
        if left[j] <= 1e-6 or size.get((j, t), 0) != (0 if k == 0 else job.least + k - 1):
            continue
        asks = job.least if k == 0 else 1
        if used.get(t, 0) + asks > nodes:
            continue
        had = size.get((j, t), 0)
        size[j, t] = had + asks
        used[t] = used.get(t, 0) + asks
        left[j] -= (job.speeds[had + asks] - job.speeds[had]) * slots.step_s


def _as_plan(
    workload: Workload,
    jobs: Sequence[_Planned],
    size: dict[tuple[int, int], int],
    used: dict[int, int],
    first: IntArray,
    slots: Slots,
) -> OraclePlan:
    end = max(used, default=-1) + 1
    floor = np.ones(end)
    waiting, left_s = np.zeros(end, np.int64), np.zeros(end)
    sizes = {}
    by_job: dict[int, dict[int, int]] = {}
    for (j, t), held in size.items():
        by_job.setdefault(j, {})[t] = held
        floor[t] = min(floor[t], float(jobs[j].gains[held - jobs[j].least]))
    for j, held_at in by_job.items():
        last = max(held_at)
        row = np.zeros(last + 1 - first[j], np.int64)
        for t, held in held_at.items():
            row[t - first[j]] = held
        sizes[workload.job_id[j].item()] = int(first[j]), row
        done = np.cumsum(jobs[j].speeds[row]) * slots.step_s
        before = np.concatenate([[0.0], done[:-1]])
        here = np.arange(first[j], last + 1)
        waiting[here] += 1
        left_s[here] += np.maximum(jobs[j].work_s - before, 0.0) * int(workload.nodes[j])
    told = np.array([used.get(t, 0) for t in range(end)], np.int64)
    return OraclePlan(sizes, told, floor, waiting, left_s)


class CarbonOracle:
    """What the oracle has planned is done, slot by slot.

    Args:
        slots: that it planned in.
        plan: of the same jobs.
    """

    def __init__(self, slots: Slots, plan: OraclePlan, name: str = "carbonflex oracle") -> None:
        self.name = name
        self._slots, self._plan = slots, plan

    def __call__(self, view: SizeView) -> Sizes:
        """On how many nodes each job is to run now."""
        if not view.jobs:
            return Sizes()
        slot = self._slots.at(view.now_s)
        again_s = self._slots.begin_s(slot + 1)
        if not self._slots.begins(view.now_s):
            return Sizes(again_s=again_s)
        return Sizes(served(view, {job: self._size(job, slot) for job in view.jobs}), again_s)

    def _size(self, job: SizedJob, slot: int) -> int:
        first, sizes = self._plan.sizes.get(job.job_id, (slot, np.zeros(0, np.int64)))
        if slot - first >= len(sizes):
            return job.min_nodes  # a millisecond may be left of it
        return int(sizes[slot - first]) if slot >= first else 0


@dataclass(frozen=True, eq=False)
class Learnt:
    """What the oracle did in the past, and how it stood then.

    Args:
        states: of each slot, see `_state` [slots, numbers].
        used: share of the machine in use [slots].
        floor: the least gain of a node that was used [slots].
    """

    states: FloatArray
    used: FloatArray
    floor: FloatArray

    def nearest(self, state: FloatArray, count: int) -> tuple[float, float]:
        """Mean share of the machine, and least gain, of those slots in which it stood most like this."""
        scale = self.states.std(axis=0)
        apart = (self.states - state) / np.where(scale > 0, scale, 1.0)
        found = np.argsort((apart**2).sum(axis=1), kind="stable")[:count]
        return float(self.used[found].mean()), float(self.floor[found].mean())


def _state(
    price: FloatArray, before: float, waiting: int, left_s: float, nodes: int
) -> list[float]:
    """How it stands: the intensity, how it changed, its rank in the day to come, and what waits.

    Args:
        price: of a day, from the slot on.
        before: of the slot before it.
        waiting: jobs that are not done.
        left_s: work that is left of them, node-seconds.
        nodes: of the machine.
    """
    rank = float((price < price[0]).mean())
    return [float(price[0]), float(price[0]) - before, rank, float(waiting), left_s / nodes]


def learnt(workload: Workload, nodes: int, slots: Slots, slack_s: float) -> Learnt:
    """Let the oracle plan jobs of the past, and note what it did and how it stood in each slot.

    Args:
        workload: of the past; it is not forecast.
        nodes: of the machine.
        slots: of the series, without a forecast.
        slack_s: as of `oracle_plan`.

    Raises:
        ConfigError: there is no job.
    """
    if not len(workload):
        raise ConfigError("carbonflex learns of jobs of the past, and there are none")
    plan = oracle_plan(workload, nodes, slots, slack_s)
    day = max(1, round(86_400 / slots.step_s))
    there = np.flatnonzero(plan.waiting)
    price = slots.ahead(0, int(there[-1]) + day + 1)
    states = [
        _state(
            price[t : t + day],
            float(price[max(t - 1, 0)]),
            int(plan.waiting[t]),
            float(plan.left_s[t]),
            nodes,
        )
        for t in there.tolist()
    ]
    return Learnt(np.array(states), plan.used[there] / nodes, plan.floor[there])


class CarbonFlex:
    """In each slot as much is used as by the oracle when it stood alike, by those who gain most.

    Who would miss the deadline otherwise comes first, on the nodes it asks for. Then steps (one node more
    for a job) are taken by what they add, of what one of the job's first nodes does: the most first, of
    equal ones the one with least time to spare, none below the oracle's least; as long as fewer nodes are
    in use than the oracle used.

    Args:
        slots: of the intensity.
        past: what was learnt.
        slack_s: as of `oracle_plan`.
        nearest: of so many slots that stood most alike.
    """

    def __init__(
        self,
        slots: Slots,
        past: Learnt,
        slack_s: float,
        nearest: int = _NEAREST,
        name: str = "carbonflex",
    ) -> None:
        self.name = name
        self._slots, self._past, self._slack_s, self._nearest = slots, past, slack_s, nearest
        self._day = max(1, round(86_400 / slots.step_s))

    def __call__(self, view: SizeView) -> Sizes:
        """On how many nodes each job is to run now."""
        if not view.jobs:
            return Sizes()
        slot = self._slots.at(view.now_s)
        again_s = self._slots.begin_s(slot + 1)
        if not self._slots.begins(view.now_s):
            return Sizes(again_s=again_s)
        price = self._slots.ahead(slot, self._day)
        before = float(self._slots.ahead(max(slot - 1, 0), 1)[0])
        left_s = sum(max(job.left_s, 0.0) * job.nodes for job in view.jobs)
        state = np.array(_state(price, before, len(view.jobs), left_s, view.nodes))
        share, floor = self._past.nearest(state, self._nearest)
        wanted = self._chosen(view, round(share * view.nodes), floor)
        urgent = sorted(
            view.jobs, key=lambda job: (not self._urgent(job, view.now_s), job.submit_s)
        )
        return Sizes(served(view, {job: wanted[job] for job in urgent}), again_s)

    def _urgent(self, job: SizedJob, now_s: float) -> bool:
        """Whether it must run in this slot, on the nodes it asks for, to be done by its deadline."""
        return self._spare_s(job, now_s) < self._slots.step_s

    def _spare_s(self, job: SizedJob, now_s: float) -> float:
        deadline_s = job.submit_s + job.expected_s + self._slack_s
        return deadline_s - now_s - max(job.left_s, 0.0)

    def _chosen(self, view: SizeView, most: int, floor: float) -> dict[SizedJob, int]:
        wanted = {job: job.min_nodes if job.must_run else 0 for job in view.jobs}
        for job in view.jobs:
            if self._urgent(job, view.now_s):
                wanted[job] = max(wanted[job], job.nodes)
        steps = []
        for number, job in enumerate(view.jobs):
            gains = np.minimum.accumulate(marginal_speeds(job.speeds, job.min_nodes))
            spare_s = self._spare_s(job, view.now_s)
            for k, gain in enumerate((gains / gains[0]).tolist()):
                if gain >= floor * (1 - 1e-9):
                    steps.append((-gain, spare_s, number, k))
        used = sum(wanted.values())
        for _, _, number, k in sorted(steps):
            job = view.jobs[number]
            size = job.min_nodes + k
            asks = size - wanted[job]
            if asks > 0 and used + asks <= most and wanted[job] == (0 if k == 0 else size - 1):
                wanted[job] = size
                used += asks
        return wanted
