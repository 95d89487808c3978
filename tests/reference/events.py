"""From instant to instant: the events of one as a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hpctwin.model import DependencyKind, State, to_ms
from tests.reference.jobs import Job, Order, Place
from tests.reference.limits import Limits
from tests.reference.machine import Machine
from tests.reference.pushdown import Queues
from tests.reference.results import Pass
from tests.reference.share import Usage

ENDED = frozenset(State) - {State.PENDING, State.WAITING, State.RUNNING}
Observer = Callable[[int, list[tuple[int, int]]], None]


@dataclass
class Events:
    """What happens, but for the scheduling pass."""

    machine: Machine
    limits: Limits
    jobs: list[Job]
    outages: list[tuple[int, int, int]]
    share: Usage
    order: Order
    candidate_order: Order
    backfill: str
    k: int
    depth: int
    patience: int
    placement: str
    terminate: bool
    hold: bool
    observer: Observer | None
    log: list[Pass] | None
    place: Place | None = None
    settings: dict[str, int] = field(
        default_factory=dict
    )  # of the backfill, times in ms; 0 for any
    now: int = -1
    came_back: bool = False  # capacity, other than planned, since the last pass
    sent_back_now: int = 0  # jobs that were preempted in this pass and wait again
    timers: list[int] = field(default_factory=list)  # set by the last pass
    told: int = 0  # slurm: jobs that had been submitted when jobs were last looked at, …
    looked_at: int | None = None  # … and when that was
    full_at: set[int] = field(default_factory=set)  # when all were looked at
    cycle_at: set[int] = field(default_factory=set)  # when backfill cycles were
    queues: Queues = field(default_factory=Queues)  # of pushdown
    started: list[int] = field(default_factory=list)  # in this pass
    made: list[tuple[int, int]] = field(default_factory=list)  # reservations, in this pass

    def __post_init__(self) -> None:
        self.failures = [(start, node) for node, start, _ in self.outages]
        self.repairs = [(start + duration, node) for node, start, duration in self.outages]
        # Pools know themselves when they are away; what is kept here makes the instants.
        self.maintenance = [time for span in self.machine.maintenance_ms for time in span]
        self.maintenance += [time for span in self.machine.raises for time in span[:2]]
        self.unsubmitted = list(self.jobs)
        self.resets = list(self.limits.resets)
        self.cleanup = to_ms(self.machine.cluster.cleanup)
        self.cancellations = [job for job in self.jobs if job.cancel is not None]

    def run(self, until: int | None) -> None:
        while (instant := self.next_instant()) is not None:
            if until is not None and instant > until:
                return
            # The same time again is a second batch, with a second pass.
            assert instant >= self.now
            self.now = instant
            self.batch()
            self.one_pass()

    def in_state(self, state: State) -> list[Job]:
        return [job for job in self.jobs if job.state == state]

    def next_instant(self) -> int | None:
        # Read: a failure of a node that is down already, the end of an outage while another
        # lasts, and the cancellation of a job that has ended are events as well.
        times = [job.due for job in self.in_state(State.RUNNING)]
        times += [time for time, _ in self.failures + self.repairs]
        times += self.maintenance
        times += [job.submit for job in self.unsubmitted]
        times += [job.cancel for job in self.cancellations if job.cancel is not None]
        times += [time for job in self.jobs if (time := self.release_time(job)) is not None]
        times += [job.reserved for job in self.jobs if job.reserved is not None]
        times += self.timers + self.resets
        return min(times, default=None)

    # -- the batch --

    def batch(self) -> None:
        now = self.now
        if now in self.resets:
            self.share.forget(now)
        self.resets = [time for time in self.resets if time > now]
        # 1. Job ends
        for job in self.in_state(State.RUNNING):
            if job.due <= now:
                self.finish(job)
        self.end_doomed()
        # 2. Nodes leave
        self.maintenance = [time for time in self.maintenance if time > now]
        for _, node in [event for event in self.failures if event[0] <= now]:
            self.machine.outages_over[node] += 1
            for job_there in list(self.jobs_on(node)):
                self.lose(job_there)
        self.failures = [event for event in self.failures if event[0] > now]
        self.end_doomed()
        # 3. Nodes come back
        for _, node in [event for event in self.repairs if event[0] <= now]:
            self.machine.outages_over[node] -= 1
            if not self.machine.outages_over[node]:
                self.came_back = True
        self.repairs = [event for event in self.repairs if event[0] > now]
        # 4. Submissions. Read: rejection comes before everything else that could end the job now,
        # and a job that waits for nothing is eligible here, even if it is cancelled in step 5.
        new = [job for job in self.unsubmitted if job.submit <= now]
        self.unsubmitted = [job for job in self.unsubmitted if job.submit > now]
        there = [job for job in self.jobs if job.submitted and job.state not in ENDED]
        refused = []
        for job in new:
            job.submitted = True
            if self.rejected(job) or self.limits.too_many(job, there):
                refused.append(job)
            else:
                there.append(job)
        for job in refused:
            self.end(job, State.REJECTED)
        self.end_doomed()
        self.release(new)
        # 5. Cancellations
        for job in [job for job in self.cancellations if job.cancel <= now]:
            if job.state in ENDED:
                continue
            running = job.state == State.RUNNING and not job.suspended
            if running and self.cleanup and job.start <= now:
                if job.over > now:  # else it has ended, and its nodes are being cleaned up
                    job.over, job.due, job.due_state = now, now + self.cleanup, State.CANCELLED
                continue
            if job.state == State.RUNNING:
                self.vacate(job)
                self.undo_if_not_begun(job)
            elif job.reserved is not None:
                job.reserved = None
                self.came_back = True
            self.end(job, State.CANCELLED)
        self.cancellations = [job for job in self.cancellations if job.cancel > now]
        self.end_doomed()
        # 6. Releases. Read: also of jobs whose dependency came true in this very batch.
        self.release(self.jobs)
        # 7. Timers: a reservation that is now is seen by the pass.

    def finish(self, job: Job) -> None:
        """A running job comes to its end."""
        self.vacate(job)
        self.end(job, job.due_state)
        if self.cleanup:
            job.ended = job.over

    def end(self, job: Job, state: State) -> None:
        job.state = state
        job.ended = job.told = self.now
        if state != State.COMPLETED:
            for other, kind in job.waited_for_by:
                if kind == DependencyKind.AFTEROK:
                    other.doomed = True

    def end_doomed(self) -> None:
        """End jobs whose `afterok` has failed, and those that wait for them, and so on.

        Read: "those that wait for it" are those with `afterok`; to the others it has ended.
        """
        if self.hold:
            return
        while fallen := [
            job for job in self.jobs if job.doomed and job.submitted and job.state == State.PENDING
        ]:
            for job in fallen:
                self.end(job, State.DEPENDENCY)

    def jobs_on(self, node: int) -> Iterator[Job]:
        """The jobs that have a node."""
        job = self.machine.job_on[node]
        if job is not None:
            yield job

    def charge(self, job: Job) -> float:
        """As how many nodes a job counts for fair share."""
        return job.width

    def vacate(self, job: Job) -> None:
        """Free what a running job holds."""
        self.share.change(job.share_label, self.now, -job.counts * self.charge(job))
        self.limits.log.append((self.now, -1, job))
        for node in job.nodes:
            self.machine.job_on[node] = None
        if job.suspended or self.now != job.start + job.paused + job.expected:
            self.came_back = True

    def lose(self, job: Job) -> None:
        """A node under a running job has failed."""
        if self.cleanup and job.over <= self.now:
            self.finish(job)
            return
        self.vacate(job)
        self.undo_if_not_begun(job)
        if self.machine.cluster.failures.on_failure == "requeue":
            job.attempts = job.runs_until(self.now)
        if self.machine.cluster.failures.on_failure == "fail":
            self.end(job, State.NODE_FAILURE)
        else:
            self.put_back(job)

    def put_back(self, job: Job) -> None:
        """A job that lost its nodes waits again."""
        job.state = State.WAITING
        job.requeues += 1
        job.start = None
        job.nodes = []

    def undo_if_not_begun(self, job: Job) -> None:
        """A job that lost its nodes while they were still being switched on never started."""
        if job.start > self.now:
            if job.first_start == job.start:
                job.first_start = None
            job.start, job.nodes = None, []

    def rejected(self, job: Job) -> bool:
        machine = self.machine
        limits = machine.partitions[job.partition]
        return (
            sum(len(machine.pools[pool].nodes) for pool in job.pools) < job.width
            or any(machine.resources.get(name, 0) < amount for name, amount in job.needs.items())
            or self.limits.rejected(job)
            or job.width < limits.min_nodes
            or (limits.max_nodes is not None and job.width > limits.max_nodes)
            or (limits.max_walltime is not None and job.walltime > to_ms(limits.max_walltime))
        )

    def release(self, jobs: list[Job]) -> None:
        for job in jobs:
            time = self.release_time(job)
            if time is not None and time <= self.now:
                job.state = State.WAITING
                if job.eligible is None:
                    job.eligible = time

    def release_time(self, job: Job) -> int | None:
        """When a submitted job becomes eligible, if that is known."""
        if not job.submitted or job.state != State.PENDING:
            return None
        return job.released()
