"""CarbonFlex: nodes in use per slot, and their jobs, learned from an oracle.

Source: W. A. Hanafy, L. Wu, D. Irwin, P. Shenoy: CarbonFlex: Enabling Carbon-aware Provisioning and
Scheduling for Cloud Clusters, arXiv:2505.18357, 2025. The implementation follows its abstract. The
similarity of slots, the number of nearest slots used, and the order of jobs are choices made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.text import count_text
from hpctwin.model.workload.malleable import rigid
from hpctwin_sizing.carbon_scaler import marginal_speeds, served
from hpctwin_sizing.slots import Slots
from hpctwin_sizing.view import SizedJob, Sizes, SizeView

__all__ = ["CarbonFlex", "CarbonOracle", "OraclePlan", "learnt", "oracle_plan"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_NEAREST = 5
_AGAIN_S = 86_400.0  # more time for jobs that the oracle cannot place before their deadline
_ROUNDS = 400


@dataclass(frozen=True)
class _Planned:
    """A job with all that the oracle knows of it.

    Args:
        speeds: Speed on 0, 1, … nodes, relative to the nodes it asks for.
        least: Smallest number of nodes that the job runs on.
        submit_s: Submit time, in seconds.
        work_s: Runtime on the nodes it asks for, in seconds.
        expected_s: Expected runtime that its deadline is based on, in seconds.
    """

    speeds: FloatArray
    least: int
    submit_s: float
    work_s: float
    expected_s: float

    @property
    def gains(self) -> FloatArray:
        """Gain of each further node relative to one of the first nodes; not increasing."""
        found = np.minimum.accumulate(marginal_speeds(self.speeds, self.least))
        shares: FloatArray = found / found[0]
        return shares


@dataclass(frozen=True)
class OraclePlan:
    """Plan of the oracle.

    Args:
        sizes: First slot of each job by id, and its nodes from there on.
        used: Nodes in use in each slot [slots].
        floor: Smallest gain of a node in use in each slot; 1 if none is in use [slots].
        waiting: Jobs submitted and not finished when each slot begins [slots].
        left_s: Remaining work of these jobs, in node-seconds [slots].
    """

    sizes: dict[Any, tuple[int, IntArray]]
    used: IntArray
    floor: FloatArray
    waiting: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    left_s: FloatArray = field(default_factory=lambda: np.zeros(0))


def oracle_plan(workload: Workload, nodes: int, slots: Slots, slack_s: float) -> OraclePlan:
    """Return the nodes of each job in each slot if everything is known beforehand.

    It follows `carbon_scaler.slot_sizes`, but takes the steps of all jobs together while nodes are
    left. Steps are ordered by gain, relative to one of the job's first nodes, divided by price.
    Ties go to the earlier slot, then to the earlier job. Jobs run in whole slots from the first
    slot after their submission to their deadline. Jobs that do not fit get one more day, after the
    others, and so on.

    Args:
        workload: The jobs; jobs that may not be suspended are planned as if they could be.
        nodes: Number of nodes of the cluster.
        slots: Slots of the series, without a forecast.
        slack_s: Time by which deadlines are later than an immediate run for the walltime, in
            seconds.

    Raises:
        ConfigError: A job needs more nodes than the cluster has.
    """
    jobs = [_planned(workload, row) for row in range(len(workload))]
    for row, job in enumerate(jobs):
        if job.least > nodes:
            raise ConfigError(
                f"job {workload.job_id[row]} needs {count_text(job.least, 'node')} or more, but the "
                f"cluster has {nodes}"
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
    """Take steps for some jobs, best first; change ``left``, ``size`` and ``used``."""
    low, high = int(begin[short].min()), int(after[short].max())
    price = np.maximum(slots.ahead(low, high - low), 1e-300)
    parts = []
    for row in short.tolist():
        gains = jobs[row].gains
        of = np.arange(begin[row], after[row])
        slot, step = np.divmod(np.arange(len(of) * len(gains)), len(gains))
        parts.append((np.full(len(slot), row), of[slot], step, gains[step] / price[of[slot] - low]))
    row, slot, step, worth = (np.concatenate(one) for one in zip(*parts, strict=True))
    # Steps of a job and slot must be taken in order: ``size`` shows whether the one before was
    # taken.
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
    """Rule that follows the oracle's plan, slot by slot.

    Args:
        slots: Slots of the plan.
        plan: Plan for the same jobs.
    """

    def __init__(self, slots: Slots, plan: OraclePlan, name: str = "carbonflex oracle") -> None:
        self.name = name
        self._slots, self._plan = slots, plan

    def __call__(self, view: SizeView) -> Sizes:
        """Return the number of nodes of each job from now on."""
        if not view.jobs:
            return Sizes()
        slot = self._slots.at(view.now_s)
        next_call_s = self._slots.begin_s(slot + 1)
        if not self._slots.begins(view.now_s):
            return Sizes(next_call_s=next_call_s)
        return Sizes(served(view, {job: self._size(job, slot) for job in view.jobs}), next_call_s)

    def _size(self, job: SizedJob, slot: int) -> int:
        first, sizes = self._plan.sizes.get(job.job_id, (slot, np.zeros(0, np.int64)))
        if slot - first >= len(sizes):
            return job.min_nodes  # a millisecond of work may be left
        return int(sizes[slot - first]) if slot >= first else 0


@dataclass(frozen=True, eq=False)
class Learnt:
    """States and decisions of the oracle in the past.

    Args:
        states: State of each slot, see `_state` [slots, numbers].
        used: Fraction of the cluster in use [slots].
        floor: Smallest gain of a node in use [slots].
    """

    states: FloatArray
    used: FloatArray
    floor: FloatArray

    def nearest(self, state: FloatArray, count: int) -> tuple[float, float]:
        """Return mean use and mean smallest gain over the slots in similar states."""
        scale = self.states.std(axis=0)
        apart = (self.states - state) / np.where(scale > 0, scale, 1.0)
        found = np.argsort((apart**2).sum(axis=1), kind="stable")[:count]
        return float(self.used[found].mean()), float(self.floor[found].mean())


def _state(
    price: FloatArray, before: float, waiting: int, left_s: float, nodes: int
) -> list[float]:
    """Return a slot's state: intensity, its change and rank, and pending work.

    Args:
        price: Values of a day, from the slot on.
        before: Value of the slot before.
        waiting: Number of unfinished jobs.
        left_s: Remaining work of these jobs, in node-seconds.
        nodes: Number of nodes of the cluster.
    """
    rank = float((price < price[0]).mean())
    return [float(price[0]), float(price[0]) - before, rank, float(waiting), left_s / nodes]


def learnt(workload: Workload, nodes: int, slots: Slots, slack_s: float) -> Learnt:
    """Let the oracle plan past jobs, and return its state and decisions in each slot.

    Args:
        workload: Past jobs; nothing of them is forecast.
        nodes: Number of nodes of the cluster.
        slots: Slots of the series, without a forecast.
        slack_s: As for `oracle_plan`.

    Raises:
        ConfigError: The workload is empty.
    """
    if not len(workload):
        raise ConfigError("carbonflex learns from past jobs, but the workload has none")
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
    """Rule that uses as many nodes per slot as the oracle did in similar states.

    Jobs that would otherwise miss their deadline come first, on the nodes they ask for. Then steps
    (one more node for a job) are taken by their gain relative to one of the job's first nodes,
    largest first. Ties go to the job with the least time to spare. No step is below the oracle's
    smallest gain, and the nodes in use do not exceed the oracle's.

    Args:
        slots: Slots of the intensity.
        past: States and decisions of the oracle.
        slack_s: As for `oracle_plan`.
        nearest: Number of similar slots to average.
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
        """Return the number of nodes of each job from now on."""
        if not view.jobs:
            return Sizes()
        slot = self._slots.at(view.now_s)
        next_call_s = self._slots.begin_s(slot + 1)
        if not self._slots.begins(view.now_s):
            return Sizes(next_call_s=next_call_s)
        price = self._slots.ahead(slot, self._day)
        before = float(self._slots.ahead(max(slot - 1, 0), 1)[0])
        left_s = sum(max(job.left_s, 0.0) * job.nodes for job in view.jobs)
        state = np.array(_state(price, before, len(view.jobs), left_s, view.nodes))
        share, floor = self._past.nearest(state, self._nearest)
        wanted = self._chosen(view, round(share * view.nodes), floor)
        urgent = sorted(
            view.jobs, key=lambda job: (not self._urgent(job, view.now_s), job.submit_s)
        )
        return Sizes(served(view, {job: wanted[job] for job in urgent}), next_call_s)

    def _urgent(self, job: SizedJob, now_s: float) -> bool:
        """Return whether a job must run in this slot, on its nodes, to meet its deadline."""
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
