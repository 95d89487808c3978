"""Jobs that are suspended for others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hpctwin.model import State
from tests.reference.jobs import Job
from tests.reference.passes import OVERDUE_STEP_MS
from tests.reference.plan import Plan
from tests.reference.preemption import PreemptingSimulation, SharedPreemptingSimulation
from tests.reference.shared import SharedPlan

NEVER = 2**62


class RecordedPlan(Plan):
    """One that knows what was taken out of it, so that it can be made anew."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.changes: list[tuple[Job, dict[int, int], int, int, int]] = []

    def change(self, job: Job, split: dict[int, int], start: int, end: int, sign: int) -> None:
        self.changes.append((job, dict(split), start, end, sign))
        super().change(job, split, start, end, sign)


class Suspending(PreemptingSimulation, ABC):
    """Time stands still for those that are suspended."""

    @abstractmethod
    def above(self, job: Job) -> list[Job]:
        """Those for whom a job is suspended, if it is."""

    @abstractmethod
    def wake(self) -> None:
        """Those go on who may."""

    @abstractmethod
    def without(self, gone: list[Job], plan: Any) -> Any:
        """A plan in which some go after their graces, or are suspended."""

    @abstractmethod
    def make_anew(self, plan: Any) -> None:
        """Bring a plan up to date; what was reserved in it for those that wait still is."""

    @abstractmethod
    def start_on(self, job: Job, stay: list[Job], room: Any) -> None:
        """Start a job in a plan in which there is room for it; these are suspended where it must be."""

    def batch(self) -> None:
        super().batch()
        self.wake()

    def go_on(self, job: Job) -> None:
        self.came_back = True
        job.suspended = False
        job.resumed = self.now
        job.paused = self.now - job.start - job.ran
        job.over = self.now + job.remains
        job.due = job.over + self.cleanup

    def suspend(self, job: Job) -> None:
        job.attempts = job.runs_until(self.now)
        job.ran = self.ran(job)
        job.suspended = True
        job.preemptions += 1
        job.remains = job.over - self.now
        job.due = job.over = NEVER

    def put_back(self, job: Job) -> None:
        super().put_back(job)
        job.suspended = False
        job.resumed = None
        job.paused = 0

    def set_end(self, job: Job, since: int, work: Fraction) -> None:
        super().set_end(job, since, work)
        if job.suspended:
            job.remains = job.over - self.now
            job.due = job.over = NEVER

    def expected_end(self, job: Job) -> int:
        begin = job.start + job.paused
        if job.suspended:
            goes_on = max((self.expected_end(other) for other in self.above(job)), default=self.now)
            begin = goes_on - min(job.ran, job.expected)
        end = begin + job.expected
        while end <= self.now:
            end += OVERDUE_STEP_MS
        if self.terminate:
            end = min(end, begin + job.walltime + self.cleanup)
        return end if job.leaves is None else min(end, job.leaves)

    def start_in_place_of(self, chosen: list[Job], job: Job, plan: Any) -> bool:
        room = self.without(chosen, plan)
        stay = [one for one in chosen if self.said(one, "mode") == "suspend"]
        waits = self.has_to_wait(job, self.let_go([one for one in chosen if one not in stay]))
        if waits:
            self.wake()
        else:
            self.start_on(job, stay, room)
        self.make_anew(plan)
        return not waits


