"""The pass ``pushdown`` of Goyal and Pavithra, §III, and docs/reference/adaptive-policies.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpctwin.model import MS_PER_S, State
from tests.reference.jobs import Job
from tests.reference.plan import Plan

if TYPE_CHECKING:
    from tests.reference.passes import Simulation


@dataclass
class Queues:
    """What is kept from one pass to the next."""

    main: list[Job] = field(default_factory=list)
    aside: list[Job] = field(default_factory=list)
    told: int = 0  # so many of the submitted have promoted what they wait for
    cycle_at: int = -1


def pass_pushdown(simulation: Simulation, queue: list[Job], plan: Plan) -> None:
    """One cycle, if one is due."""
    of, now, kept = simulation.settings, simulation.now, simulation.queues
    kept.main = [job for job in kept.main if job in queue]
    kept.aside = [job for job in kept.aside if job in queue]
    fresh = [job for job in queue if job not in kept.main and job not in kept.aside]
    fresh.sort(key=lambda job: _key(simulation, job))
    for job in fresh:
        job.looked, job.pushed, job.risen = -1, 0, 0  # it begins to wait
    number = now // of["interval"]
    if not queue:
        return
    if now % of["interval"] or kept.cycle_at == now:
        simulation.timers.append((number + 1) * of["interval"])
        return
    kept.cycle_at = now
    _hear(simulation)
    _take_in(simulation, fresh)
    _start_preemptors(simulation, queue, plan)
    looks = (number + 1) % of["every"] == 0 or not kept.main
    if looks:
        for job in list(kept.aside):
            if _has_slot(simulation) and _start(simulation, job, plan):
                kept.aside.remove(job)
    pushed = False
    while _has_slot(simulation) and kept.main and kept.main[0].looked != now:
        job = kept.main[0]
        if simulation.skipped(job) or plan.least(job, now) is None:
            job.looked = now
            _push_down(simulation, job)
            pushed = True
        elif not _is_adjacent(simulation, job):
            break
        else:
            kept.main.remove(job)
            assert _start(simulation, job, plan)
    changed = pushed or bool(simulation.started)
    # Else nothing changes until the waiting queue's turn comes, or something happens.
    if (kept.main or kept.aside) and (changed or not looks):
        simulation.timers.append((number + 1) * of["interval"])


def _start_preemptors(simulation: Simulation, queue: list[Job], plan: Plan) -> None:
    kept = simulation.queues
    for job in simulation.preemptors(queue):
        if simulation.skipped(job):
            continue
        may_run = _has_slot(simulation) and _is_adjacent(simulation, job)
        if may_run and simulation.attempt(job, plan):
            (kept.main if job in kept.main else kept.aside).remove(job)
        elif simulation.awaits(job):
            simulation.reserve(job, plan)


def _start(simulation: Simulation, job: Job, plan: Plan) -> bool:
    return not simulation.skipped(job) and simulation.start_if_it_fits(job, plan)


def _hear(simulation: Simulation) -> None:
    """Dependants that were submitted since promote what they wait for in the main queue."""
    submitted = [job for job in simulation.jobs if job.submitted]
    for job in submitted[simulation.queues.told :]:
        if job.state == State.PENDING and not job.doomed and not job.thinks:
            for other, *_ in sorted(job.waits_for, key=lambda edge: edge[0].row):
                _promote(simulation, other, job)
    simulation.queues.told = len(submitted)


def _take_in(simulation: Simulation, fresh: list[Job]) -> None:
    main = simulation.queues.main
    place = 0
    for job in fresh:
        while place < len(main) and _key(simulation, main[place]) < _key(simulation, job):
            place += 1
        main.insert(place, job)
        place += 1
    for job in fresh:
        for other, _ in sorted(job.waited_for_by, key=lambda edge: edge[0].row):
            there = other.submitted and not other.thinks
            if there and other.state == State.PENDING and not other.doomed:
                _promote(simulation, job, other)


def _key(simulation: Simulation, job: Job) -> tuple[float, tuple[int, int]]:
    """By which jobs have their priority: it does not change with time."""
    return simulation.order(simulation.now / MS_PER_S, job.view), job.came


def _promote(simulation: Simulation, job: Job, dependant: Job) -> None:
    main, promotion = simulation.queues.main, simulation.settings["promotion"]
    if job not in main or promotion == 0:
        return
    place = main.index(job)
    up = min(place, dependant.expected // promotion)
    main.insert(place - up, main.pop(place))
    job.risen += up


def _push_down(simulation: Simulation, job: Job) -> None:
    kept = simulation.queues
    place = kept.main.index(job)
    kept.main.remove(job)
    job.pushed += 1
    if job.pushed > simulation.settings["attempts"]:
        kept.aside.append(job)
    else:
        kept.main.insert(place + simulation.settings["places"], job)


def _has_slot(simulation: Simulation) -> bool:
    parallel = simulation.settings["parallel"]
    return parallel == 0 or len(simulation.in_state(State.RUNNING)) < parallel


def _is_adjacent(simulation: Simulation, job: Job) -> bool:
    """Whether one that runs is next to it in the order of priority, but for so many that wait."""
    adjacent, running = simulation.settings["adjacent"], simulation.in_state(State.RUNNING)
    if adjacent == 0 or not running:
        return True
    waiting = [_key(simulation, one) for one in simulation.in_state(State.WAITING)]

    def between(other: Job) -> int:
        low, high = sorted([_key(simulation, job), _key(simulation, other)])
        return sum(low < key < high for key in waiting)

    return any(between(other) < adjacent for other in running)
