"""Jobs that make room for others, and checkpoints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from hpctwin.model import Cluster, State, Workload, to_ms
from hpctwin.model.cluster.preemption import PreemptedPartition, PreemptedQos
from tests.reference.jobs import Job, Order, label_of
from tests.reference.passes import Simulation
from tests.reference.plan import Plan
from tests.reference.shared import SharedPlan, SharedSimulation

REORDERINGS = 2


def is_interrupted(workload: Workload, cluster: Cluster) -> bool:
    failures = cluster.failures
    fails = bool(failures.outages) or failures.mtbf is not None
    return cluster.preemption is not None or (
        workload.checkpoint_ms is not None and fails and failures.on_failure == "requeue"
    )


class PreemptingSimulation(Simulation):
    """Whole nodes."""

    def prepare(self, workload: Workload) -> None:
        cluster = self.machine.cluster
        of = self.preemption = cluster.preemption
        # The classes: name, what is said of it, its rank, names of those it may preempt.
        self.classes: list[tuple[str, PreemptedPartition | PreemptedQos, float, set[str]]] = []
        if of is not None and of.partitions:
            tiers = {
                p.name: of.partitions.get(p.name, PreemptedPartition()).tier
                for p in cluster.partitions
            }
            for name, tier in tiers.items():
                said = of.partitions.get(name, PreemptedPartition())
                lower = {other for other, its in tiers.items() if its < tier}
                self.classes.append((name, said, tier, lower))
        elif of is not None:
            for name in sorted({*of.qos, *cluster.qos}):
                said = of.qos.get(name, PreemptedQos())
                self.classes.append((name, said, cluster.qos.get(name, 0.0), set(said.preempts)))
        else:
            self.classes.append(("", PreemptedPartition(mode="off"), 0, set()))
        if of is None or of.qos:
            self.classes.append((" none", PreemptedQos(mode="off"), 0.0, set()))
        names = [name for name, *_ in self.classes]
        default = 0 if of is None or of.checkpoint is None else to_ms(of.checkpoint)
        for job in self.jobs:
            if of is not None and of.partitions:
                job.standing = job.partition
            else:
                label = label_of(workload.qos, job.row) or " none"
                job.standing = names.index(label if label in names else " none")
            told = -1 if workload.checkpoint_ms is None else int(workload.checkpoint_ms[job.row])
            job.checkpoint = default if told < 0 else told

    def level(self, standing: int) -> int:
        """The most classes below a class, each below the one before."""
        lower = self.classes[standing][3]
        below = [n for n, (name, *_) in enumerate(self.classes) if name in lower]
        return max((self.level(n) + 1 for n in below), default=0)

    def said(self, job: Job, name: str) -> int | str:
        """What is said of a job's class, or of all."""
        own = getattr(self.classes[job.standing][1], name)
        value = getattr(self.preemption, name) if own is None else own
        return value if isinstance(value, str) else to_ms(value)

    def away_after(self, job: Job) -> int:
        """How long a job that is preempted still has its nodes, ms."""
        if self.said(job, "mode") == "suspend":
            return 0
        return self.said(job, "grace") + self.cleanup

    # -- events --

    def next_instant(self) -> int | None:
        # A job that will wait again stops at a time at which something happens.
        stops = [job.over for job in self.in_state(State.RUNNING) if job.sent_back]
        times = [time for time in stops if time > self.now]
        times += [time for time in [super().next_instant()] if time is not None]
        return min(times, default=None)

    def finish(self, job: Job) -> None:
        if job.leaves is not None and job.due == job.leaves and job.sent_back:
            self.go(job)
            return
        if job.due_state == State.PREEMPTED:
            job.preemptions += 1
            job.in_vain += self.stopped(job) - job.start
        super().finish(job)

    def stopped(self, job: Job) -> int:
        """When a job stopped that loses its nodes now: before they were cleaned up."""
        return min(self.now, job.over)

    def put_back(self, job: Job) -> None:
        job.leaves = None
        job.sent_back = False
        self.keep(job)
        super().put_back(job)

    def keep(self, job: Job) -> int:
        """Remember what the last checkpoint keeps; how long that had taken."""
        if not job.checkpoint or job.start is None:  # it was undone before it began
            return 0
        ran = self.ran(job) - (self.now - self.stopped(job))
        kept = ran // job.checkpoint * job.checkpoint
        job.done += int(kept * self.speed_of(job))
        return kept

    def go(self, job: Job) -> None:
        """A job is preempted, and goes now."""
        self.vacate(job)
        job.preemptions += 1
        if self.said(job, "mode") == "cancel":
            job.in_vain += self.now - job.start
            self.end(job, State.PREEMPTED)
            return
        job.attempts.append((job.start, self.stopped(job), job.nodes))
        done = job.done
        job.in_vain += self.stopped(job) - job.start - self.keep(job)
        after = job.done
        job.done = done
        self.put_back(job)
        assert job.done == after
        assert self.preemption is not None
        if job.cancel is not None and job.cancel < self.now:  # while its nodes were cleaned up
            self.end(job, State.CANCELLED)
        elif self.preemption.requeue_after:
            job.state = State.PENDING
            job.again_from = self.now + to_ms(self.preemption.requeue_after)

    def release_time(self, job: Job) -> int | None:
        time = super().release_time(job)
        return None if time is None else max(time, job.again_from)

    def set_end(self, job: Job, since: int, work: Fraction) -> None:
        super().set_end(job, since, work - job.done)
        job.sent_back = False
        self.end_grace(job)

    def end_grace(self, job: Job) -> None:
        """A job that is leaving goes when its grace is over, unless it ends before."""
        if job.leaves is not None and job.due > job.leaves:
            job.over, job.due = job.leaves - self.cleanup, job.leaves
            job.sent_back = self.said(job, "mode") == "requeue"
            if not job.sent_back:
                job.due_state = State.PREEMPTED

    def expected_end(self, job: Job) -> int:
        end = super().expected_end(job)
        return end if job.leaves is None else min(end, job.leaves)

    def ends_unpreempted(self, job: Job) -> int:
        leaves, job.leaves = job.leaves, None
        end = self.expected_end(job)
        job.leaves = leaves
        return end

    # -- passes --

    def ordered(self, queue: list[Job], order: Order) -> list[Job]:
        found = super().ordered(queue, order)
        if order is self.candidate_order and self.walked:
            return found
        self.walked = True
        return self.by_level(found)

    def by_level(self, queue: list[Job]) -> list[Job]:
        return sorted(queue, key=lambda job: -self.level(job.standing))

    def one_pass(self) -> None:
        self.walked = False  # the queue comes before the candidates
        self.sent_back_now = 0
        super().one_pass()

    def pass_first_fit(self, queue: list[Job], plan: Plan) -> None:
        for job in queue:
            if self.skipped(job) or self.start_or_preempt(job, plan):
                continue
            if self.awaits(job):
                self.reserve(job, plan)

    def look(self, queue: list[Job], plan: Plan) -> None:
        looked: Counter[int] = Counter()
        over: set[int] = set()  # partitions
        blocked: set[int] = set()  # pools
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
            plan.block(list(blocked))
            attempt = self.start_if_it_fits if blocked & {*job.pools} else self.start_or_preempt
            if attempt(job, plan):
                continue
            if self.now - job.eligible >= self.settings["bf_min_age_reserve"]:
                over.add(job.partition)
                blocked |= {*job.pools}

    def fill(self, queue: list[Job]) -> None:
        super().fill(self.still_waiting(queue))

    def still_waiting(self, queue: list[Job]) -> list[Job]:
        queue = self.in_state(State.WAITING)
        self.show(queue)
        self.walked = False
        return self.ordered(queue, self.order)

    def preemptors(self, queue: list[Job]) -> list[Job]:
        return [job for job in queue if self.classes[job.standing][3]]

    def start_preemptors(self, queue: list[Job], plan: Plan, *, reserve: bool) -> None:
        for job in self.preemptors(queue):
            if self.skipped(job) or self.start_or_preempt(job, plan):
                continue
            if reserve:
                self.reserve_for_pass(job, plan)
            elif self.awaits(job):
                self.reserve(job, plan)

    def awaits(self, job: Job) -> bool:
        return job.patient > self.now

    def taken_out(self, holders: list[Job], plan: Plan) -> bool:
        for job in holders:
            if not plan.holds(job, job.reserved_split, job.reserved):
                return False
            plan.take(job, job.reserved_split, job.reserved)
        return True

    def attempt(self, job: Job, plan: Plan) -> bool:
        return self.start_or_preempt(job, plan)

    # -- preemption --

    def start_or_preempt(self, job: Job, plan: Plan) -> bool:
        if self.start_if_it_fits(job, plan):
            return True
        if not self.classes[job.standing][3]:
            return False
        if job.patient > self.now:
            self.timers.append(job.patient)
            return False
        chosen = self.choose(job, plan)
        return bool(chosen) and self.start_in_place_of(chosen, job, plan)

    def start_in_place_of(self, chosen: list[Job], job: Job, plan: Plan) -> bool:
        """Preempt some for a job, and start it; False if it has to wait for their graces."""
        for victim in chosen:
            self.give_after_grace(victim, plan, 1)
        if self.has_to_wait(job, self.let_go(chosen)):
            return False
        assert self.start_if_it_fits(job, plan)
        return True

    def has_to_wait(self, job: Job, grace: int) -> bool:
        """Whether those who were preempted for a job have a grace, over which it preempts nobody else."""
        if grace:
            job.patient = self.now + grace
            self.timers.append(job.patient)
        return grace > 0

    def let_go(self, chosen: list[Job]) -> int:
        """Have some go after their graces; the longest of these."""
        for victim in chosen:
            after = self.away_after(victim)
            if not after:
                self.go(victim)
                if victim.state == State.WAITING:
                    self.timers.append(self.now)
                    self.sent_back_now += victim.row not in self.started
                continue
            victim.leaves = self.now + after
            self.end_grace(victim)
        self.end_doomed()
        return max(map(self.away_after, chosen), default=0)

    def candidates(self, job: Job) -> list[Job]:
        """Those that may be preempted for a job, who goes first first."""
        lower = self.classes[job.standing][3]
        found = []
        for other in self.in_state(State.RUNNING):
            if (
                self.classes[other.standing][0] not in lower
                or self.said(other, "mode") == "off"
                or other.leaves is not None
                or (self.cleanup and other.over <= self.now)
                or not self.pools_of(other) & set(job.pools)
            ):
                continue
            ready = other.start + self.said(other, "exempt")
            if ready > self.now:
                self.timers.append(ready)
            else:
                found.append(other)
        assert self.preemption is not None
        if self.preemption.youngest_first:
            return sorted(found, key=lambda other: (-other.start, other.came))
        return sorted(
            found,
            key=lambda other: (self.classes[other.standing][2], self.wide(other), other.came),
        )

    def pools_of(self, job: Job) -> set[int]:
        """The pools of a running job's nodes."""
        return set(job.split)

    def wide(self, job: Job) -> int:
        """How many nodes a running job has."""
        return job.width

    def helps(self, job: Job) -> int:
        """How much of what it has goes to whom it is preempted for."""
        return job.width

    def choose(self, job: Job, plan: Plan) -> list[Job]:
        """Those that go so that a job fits."""
        chosen = self.first_that_suffice(job, self.candidates(job), plan)
        for _ in range(REORDERINGS if chosen else 0):
            *others, last = chosen
            chosen = self.first_that_suffice(
                job, [last, *sorted(others, key=lambda other: -self.helps(other))], plan
            )
        return chosen

    def first_that_suffice(self, job: Job, order: list[Job], plan: Plan) -> list[Job]:
        """So many of the first of these that the job fits after the longest grace; none if all do not do."""
        taken: list[Job] = []
        longest = 0
        found: list[Job] = []
        for other in order:
            taken.append(other)
            self.give_after_grace(other, plan, 1)
            longest = max(longest, self.away_after(other))
            room = plan.least(job, self.now + longest)
            if room is not None:
                self.would_get = room
                found = list(taken)
                break
        for other in taken:
            self.give_after_grace(other, plan, -1)
        return found

    def give_after_grace(self, job: Job, plan: Plan, sign: int) -> None:
        """Put what a running job holds after its grace into the plan, or (-1) take it out again."""
        leaves = self.now + self.away_after(job)
        if leaves < job.planned_end:
            plan.change(job, job.split, leaves, job.planned_end, sign)
            # An overdue job's nodes that are away are not free when it has gone.
            for time, free in zip(plan.times, plan.free, strict=True):
                for number, pool in enumerate(self.machine.pools):
                    if pool.away(time):
                        free[number] = min(0, free[number])


