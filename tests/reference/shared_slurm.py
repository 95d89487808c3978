"""When Slurm's backfill has a job start on shared nodes, from docs/reference/rules/backfills.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reference.jobs import Job
from tests.reference.shared_gpus import less
from tests.reference.shared_requests import Amounts, Tasks

if TYPE_CHECKING:
    from tests.reference.shared import SharedPlan, SharedSimulation

STRETCH_MS = 30_000


def keep_soonest(simulation: SharedSimulation, job: Job, plan: SharedPlan) -> None:
    """Keep the nodes on which a job could start first, if there are any and that is no time too far ahead."""
    of = simulation.settings
    since = simulation.now
    while True:
        clear, later = clear_nodes(job, since, plan)
        found = as_jobs_end(job, since, clear, plan)
        if found is not None:
            time, split = found
            if later is None or time <= later:
                if time > simulation.now + of["bf_window"]:
                    return
                begin, end = simulation.span(job, time)
                if not overlaps(set(split), begin, end, plan):
                    plan.keep(job, split, begin, end)
                    return
                later = time if time > since else since + of["bf_resolution"]
        if later is None:
            return
        since = later


def clear_nodes(job: Job, since: int, plan: SharedPlan) -> tuple[set[int], int | None]:
    """Nodes that are not kept, nor maintained, while a job would run; and when one may come back."""
    until = since + job.expected
    pools = plan.machine.pools
    may = {node for pool in job.pools for node in pools[pool].nodes}
    may = {node for node in may if not plan.machine.outages_over[node]}

    def kept_at(time: int) -> set[int]:
        return {b.node for b in plan.bookings if b.whole and b.start <= time < b.end}

    cuts = {time for b in plan.bookings if b.whole for time in (b.start, b.end)}
    times = sorted({plan.now, *(time for time in cuts if time > plan.now)})
    clear, later = set(may), None
    for i, begin in enumerate(times):
        end = times[i + 1] if i + 1 < len(times) else None
        if end is not None and end <= since:
            continue
        here = clear - kept_at(begin)
        if later is None and end is not None and (may - kept_at(end)) - here:
            later = end
        if begin > until:
            break
        clear = here
    for pool in job.pools:
        for begin, end in pools[pool].maintenance:
            if begin < until and end > since:
                clear -= set(pools[pool].nodes)
                later = end if later is None else min(later, end)
    return clear, later


def as_jobs_end(
    job: Job, since: int, clear: set[int], plan: SharedPlan
) -> tuple[int, dict[int, Tasks]] | None:
    """When a job fits some nodes, and on which: now, or after more and more running jobs have ended."""
    simulation = plan.simulation
    ends = {b.job: b.end for b in plan.bookings if not b.whole and b.job in simulation.on}
    running = sorted(ends, key=ends.__getitem__)
    on_clear = {one: bool(clear & set(simulation.on[one])) for one in running}

    def fits(time: int) -> tuple[int, dict[int, Tasks]] | None:
        start = max(time, since)
        span = [start, *(t for t in plan.times() if start < t < start + job.expected)]
        for name, amount in job.needs.items():
            if any(plan.free_of(name, at) < amount for at in span):
                return None
        left: dict[int, Amounts] = {}
        single: dict[int, Amounts] = {}
        for node in sorted(clear):
            pool = plan.machine.pools[simulation.pool_of[node]]
            away = any(b < start + job.expected and e > start for b, e in pool.maintenance)
            on_it = [one for one in running if node in simulation.on[one]]
            asked = simulation.asked[job]
            apart = any(
                not asked.goes_with(simulation.asked[one])
                for one in on_it
                if ends[one] > start
                or (ends[one] > time and (asked.exclusive or simulation.asked[one].exclusive))
            )
            if away or apart or start < plan.machine.back.get(node, 0):
                continue
            there = list(simulation.whole[node])
            for one in on_it:
                if ends[one] > time:
                    held = simulation.asked[one].held(simulation.on[one][node])
                    there = [x - y for x, y in zip(there, held, strict=True)]
            left[node] = tuple(there)
            single[node] = simulation.single(node)
            for one in on_it:
                if ends[one] > time and simulation.gpus:
                    single[node] = less(single[node], simulation.on[one][node])
        split = simulation.placed(job, left, single if simulation.gpus else {})
        return None if split is None else (start, split)

    if (found := fits(simulation.now)) is not None:
        return found
    length, limit, i = STRETCH_MS, None, 0
    while i < len(running):
        last = None
        while i < len(running):
            one = running[i]
            i += 1
            if not on_clear[one]:
                continue
            last = ends[one]
            if limit is None:
                limit = last - last % STRETCH_MS + STRETCH_MS
            if i < len(running) and ends[running[i]] > limit + length:
                break
        if last is None or limit is None:
            return None
        length *= 2
        while i < len(running) and ends[running[i]] > limit + length:
            length *= 2
        if (found := fits(last)) is not None:
            return found
    return None


def overlaps(nodes: set[int], begin: int, end: int, plan: SharedPlan) -> bool:
    """Whether any of some nodes is kept, or maintained, in a span."""
    kept = any(
        b.whole and b.node in nodes and b.start < end and b.end > begin for b in plan.bookings
    )
    return kept or any(
        start < end and over > begin and nodes & set(pool.nodes)
        for pool in plan.machine.pools
        for start, over in pool.maintenance
    )
