"""The pass ``pbs``."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from hpctwin.model import MS_PER_S, State
from tests.reference.jobs import Job
from tests.reference.plan import Plan

if TYPE_CHECKING:
    from tests.reference.passes import Simulation


def pass_pbs(simulation: Simulation, queue: list[Job], plan: Plan) -> None:
    """A scheduling cycle."""
    of = simulation.settings
    depths = {
        number: partition.backfill_depth
        for number, partition in enumerate(simulation.machine.partitions)
    }
    nobody = not of["backfill_depth"] and not any(depths.values())
    top: Counter[int | None] = (
        Counter()
    )  # of queues with a depth of their own, and of all others (None)
    omitted = [
        job for job in queue if simulation.order(simulation.now / MS_PER_S, job.view) == math.inf
    ]
    for job in simulation.by_level(in_turn([job for job in queue if job not in omitted], of)):
        own = depths[job.partition]
        if own == 0 and top[job.partition] < 0:
            continue
        if simulation.asks_too_much(job):
            continue
        limited = simulation.limited(job, simulation.in_state(State.RUNNING))
        if not limited and simulation.attempt(job, plan):
            continue
        if nobody and of["strict_ordering"]:
            break
        counted = None if own is None else job.partition
        depth = of["backfill_depth"] if own is None else own
        since = lifted_at(simulation, job)
        if of["strict_ordering"] and since is not None and top[counted] < depth:
            start, split = plan.earliest(job, since)
            plan.take(job, split, start)
            top[counted] += 1
        elif not limited and simulation.awaits(job):
            simulation.reserve(job, plan)
        if own == 0 and of["strict_ordering"]:
            top[job.partition] = -1
    if simulation.in_state(State.WAITING) and (simulation.in_state(State.RUNNING) or omitted):
        simulation.timers.append(simulation.now + of["scheduler_iteration"])


def lifted_at(simulation: Simulation, job: Job) -> int | None:
    """When no limit keeps a job back, as running jobs come to their planned ends."""
    running = simulation.in_state(State.RUNNING)
    ends = {other: simulation.ends_unpreempted(other) for other in running}
    for time in sorted({simulation.now, *ends.values()}):
        if not simulation.limited(job, [other for other in running if ends[other] > time]):
            return time
    return None


def in_turn(queue: list[Job], of: dict[str, int]) -> list[Job]:
    """Those that wait, as they are tried."""
    if not of["round_robin"] and not of["by_queue"]:
        return queue
    jobs: dict[int, list[Job]] = defaultdict(list)
    for job in queue:
        jobs[job.partition].append(job)

    def priority(partition: int) -> float:
        return jobs[partition][0].view.partition_priority

    # Sorting keeps partitions of one priority as they are named.
    partitions = sorted(sorted(jobs), key=priority, reverse=True)
    if not of["round_robin"]:
        return [job for partition in partitions for job in jobs[partition]]
    tried = []
    for _, level in groupby(partitions, priority):
        for turn in zip_longest(*(jobs[partition] for partition in level)):
            tried += [job for job in turn if job is not None]
    return tried
