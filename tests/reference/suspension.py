"""Jobs that are suspended for others, on whole nodes."""

from __future__ import annotations

from collections import Counter
from copy import copy, deepcopy
from typing import Any

from hpctwin.model import State
from tests.reference.jobs import Job
from tests.reference.passes import OVERDUE_STEP_MS
from tests.reference.plan import Plan
from tests.reference.preemption import PreemptingSimulation

NEVER = 2**62


class RecordedPlan(Plan):
    """One that knows what was taken out of it, so that it can be made anew."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.changes: list[tuple[Job, dict[int, int], int, int, int]] = []

    def change(self, job: Job, split: dict[int, int], start: int, end: int, sign: int) -> None:
        self.changes.append((job, dict(split), start, end, sign))
        super().change(job, split, start, end, sign)


class SuspendingSimulation(PreemptingSimulation):
    """On each node lie those who had it first beneath who has it now."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.beneath: dict[int, list[Job]] = {}  # who had it first at the beginning

    def members(self, node: int) -> list[Job]:
        """All who are on a node, who has it last first."""
        on = self.machine.job_on[node]
        return [*self.beneath.get(node, []), *([] if on is None else [on])]

    def above(self, job: Job) -> list[Job]:
        """Those who have nodes of a job, or wait for them to come back before it does."""
        found = []
        for node, lower in self.beneath.items():
            if job in lower:
                found += self.members(node)[lower.index(job) + 1 :]
        return found

    def said(self, job: Job, name: str) -> int | str:
        if name == "grace" and self.said(job, "mode") == "suspend":
            return 0
        return super().said(job, name)

    # -- events --

    def vacate(self, job: Job) -> None:
        on = {node: [one for one in self.members(node) if one is not job] for node in job.nodes}
        super().vacate(job)
        for node, rest in on.items():
            self.put_on(node, rest)

    def put_on(self, node: int, on: list[Job]) -> None:
        """Have these be on a node, who has it last first."""
        self.machine.job_on[node] = on[-1] if on else None
        self.beneath[node] = on[:-1]

    def batch(self) -> None:
        super().batch()
        self.wake()

    def wake(self) -> None:
        """Those whose nodes are all theirs again go on."""
        for job in self.in_state(State.RUNNING):
            if job.suspended and not self.above(job):
                job.suspended = False
                job.paused = self.now - job.start - job.ran
                job.due = job.over = self.now + job.remains

    def suspend(self, job: Job) -> None:
        job.suspended = True
        job.preemptions += 1
        job.ran = self.now - job.start - job.paused
        job.remains = job.due - self.now
        job.due = job.over = NEVER

    # -- plans --

    def expected_end(self, job: Job) -> int:
        begin = job.start + job.paused
        if job.suspended:
            goes_on = max(self.expected_end(other) for other in self.above(job))
            begin = goes_on - min(job.ran, job.expected)
        end = begin + job.expected
        while end <= self.now:
            end += OVERDUE_STEP_MS
        if self.terminate:
            end = min(end, begin + job.walltime)
        return end if job.leaves is None else min(end, job.leaves)

    def plan(self) -> RecordedPlan:
        running = self.in_state(State.RUNNING)
        for job in running:
            job.planned_end = self.expected_end(job)
        last: dict[Job, Counter[int]] = {job: Counter() for job in running}
        for number, pool in enumerate(self.machine.pools):
            for node in pool.nodes:
                if on := self.members(node):
                    last[on[0]][number] += 1
        counted = []
        for job in running:
            counted.append(copy(job))
            counted[-1].split = dict(last[job])
        return RecordedPlan(self.machine, counted, self.now, self.placement)

    def make_anew(self, plan: RecordedPlan) -> None:
        """Bring a plan up to date; what was reserved in it for those that wait still is."""
        reserved = [one for one in plan.changes if self.jobs[one[0].row].state == State.WAITING]
        fresh = self.plan()
        for one in reserved:
            fresh.change(*one)
        plan.times, plan.free, plan.changes = fresh.times, fresh.free, fresh.changes

    # -- preemption --

    def without(self, gone: list[Job], plan: RecordedPlan) -> RecordedPlan:
        """A plan in which some go after their graces, and nodes are left that nobody else is on."""
        made: RecordedPlan = deepcopy(plan, {id(job): job for job in self.jobs})
        for number, pool in enumerate(self.machine.pools):
            for node in pool.nodes:
                on = self.members(node)
                if not on or not set(on) <= set(gone):
                    continue
                since = self.now + max(self.said(job, "grace") for job in on)
                until = on[0].planned_end
                if since < until:
                    Plan.change(made, copy_without_needs(on[0]), {number: 1}, since, until, 1)
        for job in gone:
            leaves = self.now + self.said(job, "grace")
            if self.said(job, "mode") != "suspend" and leaves < job.planned_end:
                Plan.change(made, job, {}, leaves, job.planned_end, 1)
        for time, free in zip(made.times, made.free, strict=True):
            for number, pool in enumerate(self.machine.pools):
                if pool.away(time):
                    free[number] = min(0, free[number])
        return made

    def first_that_suffice(self, job: Job, order: list[Job], plan: Plan) -> list[Job]:
        assert isinstance(plan, RecordedPlan)
        for count in range(1, len(order) + 1):
            gone = order[:count]
            longest = max(self.said(other, "grace") for other in gone)
            if self.without(gone, plan).least(job, self.now + longest) is not None:
                return gone
        return []

    def start_or_preempt(self, job: Job, plan: Plan) -> bool:
        assert isinstance(plan, RecordedPlan)
        if self.start_if_it_fits(job, plan):
            return True
        if not self.classes[job.standing][3]:
            return False
        if job.patient > self.now:
            self.timers.append(job.patient)
            return False
        chosen = self.choose(job, plan)
        if not chosen:
            return False
        room = self.without(chosen, plan)
        stay = [one for one in chosen if self.said(one, "mode") == "suspend"]
        longest = self.let_go([one for one in chosen if one not in stay])
        if longest:
            job.patient = self.now + longest
            self.timers.append(job.patient)
            self.wake()
            self.make_anew(plan)
            return False
        self.start_on(job, stay, room)
        self.wake()
        self.make_anew(plan)
        return True

    def start_on(self, job: Job, stay: list[Job], room: Plan) -> None:
        """Start a job on nodes that are free, or on which only those are that are to be suspended."""
        job_on = self.machine.job_on
        lent = {
            node: on
            for node in range(len(job_on))
            if (on := self.members(node)) and set(on) <= set(stay)
        }
        for node in lent:
            self.put_on(node, [])
        assert self.start_if_it_fits(job, room)
        covered = set()
        for node, on in lent.items():
            if job_on[node] is job:
                self.put_on(node, [*on, job])
                covered |= set(on)
            else:
                self.put_on(node, on)
        for victim in stay:
            if victim in covered and not victim.suspended:
                self.suspend(victim)


def copy_without_needs(job: Job) -> Job:
    made = copy(job)
    made.needs = {}
    return made
