"""Tasks of ranks as strands: one of each rank, and others for what a rank does at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hpctwin.contention.ranks import Held
from hpctwin.contention.route_table import RouteTable
from hpctwin.engine.network.records import DELAY, FORK, MEET, REPEAT, TASK
from hpctwin.errors import ConfigError
from hpctwin.network.platform import Platform
from hpctwin.network.rank_tasks import (
    Access,
    Busy,
    Exchange,
    Gpu,
    Idle,
    RankTask,
    Repeated,
    bytes_between,
)

__all__ = ["RankStrands", "StrandStep", "amounts_of"]

Hosts = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class StrandStep(NamedTuple):
    """A step of a strand: its kind, and fields of `hpctwin.engine.network.records.Step`.

    The row of a step that goes back counts from the strand's first step.
    """

    kind: Any
    row: int = 0
    times: int = 0
    seconds: float = 0.0


class _Builder(Protocol):
    """What strands need of the builder of phases."""

    routes: RouteTable
    platform: Platform


class _Job(Protocol):
    """What strands need of the job that they are part of."""

    hosts: Hosts
    held: Held | None

    @property
    def builder(self) -> _Builder: ...
    def load(self, hosts: Hosts, cpu: Any, com: Any) -> int: ...
    def meeting(self, load: int, strands: int) -> int: ...
    def add_strands(self, count: int, parent: int) -> int: ...
    def put_strand(self, strand: int, steps: Sequence[StrandStep]) -> None: ...


def amounts_of(task: Exchange | Gpu, ranks: int) -> tuple[FloatArray | float, FloatArray | float]:
    """Return flops and bytes of a task as one parallel task of all ranks."""
    flops = task.flops if isinstance(task, Exchange) and task.together else None
    com = bytes_between(*task.com, ranks) if isinstance(task.com, tuple) else task.com
    return 0.0 if flops is None else flops, 0.0 if com is None else com


class RankStrands:
    """Makes the strands of one `RankTasks`.

    Args:
        job: Job to which loads, meetings and strands are added.
    """

    def __init__(self, job: _Job) -> None:
        self._job, self._platform = job, job.builder.platform
        self._meetings: dict[RankTask, int] = {}
        self._barriers: dict[RankTask, int] = {}
        self._routed: set[RankTask] = set()
        self._nodes = list(dict.fromkeys(job.hosts.tolist()))

    def add(self, tasks: Sequence[RankTask]) -> StrandStep:
        """Add the strands of all ranks; return the step that runs them and waits for them."""
        count = len(self._job.hosts)
        first = self._job.add_strands(count, 0)
        for rank in range(count):
            self._job.put_strand(first + rank, self._steps(tasks, rank, first + rank))
        return StrandStep(FORK, first, count)

    def _steps(self, tasks: Sequence[RankTask], rank: int, strand: int) -> list[StrandStep]:
        """Return the steps of tasks; asynchronous ones run in further strands."""
        waits = [task for task in tasks if isinstance(task, Access) and task.asynchronous]
        copies = sum(task.repeat for task in waits if task.amounts[rank] > 0)
        if not copies:
            return self._in_order(tasks, rank, strand, {})
        first = self._job.add_strands(1 + copies, strand)
        other = first + 1
        begins: dict[RankTask, list[int]] = {}
        for task in waits:
            for _ in range(task.repeat if task.amounts[rank] > 0 else 0):
                begin = self._job.meeting(self._nothing(), 2)
                begins.setdefault(task, []).append(begin)
                self._job.put_strand(other, [StrandStep(MEET, begin), *self._access(task, rank)])
                other += 1
        self._job.put_strand(first, self._in_order(tasks, rank, first, begins))
        return [StrandStep(FORK, first, 1 + copies)]

    def _in_order(
        self,
        tasks: Sequence[RankTask],
        rank: int,
        strand: int,
        begins: dict[RankTask, list[int]],
    ) -> list[StrandStep]:
        steps: list[StrandStep] = []
        for task in tasks:
            if isinstance(task, Access) and task.asynchronous:
                own = begins.get(task, [])  # none if this rank has nothing to read or write
                for copy in range(task.repeat):
                    begin = [StrandStep(MEET, own[copy])] if own else []
                    steps += [*self._barrier(task), *begin]
                continue
            barrier = self._barrier(task)
            once = _STEPS[type(task)](self, task, rank, strand)
            if task.repeat == 0 or not (barrier or once):
                continue
            start = len(steps)
            steps += barrier
            # Rows of steps that go back count from the beginning of the strand.
            inner = len(steps)
            steps += [s._replace(row=s.row + inner) if s.kind == REPEAT else s for s in once]
            if task.repeat > 1:
                steps.append(StrandStep(REPEAT, start, task.repeat))
        return steps

    def _barrier(self, task: RankTask) -> list[StrandStep]:
        if not task.synchronized:
            return []
        if task not in self._barriers:
            self._barriers[task] = self._job.meeting(self._nothing(), len(self._job.hosts))
        return [StrandStep(MEET, self._barriers[task])]

    def _nothing(self) -> int:
        """Return a load that takes no time."""
        return self._job.load(self._job.hosts[:1], 0.0, 0.0)

    def _idle(self, task: Idle, rank: int, strand: int) -> list[StrandStep]:
        seconds = float(task.seconds[rank])
        return [StrandStep(DELAY, seconds=seconds)] if seconds > 0 else []

    def _busy(self, task: Busy, rank: int, strand: int) -> list[StrandStep]:
        speed = float(self._platform.host_speed[self._job.hosts[rank]])
        if speed <= 0:
            return self._idle(Idle(task.seconds), rank, strand)
        return self._compute(rank, float(task.seconds[rank]) * speed)

    def _compute(self, rank: int, flops: float) -> list[StrandStep]:
        if flops <= 0:
            return []
        return [StrandStep(TASK, self._job.load(self._job.hosts[[rank]], flops, 0.0))]

    def _meet(self, task: Exchange | Gpu) -> list[StrandStep]:
        """Return the step of the parallel task in which all ranks meet."""
        if task.com is None:
            return []
        if task not in self._meetings:
            hosts = self._job.hosts
            load = self._job.load(hosts, *amounts_of(task, len(hosts)))
            self._meetings[task] = self._job.meeting(load, len(hosts))
        return [StrandStep(MEET, self._meetings[task])]

    def _both(
        self, strand: int, one: list[StrandStep], other: list[StrandStep]
    ) -> list[StrandStep]:
        """Return the step that does two things at the same time."""
        if not (one and other):
            return one or other
        first = self._job.add_strands(2, strand)
        self._job.put_strand(first, one)
        self._job.put_strand(first + 1, other)
        return [StrandStep(FORK, first, 2)]

    def _exchange(self, task: Exchange, rank: int, strand: int) -> list[StrandStep]:
        if task.flops is None or task.together:
            return self._meet(task)
        computes = self._compute(rank, float(task.flops[rank]))
        return self._both(strand, computes, self._meet(task))

    def _gpu(self, task: Gpu, rank: int, strand: int) -> list[StrandStep]:
        host = int(self._job.hosts[rank])
        devices, name = self._platform.host_devices[host], self._platform.host_names[host]
        if task.gpus > devices.gpus:
            raise ConfigError(
                f"a task needs {task.gpus} GPUs, and host {name!r} has {devices.gpus}; give hosts "
                "the property num_gpus, or node groups 'gpus'"
            )
        held = self._job.held
        if held is not None and task.gpus > held.gpus[rank]:
            raise ConfigError(
                f"a task needs {task.gpus} GPUs, and rank {rank} holds {held.gpus[rank]:g} on shared "
                f"node {name!r}; request them with gpus_per_task"
            )
        flops = 0.0 if task.flops is None else float(task.flops[rank])
        seconds = 0.0
        for amount, speed, what in (
            (flops, devices.gpu_speed, "flops_per_gpu (in a cluster file, gpu_speed)"),
            (
                task.inside,
                devices.gpu_bandwidth,
                "gpu_to_gpu_bw (in a cluster file, gpu_bandwidth)",
            ),
        ):
            if amount > 0 and speed <= 0:
                raise ConfigError(f"host {name!r} needs {what} for a task on GPUs")
            # A rank holds its GPUs alone, and the links between them are free.
            seconds = max(seconds, amount / speed if amount > 0 else 0.0)
        computes = [StrandStep(DELAY, seconds=seconds)] if seconds > 0 else []
        return self._both(strand, computes, self._meet(task))

    def _access_now(self, task: Access, rank: int, strand: int) -> list[StrandStep]:
        return self._access(task, rank) if task.amounts[rank] > 0 else []

    def _access(self, task: Access, rank: int) -> list[StrandStep]:
        """Return the step of one parallel task between a rank and its storages."""
        if task not in self._routed:
            self._add_routes(task)
        host, storages = self._job.hosts[[rank]], self._storages(task, rank)
        part = float(task.amounts[rank]) / len(storages)
        hosts = np.concatenate([host, storages])
        com = np.zeros((len(hosts), len(hosts)))
        com[(0, slice(1, None)) if task.write else (slice(1, None), 0)] = part
        flops = np.zeros(len(hosts))
        if task.storage == "node" and self._platform.host_devices[int(host[0])].striped:
            hosts, com, flops = self._striped(hosts, com, part)
        return [StrandStep(TASK, self._job.load(hosts, flops, com))]

    def _storages(self, task: Access, rank: int) -> Hosts:
        """Return the hosts of the storages that a rank reads or writes."""
        host = int(self._job.hosts[rank])
        if task.storage == "shared":
            return self._platform.file_systems(host)
        striped = self._platform.host_devices[host].striped
        return self._platform.burst_buffers(self._nodes if striped else [host])

    def _add_routes(self, task: Access) -> None:
        """Compute the routes of all ranks of an access at once, which is much faster."""
        self._routed.add(task)
        ranks = np.flatnonzero(task.amounts).tolist()
        storages = [self._storages(task, rank) for rank in ranks]
        hosts = np.repeat(self._job.hosts[ranks], [len(own) for own in storages])
        ends = hosts, np.concatenate(storages)
        self._job.builder.routes.add(*(ends if task.write else ends[::-1]))

    def _striped(
        self, hosts: Hosts, com: FloatArray, part: float
    ) -> tuple[Hosts, FloatArray, FloatArray]:
        """Return hosts, bytes and flops with the computation of nodes for data in their buffers."""
        users = self._nodes
        every = np.concatenate([hosts, users])
        flops = np.zeros(len(every))
        flops[len(hosts) :] = [part * self._platform.host_devices[u].stripe_flops for u in users]
        wide = np.zeros((len(every), len(every)))
        wide[: len(hosts), : len(hosts)] = com
        return every, wide, flops

    def _repeated(self, task: Repeated, rank: int, strand: int) -> list[StrandStep]:
        return self._steps(task.tasks, rank, strand)


_STEPS: dict[type[RankTask], Callable[[RankStrands, Any, int, int], list[StrandStep]]] = {
    Idle: RankStrands._idle,
    Busy: RankStrands._busy,
    Exchange: RankStrands._exchange,
    Gpu: RankStrands._gpu,
    Access: RankStrands._access_now,
    Repeated: RankStrands._repeated,
}
