"""Jobs whose sizes a function decides while they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

from hpctwin.model import MS_PER_S, Cluster, State, Workload, to_ms
from hpctwin.model.workload.malleable import parse_speedup
from hpctwin.policies import PowerPolicy
from hpctwin_sizing import SizedJob, SizeRule, SizeView, Sizing

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
        self.again: int | None = None
        self.past: dict[int, list[Stretch]] = {job.row: [] for job in self.jobs}
        self.in_vain: dict[int, set[int]] = {job.row: set() for job in self.jobs}
        self.asked_for = {job.row: job.width for job in self.jobs}
        self.whole = {job.row: job.expected for job in self.jobs}

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
            if event is None and not self.in_state(State.WAITING):
                return
            self.now = instant
            if event == instant:
                self.batch()
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

    def view(self) -> SizeView:
        there = [job for job in self.jobs if job.state in (State.WAITING, State.RUNNING)]
        seen = []
        for job in there:
            row, runs = job.row, job.state == State.RUNNING
            nodes = self.asked_for[row]
            malleable = self.workload.malleable
            seen.append(
                SizedJob(
                    job_id=self.workload.job_id[row].item(),
                    submit_s=job.came[0] / MS_PER_S,
                    nodes=nodes,
                    min_nodes=self.column("min_nodes", row, nodes),
                    max_nodes=self.column("max_nodes", row, nodes),
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
        up = [job for job, away in zip(*self.on_nodes(), strict=True) if not away]
        return SizeView(self.now / MS_PER_S, len(up), up.count(None), tuple(seen))

    def on_nodes(self) -> tuple[list[Job | None], list[int]]:
        """Who is on each node, and how many outages it is in."""
        return list(self.machine.job_on), list(self.machine.outages_over)

    # -- what it says --

    def ask(self) -> None:
        sizes = self.rule(self.view())
        if sizes is None:
            return
        self.again = None if sizes.next_call_s is None else to_ms(sizes.next_call_s)
        rows = {self.workload.job_id[row].item(): row for row in range(len(self.jobs))}
        changes: dict[int, int] = {}
        ran = set()
        for job_id, size in sizes.nodes.items():
            job = self.jobs[rows[job_id]]
            runs = job.state == State.RUNNING
            if size == (len(job.nodes) if runs else 0):
                continue
            changes[job.row] = size
            if runs:
                ran.add(job.row)
        for row in ran:
            self.stop(self.jobs[row])
        for row, size in changes.items():
            self.resume(self.jobs[row], size)
        if changes:
            self.after_pass()
        for row in ran:
            job = self.jobs[row]
            if job.state != State.RUNNING and not self.column("suspendable", row, 0):
                raise FaultError(f"row {row} may not be suspended")

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
        job.width = size
        running = self.in_state(State.RUNNING)
        for other in running:
            # What they run is not known, but now they have their nodes.
            other.planned_end = max(other.planned_end, self.now + 1)
        least = Plan(self.machine, running, self.now, self.placement).least(job, self.now)
        if least is None:
            job.width = self.asked_for[row]
            return
        self.begin(job, self.split_now(job, least))
        cut = self.terminate and job.runtime > job.walltime
        left = Fraction(job.walltime if cut else job.runtime) - self.work(row)
        idle = self.column("resize_ms", row, 0) if self.counted(row) else 0
        job.due = job.start + idle + math.ceil(left / self.rate(row, size))
        ends_well = State.FAILED if job.fails else State.COMPLETED
        job.due_state = State.WALLTIME if cut else ends_well

    def lose(self, job: Job) -> None:
        """What it did in this stretch is lost."""
        if job.start <= self.now:
            self.in_vain[job.row].add(len(self.past[job.row]))
        super().lose(job)
        job.width = self.asked_for[job.row]

    def vacate(self, job: Job) -> None:
        # Else its nodes were still being switched on.
        if job.start <= self.now:
            self.past[job.row].append(Stretch(job.row, job.start, self.now, tuple(job.nodes)))
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