class SuspendingSimulation(Suspending):
    """On each node lie those who had it first beneath who has it now."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.beneath: dict[int, list[Job]] = {}  # who had it first at the beginning

    def members(self, node: int) -> list[Job]:
        """All who are on a node, who has it last first."""
        on = self.machine.job_on[node]
        return [*self.beneath.get(node, []), *([] if on is None else [on])]

    def jobs_on(self, node: int) -> Iterator[Job]:
        yield from self.members(node)

    def above(self, job: Job) -> list[Job]:
        """Those who have nodes of a job, or wait for them to come back before it does."""
        found = []
        for node, lower in self.beneath.items():
            if job in lower:
                found += self.members(node)[lower.index(job) + 1 :]
        return found

    def vacate(self, job: Job) -> None:
        on = {node: [one for one in self.members(node) if one is not job] for node in job.nodes}
        super().vacate(job)
        for node, rest in on.items():
            self.put_on(node, rest)

    def put_on(self, node: int, on: list[Job]) -> None:
        """Have these be on a node, who has it last first."""
        self.machine.job_on[node] = on[-1] if on else None
        self.beneath[node] = on[:-1]

    def wake(self) -> None:
        """Those whose nodes are all theirs again go on."""
        for job in self.in_state(State.RUNNING):
            if job.suspended and not self.above(job):
                self.go_on(job)

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

    def without(self, gone: list[Job], plan: RecordedPlan) -> RecordedPlan:
        """A plan in which some go after their graces, and nodes are left that nobody else is on."""
        made: RecordedPlan = deepcopy(plan, {id(job): job for job in self.jobs})
        for number, pool in enumerate(self.machine.pools):
            for node in pool.nodes:
                on = self.members(node)
                if not on or not set(on) <= set(gone):
                    continue
                since = self.now + max(map(self.away_after, on))
                until = on[0].planned_end
                if since < until:
                    Plan.change(made, copy_without_needs(on[0]), {number: 1}, since, until, 1)
        for job in gone:
            leaves = self.now + self.away_after(job)
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
            longest = max(map(self.away_after, gone))
            if self.without(gone, plan).least(job, self.now + longest) is not None:
                return gone
        return []

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
        self.wake()


class SharedSuspendingSimulation(Suspending, SharedPreemptingSimulation):
    """A suspended job keeps what it holds, but for its cores: of these more may be held than there are."""

    def go_on(self, job: Job) -> None:
        super().go_on(job)
        self.given[job, self.now] = self.on[job]

    def above(self, job: Job) -> list[Job]:
        name = self.classes[job.standing][0]
        return [
            other
            for other in self.on
            if name in self.classes[other.standing][3]
            and self.on[other].keys() & self.on[job].keys()
        ]

    def has_cores(self, job: Job, others: Iterable[Job]) -> bool:
        """Whether a job has its cores on all its nodes, if these have theirs."""
        asked = self.asked[job]
        for node, tasks in self.on[job].items():
            here = [other for other in others if node in self.on[other]]
            if not all(asked.goes_with(self.asked[other]) for other in here):
                return False
            held = sum(self.asked[other].held(self.on[other][node])[0] for other in here)
            if held + asked.held(tasks)[0] > self.whole[node][0]:
                return False
        return True

    def wake(self, taken: Iterable[Job] = ()) -> None:
        """Of those that are suspended, and of some others, those run that have their cores."""
        some = {*taken, *(job for job in self.on if job.suspended)}
        runs = {*self.on} - some
        for job in sorted(some, key=lambda job: (-self.level(job.standing), job.came)):
            if self.has_cores(job, runs | {*self.above(job)}):
                runs.add(job)
                if job.suspended:
                    self.go_on(job)
            elif not job.suspended:
                self.suspend(job)

    def give_after_grace(self, job: Job, plan: SharedPlan, sign: int) -> None:  # type: ignore[override]
        if self.said(job, "mode") != "suspend":
            super().give_after_grace(job, plan, sign)
            return
        plan.bookings = [
            replace(one, lends=sign > 0) if one.job is job else one for one in plan.bookings
        ]

    def without(self, gone: list[Job], plan: SharedPlan) -> SharedPlan:
        made = copy(plan)
        for job in gone:
            self.give_after_grace(job, made, 1)
        return made

    def make_anew(self, plan: SharedPlan) -> None:
        fresh = self.plan()

        def is_reserved(job: Job) -> bool:
            return job.state == State.WAITING and job not in plan.running

        plan.bookings = [*fresh.bookings, *(one for one in plan.bookings if is_reserved(one.job))]
        plan.wide = [*fresh.wide, *(one for one in plan.wide if is_reserved(one[0]))]
        plan.running = fresh.running

    def taken_out(self, holders: list[Job], plan: SharedPlan) -> bool:  # type: ignore[override]
        """Whether there is enough when reservations begin: suspended jobs hold more than there is."""
        for job in holders:
            plan.take(job, job.reserved_split, job.reserved)
        waiting = [one for one in plan.bookings if one.job.state == State.WAITING]
        wide = all(
            plan.free_of(name, time) >= 0
            for name in self.machine.resources
            for time in plan.times()
        )
        return wide and all(plan.has_enough(one.node, one.start) for one in waiting)

    def start_on(self, job: Job, stay: list[Job], room: SharedPlan) -> None:
        assert self.start_if_it_fits(job, room)
        self.wake(stay)


def copy_without_needs(job: Job) -> Job:
    made = copy(job)
    made.needs = {}
    return made