class SharedPreemptingSimulation(PreemptingSimulation, SharedSimulation):
    """The same where jobs share nodes."""

    def prepare(self, workload: Workload) -> None:
        SharedSimulation.prepare(self, workload)
        PreemptingSimulation.prepare(self, workload)
        self.last_speed: dict[Job, Fraction] = {}  # of those that have left

    def taken_out(self, holders: list[Job], plan: SharedPlan) -> bool:  # type: ignore[override]
        return SharedSimulation.taken_out(self, holders, plan)

    def pools_of(self, job: Job) -> set[int]:
        return {self.pool_of[node] for node in self.on[job]}

    def wide(self, job: Job) -> int:
        return len(self.on[job])

    def helps(self, job: Job) -> int:
        return len(set(self.on[job]) & set(self.would_get))

    def vacate(self, job: Job) -> None:
        self.last_speed[job] = self.speed_of(job)
        super().vacate(job)

    def speed_of(self, job: Job) -> Fraction:
        return super().speed_of(job) if job in self.on else self.last_speed[job]

    def give_after_grace(self, job: Job, plan: SharedPlan, sign: int) -> None:  # type: ignore[override]
        leaves = self.now + self.away_after(job)
        if leaves >= job.planned_end:
            return
        old, new = (job.planned_end, leaves)[::sign], (leaves, job.planned_end)[::sign]
        plan.bookings = [
            replace(one, end=new[0]) if one.job is job and one.end == old[0] else one
            for one in plan.bookings
        ]
        plan.wide = [
            (one, start, new[0]) if one is job and end == old[0] else (one, start, end)
            for one, start, end in plan.wide
        ]
