"""Phases of a job on its hosts, as the engine runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.contention.mpi import steps_of_ranks
from hpctwin.contention.rank_strands import RankStrands, StrandStep, amounts_of
from hpctwin.contention.ranks import Held
from hpctwin.contention.route_table import RouteTable
from hpctwin.engine.network.records import (
    DELAY,
    END,
    FORK,
    LOAD,
    MEET,
    MEETING,
    REPEAT,
    STEP,
    STRAND,
    TASK,
    USE,
)
from hpctwin.errors import ConfigError
from hpctwin.network import profiles
from hpctwin.network.patterns import Flows, Pattern
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import Profile
from hpctwin.network.rank_tasks import Exchange, RankTasks

__all__ = ["PhaseBuilder", "Phases", "Sharing"]

Sharing = Literal["simgrid", "fair"]
Hosts = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_FOREVER = float("inf")


@dataclass(frozen=True, eq=False)
class Phases:
    """Phases of a job as tables of `hpctwin.engine.network.records`.

    Rows that refer to others count from the job's first row of that kind.

    Args:
        strands: Strands; the first is the job's own.
        steps: Steps of all strands.
        loads: Parallel tasks.
        uses: Their needs of hosts and links. Resources are hosts, then links.
    """

    strands: npt.NDArray[Any]
    steps: npt.NDArray[Any]
    loads: npt.NDArray[Any]
    uses: npt.NDArray[Any]


class PhaseBuilder:
    """Makes the phases of jobs on a platform.

    Args:
        platform: Hosts and links.
        sharing: How capacities are shared: ``simgrid`` or ``fair``.
        storages: Hosts of storages by their labels, in addition to the names of hosts.
    """

    def __init__(
        self,
        platform: Platform,
        sharing: Sharing = "simgrid",
        storages: Mapping[str, int] | None = None,
    ) -> None:
        self.platform = platform
        self.fair = sharing == "fair"
        self.routes = RouteTable(platform)
        names = {name: host for host, name in enumerate(platform.host_names)}
        self._storages = {**names, **(storages or {})}

    def build(
        self,
        profile: Profile,
        hosts: Sequence[int] | Hosts,
        speed: FloatArray | None = None,
        rate: float = 1.0,
        held: Held | None = None,
    ) -> Phases:
        """Return the phases of a job.

        Args:
            profile: The job's profile.
            hosts: Host of each rank.
            speed: Speed of a core of each host, in flop/s; by default the platform's.
            rate: How many times as fast delays pass.
            held: What ranks hold of their hosts; None for all.

        Raises:
            ConfigError: The profile is for another number of ranks, or names an unknown storage.
        """
        speed = self.platform.host_speed if speed is None else speed
        return _Job(self, np.asarray(hosts, np.int64), speed, rate, held).phases(profile)

    def storage(self, label: str) -> int:
        """Return the host of a storage: of this label or name, or else the only one.

        Raises:
            ConfigError: There is no such storage.
        """
        found = self._storages.get(label)
        if found is not None:
            return found
        only = self.platform.hosts_of("storage")
        if len(only) != 1:
            names = list(self.platform.storages)
            raise ConfigError(
                f"storage {label!r}: platform {self.platform.name!r} has no host of this name, and "
                f"{len(names)} storages; "
                + (f"name one of {', '.join(names[:5])}" if names else "add a storage to it")
            )
        return int(only[0])

    def storages(self, label: str, hosts: Hosts) -> Hosts:
        """Return the host of a storage for each of some hosts; a storage on nodes is their own.

        Raises:
            ConfigError: There is no such storage.
        """
        known = self.platform.storages
        if label not in self._storages and (label in known or len(known) == 1):
            return self.platform.storage(label, hosts)
        return np.repeat(self.storage(label), len(hosts))

    def load(
        self, hosts: Hosts, cpu: FloatArray, com: FloatArray | Flows, speed: FloatArray
    ) -> tuple[float, float, float, npt.NDArray[Any]]:
        """Return latency and bounds of a parallel task, and its uses of hosts and links.

        The second bound does not depend on the speeds of hosts.

        Args:
            hosts: Host of each rank.
            cpu: Computation of each rank, in flops; one number for all ranks.
            com: Bytes between ranks; [ranks, ranks], or one number, [1], for all pairs of two ranks.
            speed: Speed of a core of each host, in flop/s.
        """
        platform = self.platform
        uses, by_cores = _computing(hosts, cpu, speed)
        latency, bound = 0.0, _FOREVER
        flows = com if isinstance(com, Flows) else _flows_between(com, len(hosts))
        if len(flows.sources):
            links, amounts, latency, window = self.routes.sums(hosts, flows)
            if window > 0:
                bound = min(bound, platform.gamma / (2.0 * window))
            if self.fair:
                # A link that gives each task its full bandwidth is no more than a bound.
                alone = platform.link_fatpipe[links]
                limits = platform.link_bandwidth[links[alone]] / amounts[alone]
                bound = float(limits.min(initial=bound))
                links, amounts = links[~alone], amounts[~alone]
            computing = uses
            uses = np.empty(len(computing) + len(links), USE)
            uses[: len(computing)] = computing
            uses["resource"][len(computing) :] = links + len(platform.host_names)
            uses["amount"][len(computing) :] = amounts
        if not len(uses) and not self.fair:
            bound = _FOREVER  # SimGrid takes a task without host and link as done after its latency
        return latency, min(by_cores, bound), bound, uses


def _computing(hosts: Hosts, cpu: FloatArray, speed: FloatArray) -> tuple[npt.NDArray[Any], float]:
    """Return uses of hosts, and the bound by the speed of a core."""
    if not cpu.any():
        return np.zeros(0, USE), _FOREVER
    flops = np.broadcast_to(cpu, len(hosts))
    some = flops > 0
    uses = np.zeros(np.count_nonzero(some), USE)
    uses["resource"], uses["amount"] = hosts[some], flops[some]
    return uses, float((speed[hosts[some]] / flops[some]).min())


def _flows_between(com: FloatArray, ranks: int) -> Flows:
    """Return what ranks send, from a matrix or one number for all pairs of ranks."""
    if com.ndim == 1:
        pairs = Pattern.ALL_TO_ALL.pairs(ranks if com[0] > 0 else 0)
        return Flows(*pairs, com)
    sources, targets = np.nonzero(com > 0)
    return Flows(sources, targets, com[sources, targets])


@dataclass
class _Job:
    """Phases of one job while they are made."""

    builder: PhaseBuilder
    hosts: Hosts
    speed: FloatArray
    rate: float
    held: Held | None
    strands: list[tuple[int, int]] = field(default_factory=list)
    """First step, and the strand that waits for it."""
    steps: list[tuple[int, float, int, int, int, int]] = field(default_factory=list)
    loads: list[tuple[int, int, float, float, float]] = field(default_factory=list)
    uses: list[npt.NDArray[Any]] = field(default_factory=list)
    made: dict[Profile, int] = field(default_factory=dict)
    """Loads of profiles that occur again."""
    forked: list[tuple[int, Sequence[StrandStep]]] = field(default_factory=list)
    """Parent and steps of each further strand."""
    meetings: list[tuple[int, int]] = field(default_factory=list)
    """Load, and number of strands that meet for it."""
    size: int = 0

    @property
    def places(self) -> str:
        """Nodes or tasks: the job requests one for each rank."""
        return "nodes" if self.held is None else "tasks"

    def phases(self, profile: Profile) -> Phases:
        self.strands.append((0, -1))
        code = self.add(profile)
        self.step(END, count=code)
        first_meeting = len(self.steps)
        for load, strands in self.meetings:
            self.step(MEETING, row=load, count=strands)
        for parent, steps in self.forked:
            begin = len(self.steps)
            self.strands.append((begin, parent))
            for kind, row, count, seconds in steps:
                shift = {int(MEET): first_meeting, int(REPEAT): begin}.get(int(kind), 0)
                self.step(kind, seconds, row + shift, count)
            self.step(END)
        made = np.zeros(len(self.strands), STRAND)
        made["begin"] = [begin for begin, _ in self.strands]
        made["parent"] = [parent for _, parent in self.strands]
        return Phases(
            made,
            np.array(self.steps, STEP),
            np.array(self.loads, LOAD),
            np.concatenate([np.zeros(0, USE), *self.uses]),
        )

    def step(self, kind: Any, seconds: float = 0.0, row: int = 0, count: int = 0) -> None:
        self.steps.append((int(kind), seconds, row, count, count, -1))

    def fork(self, strands: Sequence[Sequence[StrandStep]]) -> None:
        """Add the step that runs strands and waits for them."""
        if strands:
            self.step(FORK, row=1 + len(self.forked), count=len(strands))
            self.forked += [(0, steps) for steps in strands]

    def add_strands(self, count: int, parent: int) -> int:
        """Add strands for which another one waits; return the number of the first."""
        first = 1 + len(self.forked)
        self.forked += [(parent, ())] * count
        return first

    def put_strand(self, strand: int, steps: Sequence[StrandStep]) -> None:
        """Set the steps of a strand."""
        self.forked[strand - 1] = (self.forked[strand - 1][0], steps)

    def meeting(self, load: int, strands: int) -> int:
        """Add a meeting of strands for a task; return its number."""
        self.meetings.append((load, strands))
        return len(self.meetings) - 1

    def task(self, profile: Profile, hosts: Hosts, cpu: Any, com: Any) -> int:
        """Add the step of a parallel task."""
        if profile not in self.made:
            self.made[profile] = self.load(hosts, cpu, com)
        self.step(TASK, row=self.made[profile])
        return profile.exit_code

    def load(self, hosts: Hosts, cpu: Any, com: Any) -> int:
        if not isinstance(com, Flows):
            com = np.ascontiguousarray(com, np.float64)
        flops = np.ascontiguousarray(cpu, np.float64)
        latency, bound, limit, uses = self.builder.load(hosts, flops, com, self.speed)
        self.loads.append((self.size, self.size + len(uses), latency, bound, limit))
        self.uses.append(uses)
        self.size += len(uses)
        return len(self.loads) - 1

    def add(self, profile: Profile) -> int:
        """Add the steps of a profile; return its exit code, with which the job ends if not 0."""
        return _ADD[type(profile)](self, profile)

    def delay(self, profile: profiles.Delay) -> int:
        self.step(DELAY, profile.duration_s / self.rate)
        return profile.exit_code

    def parallel_task(self, profile: profiles.ParallelTask) -> int:
        if profile.ranks not in (0, len(self.hosts)):
            raise ConfigError(
                f"a parallel task of {profile.ranks} ranks cannot run on {len(self.hosts)} "
                f"{self.places}; ask for as many {self.places} as ranks"
            )
        cpu = 0.0 if profile.cpu is None else profile.cpu
        com = 0.0 if profile.com is None else profile.com
        if len(self.hosts) == 1 and not self.builder.fair:
            com = 0.0  # SimGrid runs a task of one rank as a computation
        return self.task(profile, self.hosts, cpu, com)

    def homogeneous_task(self, profile: profiles.HomogeneousTask) -> int:
        each = profile.on(len(self.hosts))
        return self.task(profile, self.hosts, each.cpu, each.com)

    def spread_task(self, profile: profiles.SpreadTask) -> int:
        ranks = len(self.hosts)
        com = profile.pattern.flows(ranks, profile.volume) if profile.volume else 0.0
        return self.task(profile, self.hosts, profile.flops / ranks, com)

    def storage_transfer(self, profile: profiles.StorageTransfer) -> int:
        own = self.builder.storages(profile.storage, self.hosts)
        storages, place = np.unique(own, return_inverse=True)
        hosts = np.append(self.hosts, storages)
        share = len(self.hosts) if profile.spread else 1
        com = np.zeros((len(hosts), len(hosts)))
        ranks = np.arange(len(own))
        com[ranks, len(own) + place] = profile.write / share
        com[len(own) + place, ranks] = profile.read / share
        return self.task(profile, hosts, 0.0, com)

    def staging(self, profile: profiles.Staging) -> int:
        ends = [self.builder.storage(label) for label in (profile.source, profile.target)]
        com = np.array([[0.0, profile.amount], [0.0, 0.0]])
        return self.task(profile, np.array(ends), 0.0, com)

    def sequence(self, profile: profiles.Sequence) -> int:
        first = len(self.steps)
        for part in profile.parts:
            code = self.add(part)
            if code:
                return code
        if profile.repeat > 1:
            self.step(REPEAT, row=first, count=profile.repeat)
        return profile.exit_code

    def usage_trace(self, profile: profiles.UsageTrace) -> int:
        if len(profile.ranks) > len(self.hosts):
            raise ConfigError(
                f"a usage trace of {len(profile.ranks)} nodes cannot run on {len(self.hosts)} "
                f"{self.places}; ask for as many {self.places} as the trace has nodes"
            )
        strands = []
        held = (
            self.builder.platform.host_cores[self.hosts] if self.held is None else self.held.cores
        )
        for host, cores, rank in zip(self.hosts, held, profile.ranks, strict=False):
            taken = np.maximum(np.floor(rank.usage * cores + 0.5), 1).astype(int)
            lines = zip(taken.tolist(), rank.flops.tolist(), strict=True)
            loads = [self.load(np.full(k, host), flops, 0.0) for k, flops in lines]
            strands.append([StrandStep(TASK, load) for load in loads])
        self.fork(strands)
        return profile.exit_code

    def rank_tasks(self, profile: RankTasks) -> int:
        if profile.ranks != len(self.hosts):
            raise ConfigError(
                f"tasks of {profile.ranks} ranks cannot run on {len(self.hosts)} {self.places}; ask "
                f"for as many {self.places} as ranks"
            )
        slow = self.hosts[self.builder.platform.host_speed[self.hosts] <= 0]
        if profile.computes and len(slow):
            raise ConfigError(
                f"it computes, and node {self.builder.platform.host_names[slow[0]]!r} has no speed; give "
                "core_speed under 'network', such as core_speed: 20 Gflop/s"
            )
        tasks = [one for one in profile.tasks if one.repeat]
        parallel = [one for one in tasks if isinstance(one, Exchange) and one.together]
        if len(parallel) < len(tasks):
            kind, first, count, _ = RankStrands(self).add(tasks)
            self.step(kind, row=first, count=count)
            return profile.exit_code
        for task in parallel:
            first = len(self.steps)
            self.step(TASK, row=self.load(self.hosts, *amounts_of(task, profile.ranks)))
            if task.repeat > 1:
                self.step(REPEAT, row=first, count=task.repeat)
        return profile.exit_code

    def smpi_trace(self, profile: profiles.SmpiTrace) -> int:
        self.fork(steps_of_ranks(profile, self.hosts, self.load, self.meeting))
        return profile.exit_code


_ADD: dict[type[Profile], Callable[[_Job, Any], int]] = {
    profiles.Delay: _Job.delay,
    profiles.ParallelTask: _Job.parallel_task,
    profiles.HomogeneousTask: _Job.homogeneous_task,
    profiles.SpreadTask: _Job.spread_task,
    profiles.StorageTransfer: _Job.storage_transfer,
    profiles.Staging: _Job.staging,
    profiles.Sequence: _Job.sequence,
    profiles.UsageTrace: _Job.usage_trace,
    profiles.SmpiTrace: _Job.smpi_trace,
    RankTasks: _Job.rank_tasks,
}
