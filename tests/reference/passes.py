"""The scheduling passes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial

from hpctwin.model import MS_PER_S, State
from tests.reference.blocks import ON_WHOLE_NODES
from tests.reference.events import Events
from tests.reference.jobs import Job, NodeView, Order
from tests.reference.pbs import pass_pbs
from tests.reference.plan import Plan, split_over
from tests.reference.pushdown import pass_pushdown
from tests.reference.results import Pass

OVERDUE_STEP_MS = 60 * MS_PER_S


def exact(speed: float) -> Fraction:
    """A speed as its decimals say: 0.7 is seven tenths."""
    return Fraction(speed).limit_denominator(10**9)


class Simulation(Events):
    """Events, and a pass after each batch of them."""

    def one_pass(self) -> None:
        self.started = []
        self.made = []
        self.timers = []
        queue = self.in_state(State.WAITING)
        self.show(queue)
        queue = self.ordered(queue, self.order)
        {
            "none": self.pass_none,
            "first-fit": self.pass_first_fit,
            "easy": self.pass_easy,
            "conservative": self.pass_conservative,
            "pack": self.pass_pack,
            "slurm": self.pass_slurm,
            "pbs": partial(pass_pbs, self),
            "pushdown": partial(pass_pushdown, self),
        }[self.backfill](queue, self.plan())
        look = self.limits.next_look(self.jobs, self.now)
        if look is not None:
            self.timers.append(look)
        if self.observer is not None:
            self.observer(self.now, list(self.made))
        if self.log is not None:
            self.log.append(Pass(self.now, tuple(self.started), tuple(self.made)))

    def after_pass(self) -> None:
        """What becomes of nodes then."""

    def show(self, queue: list[Job]) -> None:
        """Bring what orderings see up to date."""
        if not queue:
            return
        factors = self.share.factors(self.now)
        for job in queue:
            assert job.eligible is not None
            view = job.view
            view.eligible = job.eligible / MS_PER_S
            view.submit = job.came[0] / MS_PER_S
            view.wait = (self.now - job.came[0]) / MS_PER_S
            view.fairshare, view.usage = factors[job.share_label]
            view.requeues = float(job.requeues)
            view.chain = self.chain(job) / MS_PER_S

    def chain(self, job: Job) -> int:
        """Expected runtimes of the longest chain of submitted jobs that wait for a job, ms."""
        lengths = [
            other.expected + self.chain(other)
            for other, _ in job.waited_for_by
            if other.submitted and not other.thinks
        ]
        return max(lengths, default=0)

    def ordered(self, queue: list[Job], order: Order) -> list[Job]:
        return sorted(queue, key=lambda job: (order(self.now / MS_PER_S, job.view), job.came))

    def plan(self) -> Plan:
        """The plan without waiting jobs."""
        running = self.in_state(State.RUNNING)
        for job in running:
            job.planned_end = self.expected_end(job)
        return Plan(self.machine, running, self.now, self.placement)

    def expected_end(self, job: Job) -> int:
        assert job.start is not None
        end = job.start + job.expected
        while end <= self.now:  # overdue
            end += OVERDUE_STEP_MS
        latest = job.start + job.walltime + self.cleanup
        return min(end, latest) if self.terminate else end

    def ends_unpreempted(self, job: Job) -> int:
        """When a running job is expected to end if it is not preempted."""
        return self.expected_end(job)

    def skipped(self, job: Job) -> bool:
        # Read: up are nodes that have not failed, of those that the job could use; nodes away for
        # maintenance are up, since it is known when they come back.
        return self.asks_too_much(job) or self.limited(job, self.in_state(State.RUNNING))

    def asks_too_much(self, job: Job) -> bool:
        return job.width > sum(len(self.machine.up(pool)) for pool in job.pools)

    def limited(self, job: Job, running: list[Job]) -> bool:
        if self.limits.over(job, running, self.now):
            return True
        limit = self.machine.partitions[job.partition].max_jobs_per_user
        # Read: where the user is not known, there is no user to limit.
        if limit is None or job.user < 0:
            return False
        same = [
            other
            for other in running
            if other.user == job.user and other.partition == job.partition
        ]
        return len(same) >= limit

    def begin(self, job: Job, split: dict[int, int]) -> None:
        self.take_nodes(job, split)
        self.share.change(job.share_label, self.now, job.counts * self.charge(job))
        self.limits.log.append((self.now, 1, job))
        job.state = State.RUNNING
        job.start = self.when_on(job.nodes)
        if job.first_start is None:
            job.first_start = job.start
        job.split = split
        job.planned_end = job.start + job.expected
        job.reserved = None
        self.set_end(job, job.start, Fraction(job.runtime))
        self.started.append(job.row)

    def take_nodes(self, job: Job, split: dict[int, int]) -> None:
        """Give a job so many nodes of each pool."""
        machine = self.machine
        job.nodes = []
        for pool, count in split.items():
            free = self.by_preference(machine.free(pool))
            if self.place is not None:
                free.sort(key=lambda node: (self.score(job, node), node))
            if self.placement in ON_WHOLE_NODES:
                free = ON_WHOLE_NODES[self.placement](machine.cluster, free, count)
            assert len(free) >= count
            job.nodes += free[:count]
        job.nodes.sort()
        for node in job.nodes:
            machine.job_on[node] = job

    def by_preference(self, nodes: list[int]) -> list[int]:
        """Free nodes of a pool, those first that a job gets first."""
        return nodes

    def when_on(self, nodes: list[int]) -> int:
        """When all nodes that a job was given are on."""
        return self.now

    def speed_of(self, job: Job) -> Fraction:
        """That of the slowest node a job has."""
        nodes = self.machine.cluster.nodes
        return min(exact(nodes[self.machine.pools[pool].group].speed) for pool in job.split)

    def ran(self, job: Job) -> int:
        """For how long a running job has run, ms; not while it was suspended."""
        return job.ran if job.suspended else max(self.now - job.start, 0) - job.paused

    def set_end(self, job: Job, since: int, work: Fraction) -> None:
        """A job with so much work left at a time, ms at speed 1: when will it end, and how?"""
        end = since + math.ceil(work / self.speed_of(job))
        limit = since - self.ran(job) + job.walltime
        if self.terminate and end > limit:
            job.over, job.due_state = limit, State.WALLTIME
        else:
            job.over, job.due_state = end, State.FAILED if job.fails else State.COMPLETED
        job.due = job.over + self.cleanup

    def start_if_it_fits(self, job: Job, plan: Plan) -> bool:
        least = plan.least(job, self.now)
        if least is None:
            return False
        split = self.split_now(job, least)
        self.begin(job, split)
        plan.change(job, split, self.now, job.planned_end, -1)
        return True

    def split_now(self, job: Job, least: dict[int, int]) -> dict[int, int]:
        """Nodes of each pool that it takes if it starts, of which so many may be taken."""
        if self.place is None:
            return split_over(job.width, least, self.placement)
        free = [(pool, node) for pool in least for node in self.machine.free(pool) if least[pool]]
        split = dict.fromkeys(least, 0)
        for pool, _ in sorted(free, key=lambda one: (self.score(job, one[1]), one[1])):
            if split[pool] < least[pool] and sum(split.values()) < job.width:
                split[pool] += 1
        return {pool: count for pool, count in split.items() if count}

    def score(self, job: Job, node: int) -> float:
        """What the placement gives a free node."""
        pool = next(n for n, pool in enumerate(self.machine.pools) if node in pool.nodes)
        number = self.machine.pools[pool].group
        group = self.machine.cluster.nodes[number]
        seen = NodeView(
            number=float(node),
            group=float(number),
            cores=group.cores or 0.0,
            gpus=group.gpus or 0.0,
            memory_gb=group.memory_gb or 0.0,
            speed=group.speed,
            idle_w=0.0,
            active_w=0.0,
            wakes=(self.when_on([node]) - self.now) / MS_PER_S,
            free=float(len(self.machine.free(pool))),
        )
        return self.place(self.now / MS_PER_S, job.view, seen)

    def pass_none(self, queue: list[Job], plan: Plan) -> None:
        blocked: set[int | str] = set()
        for job in queue:
            if self.skipped(job):
                continue
            wants: set[int | str] = {*job.pools, *job.needs}
            if wants & blocked or not self.attempt(job, plan):
                blocked |= wants

    def pass_first_fit(self, queue: list[Job], plan: Plan) -> None:
        for job in queue:
            if not self.skipped(job):
                self.start_if_it_fits(job, plan)

    def pass_easy(self, queue: list[Job], plan: Plan) -> None:
        handed_out: Counter[int] = Counter()  # by partition
        candidates = []
        for job in queue:
            if handed_out[job.partition] >= self.k:
                candidates.append(job)
            elif not self.skipped(job) and not self.attempt(job, plan):
                self.reserve(job, plan)
                handed_out[job.partition] += 1
        for job in self.ordered(candidates, self.candidate_order):
            if not self.skipped(job):
                self.start_if_it_fits(job, plan)

    def preemptors(self, queue: list[Job]) -> list[Job]:
        """Jobs of the queue that may preempt others."""
        return []

    def start_preemptors(self, queue: list[Job], plan: Plan, *, reserve: bool) -> None:
        """Start jobs that may preempt others; the others get reservations, or if jobs leave for them."""

    def awaits(self, job: Job) -> bool:
        """Whether jobs that were preempted for a job have not left yet."""
        return False

    def by_level(self, queue: list[Job]) -> list[Job]:
        """Jobs that may preempt others before these."""
        return queue

    def still_waiting(self, queue: list[Job]) -> list[Job]:
        """The queue after jobs were preempted."""
        return queue

    def pass_pack(self, queue: list[Job], plan: Plan) -> None:
        self.start_preemptors(queue, plan, reserve=False)
        queue = self.still_waiting(queue)
        while patient := [
            job
            for job in queue
            if job.state == State.WAITING
            and self.now - job.eligible >= self.patience
            and not self.skipped(job)
        ]:
            oldest = min(patient, key=lambda job: (job.eligible, job.came))
            if self.awaits(oldest):
                break
            if not self.start_if_it_fits(oldest, plan):
                self.reserve(oldest, plan)
                break
        queue = self.still_waiting(queue)
        candidates = [
            (place, job)
            for place, job in enumerate(queue[: self.depth])
            if job.state == State.WAITING
            and not (patient and job is oldest)
            and self.fits_now(job)
            and not self.skipped(job)
        ]
        while candidates := [(place, job) for place, job in candidates if self.fits_now(job)]:
            best = max(
                candidates,
                key=lambda one: (
                    (1.0 - 0.5 * one[0] / len(queue)) * self.alignment(one[1]) / one[1].expected,
                    -one[0],
                ),
            )
            candidates.remove(best)
            if not self.skipped(best[1]):
                self.start_if_it_fits(best[1], plan)

    def free_nodes(self, pool: int) -> int:
        if self.machine.pools[pool].away(self.now):
            return 0
        return len(self.machine.free(pool))

    def free_resources(self) -> dict[str, int]:
        free = dict(self.machine.resources)
        for job in self.in_state(State.RUNNING):
            for name, amount in job.needs.items():
                free[name] -= amount
        return free

    def fits_now(self, job: Job) -> bool:
        free = self.free_resources()
        return sum(self.free_nodes(pool) for pool in job.pools) >= job.width and all(
            free[name] >= amount for name, amount in job.needs.items()
        )

    def alignment(self, job: Job) -> float:
        """Sum over nodes and resources of the share asked for times the share that is free."""
        pools = range(len(self.machine.pools))
        nodes = self.machine.cluster.node_count
        total = (job.width / nodes) * (sum(self.free_nodes(pool) for pool in pools) / nodes)
        free = self.free_resources()
        for name, amount in self.machine.resources.items():
            if amount:
                total += (job.needs.get(name, 0) / amount) * (free[name] / amount)
        return total

    def pass_slurm(self, queue: list[Job], plan: Plan) -> None:
        if not queue:
            return
        of = self.settings
        submitted = sum(
            job.submitted and (job.eligible is not None or not job.thinks) for job in self.jobs
        )
        apart = of["sched_min_interval"]
        if submitted == self.told:
            apart = max(apart, of["batch_sched_delay"])
        full = self.now % of["sched_interval"] == 0 and self.now not in self.full_at
        looks = full or self.looked_at is None or self.looked_at + apart <= self.now
        if looks:
            self.looked_at, self.told = self.now, submitted
            if full:
                self.full_at.add(self.now)
            self.look(queue if full else queue[: of["default_queue_depth"] or None], plan)
        else:
            self.timers.append(self.looked_at + apart)
        cycle = self.now % of["bf_interval"] == 0 and self.now not in self.cycle_at
        if cycle:
            self.cycle_at.add(self.now)
            self.fill([job for job in queue if job.state == State.WAITING])
        if not full and len(queue) + self.sent_back_now > of["default_queue_depth"] > 0:
            self.timers.append((self.now // of["sched_interval"] + 1) * of["sched_interval"])
        if self.started or not cycle:
            self.timers.append((self.now // of["bf_interval"] + 1) * of["bf_interval"])

    def look(self, queue: list[Job], plan: Plan) -> None:
        """Jobs in order, each starts if it fits what nobody before it blocks."""
        looked: Counter[int] = Counter()
        over: set[int] = set()  # partitions
        for job in queue:
            if job.partition in over:
                continue
            looked[job.partition] += 1
            if 0 < self.settings["partition_job_depth"] < looked[job.partition]:
                continue
            if self.skipped(job) or self.waits_for_licence(job):
                continue
            if self.lacks_licence(job):
                return
            if self.start_if_it_fits(job, plan):
                continue
            if self.now - job.eligible >= self.settings["bf_min_age_reserve"]:
                over.add(job.partition)
                plan.block(job.pools)

    def fill(self, queue: list[Job]) -> None:
        """A backfill cycle."""
        of = self.settings
        plan = self.plan()
        tried: Counter[int] = Counter()  # of each user
        reserved: Counter[int] = Counter()  # in each partition
        started = 0
        for job in queue:
            if self.skipped(job) or self.waits_for_licence(job):
                continue
            if 0 < of["bf_max_job_user"] <= tried[job.user] and job.user >= 0:
                continue
            if tried.total() == of["bf_max_job_test"]:
                return
            tried[job.user] += 1
            if self.attempt(job, plan):
                started += 1
                if started == of["bf_max_job_start"]:
                    return
                continue
            if self.now - job.eligible < of["bf_min_age_reserve"]:
                continue
            if 0 < of["bf_job_part_count_reserve"] <= reserved[job.partition]:
                continue
            reserved[job.partition] += 1
            self.keep_soonest(job, plan)

    def keep_soonest(self, job: Job, plan: Plan) -> None:
        """Keep for a job what it could start with first, unless that is too far ahead."""
        start, split = plan.earliest(job)
        if start <= self.now + self.settings["bf_window"]:
            begin, end = self.span(job, start)
            needs = job.needs if self.settings["bf_licenses"] else {}
            plan.change(replace(job, needs=needs), split, begin, end, -1)

    def lacks_licence(self, job: Job) -> bool:
        """Whether less is free now of what all nodes have together than a job needs."""
        free = self.free_resources()
        for start, end, name, more in self.machine.raises:
            free[name] += more if start <= self.now < end else 0
        return any(free[name] < amount for name, amount in job.needs.items())

    def waits_for_licence(self, job: Job) -> bool:
        """Whether a job that lacks a licence is passed by as if it were not there."""
        return not self.settings["bf_licenses"] and self.lacks_licence(job)

    def span(self, job: Job, start: int) -> tuple[int, int]:
        """From when to when nodes are kept for a job that would start at a time."""
        step = self.settings["bf_resolution"]
        begin = max(self.now, start // step * step)
        end = (start + job.expected) / step
        end = math.ceil(end) if self.settings["bf_round_up"] else math.floor(end)
        return begin, max(end * step, begin + step)

    def attempt(self, job: Job, plan: Plan) -> bool:
        """Start a job whose turn it is, if that may be."""
        return self.start_if_it_fits(job, plan)

    def reserve(self, job: Job, plan: Plan) -> tuple[int, dict[int, int]]:
        start, split = plan.earliest(job)
        plan.take(job, split, start)
        self.made.append((job.row, start))
        return start, split

    def reserved_now(self, job: Job, plan: Plan) -> dict[int, int]:
        """What a job gets whose reservation is now."""
        split = job.reserved_split
        if self.place is not None:
            plan.give(job, split, self.now)
            split = self.split_now(job, plan.least(job, self.now))
            plan.take(job, split, self.now)
        return split

    def reserve_for_pass(self, job: Job, plan: Plan) -> None:
        """Reserve for a job until the next pass, and look again when its reservation begins."""
        job.reserved_once, job.reserved_split = self.reserve(job, plan)
        self.timers.append(job.reserved_once)

    def taken_out(self, holders: list[Job], plan: Plan) -> bool:
        """Take reservations out of a plan; whether they fit."""
        for job in holders:
            plan.take(job, job.reserved_split, job.reserved)
        return plan.consistent()

    def pass_conservative(self, queue: list[Job], plan: Plan) -> None:
        for job in queue:
            job.reserved_once = None
            if job.reserved is not None and self.skipped(job):
                job.reserved = None
                self.came_back = True  # counts for this pass
        preemptors = self.preemptors(queue)
        self.start_preemptors(queue, plan, reserve=True)
        compress, self.came_back = self.came_back or bool(preemptors), False
        holders = [job for job in queue if job.reserved is not None]
        # Read: reservations hold the numbers of nodes of each pool that they got when made.
        if any(job.reserved < self.now for job in holders) or not self.taken_out(holders, plan):
            plan = self.plan()
            for job in holders:
                job.reserved = None
            for job in preemptors:
                if job.state == State.WAITING and not self.skipped(job):
                    self.reserve_for_pass(job, plan)
        for job in self.still_waiting(queue):
            if job in preemptors:
                continue
            if self.skipped(job):
                if job.reserved is not None:
                    plan.give(job, job.reserved_split, job.reserved)
                    job.reserved = None
                    self.came_back = True  # counts for the next pass
                continue
            if job.reserved is not None and compress:
                plan.give(job, job.reserved_split, job.reserved)
                job.reserved = None
            if job.reserved is None:
                job.reserved, job.reserved_split = self.reserve(job, plan)
            if job.reserved == self.now:
                self.begin(job, self.reserved_now(job, plan))
                # Longer than reserved, if its nodes are not on yet.
                plan.change(job, job.split, self.now + job.expected, job.planned_end, -1)
