"""Jobs whose sizes a function decides while they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from tests.reference.jobs import Job, fcfs, jobs_of
from tests.reference.limits import Limits
from tests.reference.machine import Machine
from tests.reference.nodes import COMPUTING
from tests.reference.passes import Simulation
from tests.reference.plan import Plan
from tests.reference.power import PoweredSimulation
from tests.reference.share_tree import usage_of

from hpctwin.model import MS_PER_S, Cluster, NodeGroup, State, Workload, to_ms
from hpctwin.model.workload.malleable import parse_speedup
from hpctwin.policies import PowerPolicy
from hpctwin_sizing import SizedJob, SizeRule, Sizes, SizeView, Sizing

__all__ = ["FaultError", "Stretch", "simulate_sized"]


class FaultError(Exception):
    """The sizing wanted what cannot be."""


@dataclass(frozen=True)
class Stretch:
    """A job had these nodes from start to end, ms."""

    row: int
    start: int
    end: int
    nodes: tuple[int, ...]


class SizedSimulation(Simulation):
    """Nobody starts but those that the sizing names."""

    def prepare(self, workload: Workload, rule: SizeRule) -> None:
        """What is not of all simulations."""
        self.workload = workload
        self.rule = rule
        self.had_nodes: set[int] = set()
        self.again: int | None = None
        self.past: dict[int, list[Stretch]] = {job.row: [] for job in self.jobs}
        self.in_vain: dict[int, set[int]] = {job.row: set() for job in self.jobs}
        self.asked_for = {job.row: job.width for job in self.jobs}
        self.whole = {job.row: job.expected - self.cleanup for job in self.jobs}
        self.walltime = {job.row: job.walltime for job in self.jobs}
        self.stuck = {job.row for job in self.jobs if self.limits.never(job)}
        self.refused = False
        cluster = self.machine.cluster
        self.shared = (workload, cluster, *cluster.nodes)
        self.may_refuse = bool(
            cluster.limits
            or cluster.reservations
            or any(one.max_jobs_per_user for one in cluster.partitions)
            or any(job.needs for job in self.jobs)
        )

    def next_instant(self) -> int | None:
        times = [self.next_event(), self.again]
        return min((time for time in times if time is not None), default=None)

    def next_event(self) -> int | None:
        return super().next_instant()

    def run(self, until: int | None) -> None:
        while any(job.ended is None for job in self.jobs):
            event = self.next_event()
            instant = self.next_instant()
            if instant is None:
                return
            if until is not None and instant > until:
                return
            waits = [job for job in self.in_state(State.WAITING) if job.row not in self.stuck]
            if event is None and not waits:
                return
            self.now = instant
            if event == instant:
                self.batch()
                self.set_timer()
                self.after_pass()
            self.again = None
            if any(job.ended is None for job in self.jobs):
                self.ask()

    # -- what the sizing sees --

    def rate(self, row: int, nodes: int) -> Fraction:
        """Of a job on so many nodes; 1 on those it asks for."""
        curve = parse_speedup("linear")
        if self.workload.malleable is not None:
            curve = self.workload.malleable.speedup_of(row)
        return curve.at(nodes) / curve.at(self.asked_for[row])

    def column(self, name: str, row: int, otherwise: int) -> int:
        malleable = self.workload.malleable
        return otherwise if malleable is None else int(getattr(malleable, name)[row])

    def work(self, row: int) -> Fraction:
        """What a job has done in all its stretches, anew from the first."""
        done, idle = Fraction(0), 0
        job = self.jobs[row]
        stretches = self.counted(row)
        if job.state == State.RUNNING:
            stretches.append(Stretch(row, job.start, self.now, tuple(job.nodes)))
        for one in stretches:
            done += max(0, one.end - one.start - idle) * self.rate(row, len(one.nodes))
            idle = self.column("resize_ms", row, 0)
        return done

    def counted(self, row: int) -> list[Stretch]:
        """The stretches of a job that no failure ended."""
        return [one for i, one in enumerate(self.past[row]) if i not in self.in_vain[row]]

    def largest(self, job: Job) -> int:
        """On how many nodes limits let a job run if nothing else does; at least its smallest size."""
        nodes = self.asked_for[job.row]
        least = self.column("min_nodes", job.row, nodes)
        sizes = range(least, self.column("max_nodes", job.row, nodes) + 1)
        return max([least, *(size for size in sizes if self.allows(job, size))])

    def allows(self, job: Job, size: int) -> bool:
        most = self.machine.partitions[job.partition].max_nodes
        if most is not None and size > most:
            return False
        amounts = self.limits.amounts_of(self.workload, self.groups(job), replace(job, width=size))
        return all(
            amounts[what] <= self.limits.most(getattr(limit, what), what)
            for limit, what in self.limits.holding(job)
            if what in ("nodes", "cores", "gpus", "memory_gb")
        )

    def groups(self, job: Job) -> list[NodeGroup]:
        cluster = self.machine.cluster
        return [cluster.nodes[g] for g in {self.machine.pools[pool].group for pool in job.pools}]

    def set_width(self, job: Job, size: int) -> None:
        """What a job counts goes with its nodes."""
        job.width = size
        self.limits.amounts[job] = self.limits.amounts_of(self.workload, self.groups(job), job)

    def lasting(self, job: Job) -> int:
        """How much of the walltime is left, ms; overheads are added."""
        idle = self.column("resize_ms", job.row, 0) if self.counted(job.row) else 0
        left = Fraction(self.walltime[job.row]) - self.work(job.row)
        return max(1, idle + max(0, math.ceil(left / self.rate(job.row, job.width))))

    def view(self, refused: set[int]) -> SizeView:
        there = [job for job in self.jobs if job.state in (State.WAITING, State.RUNNING)]
        seen = []
        for job in there:
            runs = job.state == State.RUNNING
            if not runs and (job.row in refused or job.row in self.stuck):
                continue
            if self.cleaned(job):
                continue
            row = job.row
            nodes = self.asked_for[row]
            malleable = self.workload.malleable
            seen.append(
                SizedJob(
                    job_id=self.workload.job_id[row].item(),
                    submit_s=job.came[0] / MS_PER_S,
                    nodes=nodes,
                    min_nodes=self.column("min_nodes", row, nodes),
                    max_nodes=self.largest(job),
                    size=len(job.nodes) if runs else 0,
                    left_s=float(self.whole[row] - self.work(row)) / MS_PER_S,
                    expected_s=self.whole[row] / MS_PER_S,
                    resize_s=self.column("resize_ms", row, 0) / MS_PER_S,
                    begun=runs or bool(self.counted(row)),
                    suspendable=bool(self.column("suspendable", row, 0)),
                    speedup=parse_speedup("linear")
                    if malleable is None
                    else malleable.speedup_of(row),
                )
            )
            fixed = self.cleanup and runs and not seen[-1].suspendable
            if row in refused or fixed:
                held = len(job.nodes)
                seen[-1] = replace(seen[-1], min_nodes=held, max_nodes=held, suspendable=False)
        in_maintenance = {
            node for pool in self.machine.pools if pool.away(self.now) for node in pool.nodes
        }
        up = [
            job
            for node, (job, away) in enumerate(zip(*self.on_nodes(), strict=True))
            if not away and (node not in in_maintenance if job is None else not self.cleaned(job))
        ]
        return SizeView(self.now / MS_PER_S, len(up), up.count(None), tuple(seen))

    def on_nodes(self) -> tuple[list[Job | None], list[int]]:
        """Who is on each node, and how many outages it is in."""
        return list(self.machine.job_on), list(self.machine.outages_over)

    # -- what it says --

    def ask(self) -> None:
        refused: set[int] = set()
        while True:
            sizes = self.rule(self.view(refused)) or Sizes()
            changes = self.changes(sizes, refused)
            if not self.may_refuse:
                break
            trial = deepcopy(self, {id(one): one for one in self.shared})
            more = trial.apply(changes, cleans=False)
            if not more:
                break
            refused |= more
        self.again = None if sizes.next_call_s is None else to_ms(sizes.next_call_s)
        self.refused = bool(refused)
        for row in self.apply(changes):
            if row in self.had_nodes and not self.column("suspendable", row, 0):
                raise FaultError(f"row {row} may not be suspended")

    def set_timer(self) -> None:
        """When limits are checked again that only time lifts."""
        look = self.limits.next_look(self.jobs, self.now)
        self.timers = [] if look is None else [look]

    def changes(self, sizes: Sizes, refused: set[int]) -> dict[int, int]:
        """New sizes of those that are to have others."""
        rows = {self.workload.job_id[row].item(): row for row in range(len(self.jobs))}
        found = {}
        for job_id, size in sizes.nodes.items():
            job = self.jobs[rows[job_id]]
            now = len(job.nodes) if job.state == State.RUNNING else 0
            if size != now and job.row not in refused:
                found[job.row] = size
        return found

    def apply(self, changes: dict[int, int], *, cleans: bool = True) -> set[int]:
        """Change sizes; those that did not get theirs."""
        self.had_nodes = {row for row in changes if self.jobs[row].state == State.RUNNING}
        for row in sorted(self.had_nodes):
            job = self.jobs[row]
            if cleans and self.cleanup and job.start < self.now:
                # It keeps its nodes until they are clean.
                job.over, job.due, job.sent_back = self.now, self.now + self.cleanup, True
            else:
                self.stop(job)
        for row, size in changes.items():
            if self.jobs[row].state == State.WAITING:
                self.resume(self.jobs[row], size)
        if changes:
            self.set_timer()
            self.after_pass()
        return {row for row, size in changes.items() if size and not self.jobs[row].nodes}

    def stop(self, job: Job) -> None:
        """A stretch is over; one that took no time was none."""
        begun = job.start
        self.vacate(job)
        if begun == self.now:
            self.past[job.row].pop()
        self.undo_if_not_begun(job)
        job.state, job.start, job.nodes = State.WAITING, None, []

    def resume(self, job: Job, size: int) -> None:
        """A stretch begins, if the job fits; the end is when all work is done."""
        if size == 0:
            return
        row = job.row
        self.set_width(job, size)
        job.walltime = self.lasting(job)
        job.expected = job.walltime + self.cleanup
        running = self.in_state(State.RUNNING)
        for other in running:
            other.planned_end = self.expected_end(other)
        least = None
        if not self.limited(job, running) and job.row not in self.stuck:
            least = Plan(self.machine, running, self.now, self.placement).least(job, self.now)
        if least is None:
            self.set_width(job, self.asked_for[row])
            return
        self.begin(job, self.split_now(job, least))
        walltime = self.walltime[row]
        cut = self.terminate and job.runtime > walltime
        left = Fraction(walltime if cut else job.runtime) - self.work(row)
        idle = self.column("resize_ms", row, 0) if self.counted(row) else 0
        job.over = job.start + idle + math.ceil(left / self.rate(row, size))
        job.due = job.over + self.cleanup
        ends_well = State.FAILED if job.fails else State.COMPLETED
        job.due_state = State.WALLTIME if cut else ends_well

    def cleaned(self, job: Job) -> bool:
        """Whether a job has stopped or ended, and its nodes are being cleaned up."""
        return bool(self.cleanup) and job.state == State.RUNNING and job.over <= self.now

    def finish(self, job: Job) -> None:
        """A job that was stopped waits once its nodes are clean."""
        if not job.sent_back:
            super().finish(job)
            return
        self.stop(job)
        job.sent_back = False
        self.set_width(job, self.asked_for[job.row])
        if job.cancel is not None and job.cancel < self.now:
            self.end(job, State.CANCELLED)

    def lose(self, job: Job) -> None:
        """What it did in this stretch is lost, unless it was over."""
        if self.cleaned(job):
            super().lose(job)
            return
        if job.start <= self.now:
            self.in_vain[job.row].add(len(self.past[job.row]))
        super().lose(job)
        self.set_width(job, self.asked_for[job.row])

    def vacate(self, job: Job) -> None:
        # Else its nodes were still being switched on.
        if job.start <= self.now:
            end = min(self.now, job.over) if self.cleanup else self.now
            self.past[job.row].append(Stretch(job.row, job.start, end, tuple(job.nodes)))
        super().vacate(job)


class SizedPoweredSimulation(SizedSimulation, PoweredSimulation):
    """The same, on nodes that are switched off and on."""

    def run(self, until: int | None = None) -> None:
        self.begin_power()
        super().run(until)
        self.end_power()

    def after_pass(self) -> None:
        # Read: of two passes at one time the second sees what the first has switched, and says what is left.
        self.once_more = False
        super().after_pass()

    def spent(self, row: int) -> float:
        """What the nodes of a job drew in its stretches, J."""
        return sum(
            max(0, min(span.end, one.end) - max(span.start, one.start)) / 1000 * node.watts(span)
            for one in self.past[row]
            for node in (self.nodes[number] for number in one.nodes)
            for span in node.past
            if span.state == COMPUTING
        )


def simulate_sized(
    workload: Workload,
    cluster: Cluster,
    sizing: Sizing,
    *,
    placement: str = "first_fit",
    overrun: str = "terminate",
    on_dependency_failure: str = "cancel",
    expected_ms: Sequence[int] | None = None,
    power: PowerPolicy | None = None,
) -> SizedSimulation:
    """Simulate to the end; the jobs, and their stretches (`SizedSimulation.past`) by row.

    With a power policy nodes are of the states that the cluster has.

    Raises:
        FaultError: the sizing left no room for a job that may not be suspended.
    """
    machine = Machine(cluster)
    jobs = jobs_of(workload, machine, expected_ms)
    kind: Callable[..., SizedSimulation] = SizedSimulation
    if power is not None:
        kind = partial(
            SizedPoweredSimulation, platform=cluster, power=power, speeds=[1.0] * len(cluster.nodes)
        )
    simulation = kind(
        machine=machine,
        limits=Limits(workload, machine, jobs),
        jobs=jobs,
        outages=[
            (one.node, to_ms(one.start), to_ms(one.duration)) for one in cluster.failures.outages
        ],
        share=usage_of(workload, cluster, jobs),
        order=fcfs,
        candidate_order=fcfs,
        backfill="outside",
        k=1,
        depth=0,
        patience=0,
        placement=placement,
        terminate=overrun == "terminate",
        hold=on_dependency_failure == "hold",
        observer=None,
        log=None,
    )
    simulation.prepare(workload, sizing.rule)
    simulation.run(None)
    return simulation
