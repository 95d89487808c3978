"""A simulation in which nodes have power states."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from fractions import Fraction

from hpctwin.model import Cluster, State, to_ms
from hpctwin.policies import PowerPolicy
from tests.reference.events import ENDED
from tests.reference.jobs import Job
from tests.reference.nodes import (
    COMPUTING,
    IDLE,
    SLEEPING,
    SWITCHING_OFF,
    SWITCHING_ON,
    Node,
)
from tests.reference.passes import Simulation, exact
from tests.reference.wake import Need

AHEAD = 256


@dataclass
class PoweredSimulation(Simulation):
    """Events, passes, and nodes that are switched off and on."""

    platform: Cluster = field(kw_only=True)
    power: PowerPolicy = field(kw_only=True)
    speeds: list[float] = field(kw_only=True)  # of each node group, its mode apart
    watch: Callable[[PoweredSimulation], int | None] | None = None
    """Looks on after each instant, may switch nodes and modes, and says when it wants to again."""
    commands: list[tuple[int, Callable[[PoweredSimulation], None]]] = field(default_factory=list)
    """What is done at a time from outside, after the events of that time."""
    wakes: list[int] = field(default_factory=list)  # when to look whether nodes must be woken
    looked: int = -1  # when it was looked last which timeouts are over
    once_more: bool = False  # another batch at this time
    in_cleanup: Collection[int] = ()  # rows of jobs whose nodes are being cleaned up
    pass_due: bool = False  # a pass without a batch, for what was done from outside

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = [g for g, group in enumerate(self.platform.nodes) for _ in range(group.count)]
        self.nodes = [
            Node(number, group, power, power.mode or next(iter(power.modes)))
            for number, group in enumerate(groups)
            for power in [self.platform.nodes[group]]
        ]
        pool_of = {n: p for p, pool in enumerate(self.machine.pools) for n in pool.nodes}
        self.pool_of = [pool_of[node.number] for node in self.nodes]
        # By row: for how long it had run, and how much was left then.
        self.work_left: dict[int, tuple[int, Fraction]] = {}

    # -- what happens --

    def run(self, until: int | None = None) -> None:
        """From the first submission until every job has ended."""
        assert until is None
        self.begin_power()
        again = self.watch(self) if self.watch else None
        while any(job.state not in ENDED for job in self.jobs):
            if self.pass_due:
                self.pass_due = False
                self.one_pass()
                continue
            instant = self.next_instant()
            outside = [time for time, _ in self.commands[:1]]
            if again is not None:
                outside.append(again)
            assert instant is not None or outside, "jobs wait, and nothing is left to happen"
            if instant is not None and instant <= min(outside, default=instant):
                self.now = instant
                self.batch()
                self.one_pass()
            elif self.commands and self.commands[0][0] == min(outside):
                self.now, command = self.commands.pop(0)
                command(self)
                continue
            else:
                self.now = min(outside)
            if self.watch and any(job.state not in ENDED for job in self.jobs):
                again = self.watch(self)
        self.end_power()

    def begin_power(self) -> None:
        """Let all nodes be on and idle from the first submission on; what was before has happened."""
        begin = min((job.submit for job in self.jobs), default=0)
        for node in self.nodes:
            node.since = begin
        while (instant := super().next_instant()) is not None and instant < begin:
            self.now = instant
            super().batch()
        self.now = begin

    def end_power(self) -> None:
        """Omit what comes after the last end of a job: it does not count."""
        last = max((job.ended for job in self.jobs if job.start is not None), default=self.now)
        for node in self.nodes:
            node.note(self.now)
            node.past = [
                replace(span, end=min(span.end, last)) for span in node.past if span.start < last
            ]

    def next_instant(self) -> int | None:
        times = [time for time in [super().next_instant()] if time is not None]
        times += [n.over for n in self.nodes if n.state in (SWITCHING_OFF, SWITCHING_ON)]
        dues = [self.due(node) for node in self.nodes]
        times += [due for due in dues if due is not None and due > self.looked]
        times += [time for time in self.wakes if time > self.now]
        # Nodes are idle from the end of a job on, while they are being cleaned up.
        running = self.in_state(State.RUNNING)
        times += [job.over for job in running if job.over > self.now]
        times += [
            self.now
            for job in running
            if job.start == job.over == self.now and job.row not in self.in_cleanup
        ]
        times += [self.now] * self.once_more
        return min(times, default=None)

    def batch(self) -> None:
        self.once_more = False
        self.in_cleanup = {job.row for job in self.in_state(State.RUNNING) if job.over <= self.now}
        super().batch()
        self.end_transitions()
        self.bar()

    def end_transitions(self) -> None:
        for node in self.nodes:
            if node.over > self.now:
                continue
            if node.state == SWITCHING_OFF:
                node.turn(SLEEPING, self.now)
            elif node.state == SWITCHING_ON:
                node.turn(COMPUTING if self.in_use(node) else IDLE, self.now)
                node.depth = 0

    def one_pass(self) -> None:
        super().one_pass()
        self.after_pass()

    def after_pass(self) -> None:
        for node in self.nodes:
            if node.state in (IDLE, COMPUTING):
                state = COMPUTING if self.in_use(node) else IDLE
                if node.state != state:
                    node.turn(state, self.now)
            elif node.state == SLEEPING and self.job_on(node) is not None:
                node.switch_on(self.now)
        self.switch_off_due(self.wake_for_the_plan())
        self.looked = self.now
        self.end_transitions()
        self.bar()

    def job_on(self, node: Node) -> Job | None:
        return self.machine.job_on[node.number]

    def in_use(self, node: Node) -> bool:
        """Whether the job that has a node runs, and does not still wait for others of its nodes."""
        job = self.job_on(node)
        return job is not None and self.runs(job)

    def runs(self, job: Job) -> bool:
        """Whether a job that has nodes has begun, is not suspended, and is not over."""
        over = self.cleanup > 0 and job.over <= self.now
        return not job.suspended and job.start <= self.now and not over

    def up(self, node: Node) -> bool:
        """Whether it has not failed."""
        return not self.machine.outages_over[node.number]

    # -- what jobs may have --

    @property
    def only_what_is_on(self) -> bool:
        """Whether jobs get only nodes that are on."""
        return self.power.kind in ("psas-ipm", "orders")

    def bar(self) -> None:
        """Keep nodes from jobs that are not on, where the power policy does so."""
        self.machine.back = {}
        for node in self.nodes:
            on_from = node.on_from(self.now)
            barred = self.only_what_is_on and self.job_on(node) is None and on_from > self.now
            if barred and self.up(node):
                self.machine.back[node.number] = on_from
            if barred != node.barred:
                self.came_back = True
            node.barred = barred

    def by_preference(self, nodes: list[int]) -> list[int]:
        if self.power.kind != "psas-auto" or self.placement == "spread":
            return nodes
        return sorted(nodes, key=lambda n: (self.nodes[n].on_from(self.now), n))

    def when_on(self, nodes: list[int]) -> int:
        return max(self.nodes[number].on_from(self.now) for number in nodes)

    # -- switching off --

    def timeout(self, depth: int, node: Node) -> int | None:
        """How long a node stays as it is before it goes to a sleep depth, ms; None for always."""
        power = self.power
        seconds = None if power.kind == "none" else [power.timeout_s, *power.deeper_s]
        if seconds is None or depth >= len(node.power.sleep) or depth >= len(seconds):
            return None
        return None if seconds[depth] is None else to_ms(seconds[depth])

    def due(self, node: Node) -> int | None:
        """When a node has been as it is for its timeout; None if it has none."""
        if self.job_on(node) is not None or node.state not in (IDLE, SLEEPING) or not self.up(node):
            return None
        timeout = self.timeout(0 if node.state == IDLE else node.depth + 1, node)
        return None if timeout is None else node.since + timeout

    def switch_off_due(self, spare: dict[int, int]) -> None:
        """Switch off what is due, the highest numbers first.

        Args:
            spare: how many idle nodes of each pool the plan can do without.
        """
        up = [node for node in self.nodes if self.up(node)]
        idle = [n for n in up if n.state == IDLE and self.job_on(n) is None]
        may = dict.fromkeys(range(len(self.platform.nodes)), -self.power.keep)
        for node in idle:
            may[node.group] += 1
        for node in reversed(self.nodes):
            due = self.due(node)
            if due is None or due > self.now:
                continue
            pool = self.spared_by(node)
            if node.state == SLEEPING:
                if self.power.kind == "psas-ipm" and self.in_state(State.WAITING):
                    continue
                node.switch_off(node.depth + 1, self.now)
            elif may[node.group] > 0 and spare.get(pool, 1) > 0:
                node.switch_off(0, self.now)
                may[node.group] -= 1
                if pool in spare:
                    spare[pool] -= 1
            else:
                continue
            if node.over == self.now:
                self.once_more = True

    def spared_by(self, node: Node) -> int:
        """By what is counted which idle nodes the plan can do without: the pool."""
        return self.pool_of[node.number]

    # -- waking for the plan --

    def wake_for_the_plan(self) -> dict[int, int]:
        """Wake what the plan needs now; how many idle nodes of each pool it can do without."""
        self.wakes = []
        waiting = self.in_state(State.WAITING)
        if self.power.kind != "psas-ipm" or not waiting:
            return {}
        self.bar()
        need = self.planned_need(waiting)
        spare = {}
        for pool, own in enumerate(self.machine.pools):
            mine = [self.nodes[number] for number in self.machine.up(pool)]
            some = self.nodes[own.nodes[0]]
            sleeps = some.power.sleep
            quicker = 0
            for depth in range(len(sleeps)):
                asleep = [n for n in mine if n.state == SLEEPING and n.depth == depth]
                there = self.now + to_ms(sleeps[depth].switch_on.time)
                short = need.at(pool, there)
                if asleep:
                    more = need.first_above(pool, max(short, quicker), after=there)
                    if more is not None:
                        self.wakes.append(more - (there - self.now))
                for node in asleep[: max(0, short - quicker)]:
                    node.switch_on(self.now)
                quicker += len(asleep)
            if sleeps:
                back = some.off_ms(0) + some.on_ms(0)
                spare[pool] = max(0, -need.most(pool, self.now + back))
        return spare

    def planned_need(self, waiting: list[Job]) -> Need:
        """The plan of all waiting jobs."""
        pools = range(len(self.machine.pools))
        up = [[self.nodes[number] for number in self.machine.up(pool)] for pool in pools]
        planned = self.promised(waiting)
        need = Need(up, self.last_to_leave(), self.now)
        for job, start, split in planned:
            need.add(split, start, start + job.expected)
        return need

    def last_to_leave(self) -> list[Job | None]:
        """The job that leaves each node last."""
        return self.machine.job_on

    def promised(self, waiting: list[Job]) -> list[tuple[Job, int, dict[int, int]]]:
        """When and where each waits to start: at its earliest, or at the reservation it holds."""
        if self.backfill == "conservative":
            starts = {
                job.row: job.reserved if job.reserved_once is None else job.reserved_once
                for job in waiting
            }
            return [
                (job, start, job.reserved_split)
                for job in waiting
                if (start := starts[job.row]) is not None
            ]
        self.show(waiting)
        plan = self.plan()
        not_before: dict[int | str, int] = {}
        found = []
        for job in self.ordered(waiting, self.order)[:AHEAD]:
            if self.skipped(job):
                continue
            wants: list[int | str] = [*job.pools, *job.needs]
            earliest = 0
            if self.backfill == "none":
                earliest = max(not_before.get(key, 0) for key in wants)
            start, split = plan.earliest(job, earliest)
            plan.take(job, split, start)
            found.append((job, start, split))
            not_before.update(dict.fromkeys(wants, start))
        return found

    # -- orders from outside --

    def switch(self, on: list[int], off: list[int]) -> None:
        """Switch nodes off and on now; a pass sees it."""
        for number in sorted(off):
            self.nodes[number].switch_off(0, self.now)
        for number in sorted(on):
            self.nodes[number].switch_on(self.now)
        if on or off:
            self.end_transitions()
            self.bar()
            self.pass_due = True

    # -- modes --

    def speed_of(self, job: Job) -> Fraction:
        return min(self.speed(self.nodes[number]) for number in job.nodes)

    def speed(self, node: Node) -> Fraction:
        return exact(self.speeds[node.group]) * exact(node.power.modes[node.mode].speed)

    def set_end(self, job: Job, since: int, work: Fraction) -> None:
        self.work_left[job.row] = (self.ran(job), work)
        super().set_end(job, since, work)

    def draws(self, node: Node, which: str | int) -> float:
        """What a node draws now, in a mode or at a depth, W."""
        return node.draws(node.state, which)

    def mode_of(self, group: int) -> str:
        return next(node.mode for node in self.nodes if node.group == group)

    def set_mode(self, group: int, mode: str) -> None:
        """Put a group into another mode; what is left of the jobs there goes on at its speed."""
        mine = [node for node in self.nodes if node.group == group]
        touched = [
            job
            for job in self.in_state(State.RUNNING)
            if any(self.nodes[number].group == group for number in job.nodes)
            and not (self.cleanup and job.over <= self.now)
        ]
        left = {}
        for job in touched:
            before, work = self.work_left[job.row]
            done = (self.ran(job) - before) * self.speed_of(job)
            left[job.row] = (max(self.now, job.start), max(Fraction(0), work - done))
        for node in mine:
            if node.state in (IDLE, COMPUTING):
                node.note(self.now)
            node.mode, node.mode_since = mode, self.now
        for job in touched:
            self.set_end(job, *left[job.row])
