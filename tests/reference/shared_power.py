"""A simulation in which jobs share nodes that have power states."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hpctwin.model import Cluster, State
from tests.reference.jobs import Job
from tests.reference.nodes import COMPUTING, SLEEPING, Node, Span
from tests.reference.power import PoweredSimulation
from tests.reference.shared import SharedSimulation
from tests.reference.shared_requests import ENOUGH, Tasks, has


class SharedPoweredSimulation(SharedSimulation, PoweredSimulation):
    """Shared nodes, switched off and on."""

    def job_on(self, node: Node) -> Job | None:
        return next(self.jobs_on(node.number), None)

    def in_use(self, node: Node) -> bool:
        return bool(self.running_on(node))

    def running_on(self, node: Node) -> list[Job]:
        """The jobs that run on a node."""
        here = self.jobs_on(node.number)
        return [job for job in here if self.runs(job)]

    def ready(self, node: int) -> int:
        return self.nodes[node].on_from(self.now) if self.power.kind == "psas-auto" else 0

    def speed_of(self, job: Job) -> Fraction:
        return PoweredSimulation.speed_of(self, job)

    def draws(self, node: Node, which: str | int) -> float:
        here = [(job, self.on[job][node.number]) for job in self.running_on(node)]
        if node.state != COMPUTING or not here:
            return super().draws(node, which)
        span = Span(self.now, self.now, COMPUTING, which)
        return sum(draw(self, self.machine.cluster, node, span, here).values())

    def spared_by(self, node: Node) -> int:
        return node.number

    def wake_for_the_plan(self) -> dict[int, int]:
        """Wake what is promised and must be woken now; which idle nodes the plan can do without."""
        self.wakes = []
        waiting = self.in_state(State.WAITING)
        if self.power.kind != "psas-ipm" or not waiting:
            return {}
        self.bar()
        first = self.first_use(waiting)
        spare = {}
        for node in self.nodes:
            used = first.get(node.number)
            if node.state == SLEEPING and self.up(node) and used is not None:
                wake = used - node.on_ms(node.depth)
                if wake <= self.now:
                    node.switch_on(self.now)
                else:
                    self.wakes.append(wake)
            if node.power.sleep and used is not None:
                back = self.now + node.off_ms(0) + node.on_ms(0)
                spare[node.number] = 1 if used > back else 0
        return spare

    def first_use(self, waiting: list[Job]) -> dict[int, int]:
        """When each node is first promised to a job that waits."""
        first: dict[int, int] = {}
        for _, start, split in self.promised(waiting):
            for node in split:
                first[node] = min(start, first.get(node, start))
        return first


def divided(
    simulation: SharedPoweredSimulation, cluster: Cluster
) -> tuple[list[dict[tuple[str, str | int], float]], list[float]]:
    """Energy of each node by state and mode or depth, and of each job, J."""
    spent: list[dict[tuple[str, str | int], float]] = [{} for _ in simulation.nodes]
    of_job = [0.0] * len(simulation.jobs)
    for node in simulation.nodes:
        runs = [
            (job, start, end, simulation.given[job, start][node.number])
            for job in simulation.jobs
            for start, end, nodes in job.runs
            if node.number in nodes
            and start < end  # preempted as it began, it may begin at once elsewhere
        ]
        for span in node.past:
            key = (span.state, span.which)
            times = [span.start, span.end]
            if span.state == COMPUTING:
                times += [t for run in runs for t in run[1:3] if span.start < t < span.end]
            for begin, end in pairwise(sorted(times)):
                seconds = (end - begin) / 1000
                watts = {-1: node.watts(span)}
                if span.state == COMPUTING:
                    here = [
                        (job, tasks) for job, start, until, tasks in runs if start <= begin < until
                    ]
                    watts = draw(simulation, cluster, node, span, here)
                for row, drawn in watts.items():
                    spent[node.number][key] = spent[node.number].get(key, 0.0) + drawn * seconds
                    if row >= 0:
                        of_job[row] += drawn * seconds
    return spent, of_job


def draw(
    simulation: SharedPoweredSimulation,
    cluster: Cluster,
    node: Node,
    span: Span,
    here: list[tuple[Job, Tasks]],
) -> dict[int, float]:
    """What each job that runs on a node has of what it draws, by row, W."""
    whole = has(cluster, node.group)[:3]  # consumables do not count
    use, hold = {}, {}
    for job, tasks in here:
        request = simulation.asked[job]
        cores, memory, gpus = (
            float(asked) / float(there) if 0 < there < ENOUGH else 0.0
            for asked, there in zip(request.held(tasks)[:3], whole, strict=True)
        )
        use[job.row] = 1.0 if request.exclusive else min(1.0, max(cores, gpus))
        hold[job.row] = 1.0 if request.exclusive else min(1.0, max(cores, memory, gpus))
    used, held = sum(use.values()), sum(hold.values())
    mode = node.power.modes[str(span.which)]
    found = {}
    for row in use:
        idle = hold[row] / held if held else 1 / len(here)
        busy = min(1.0, used) * use[row] / used if used else 0.0
        found[row] = mode.idle * idle + (mode.power_w - mode.idle) * busy
    return found
