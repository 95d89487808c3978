"""A plain simulator of parallel tasks, written from the equations in docs/concepts/networks.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INF = math.inf


@dataclass
class Machine:
    """Hosts and links with routes, as the simulators need them; it stands in for a platform."""

    host_cores: Any
    host_speed: Any
    link_bandwidth: Any
    link_latency: Any
    link_fatpipe: Any
    table: dict[tuple[int, int], list[int]]
    gamma: float = 4194304.0

    def __post_init__(self) -> None:
        self.name = "machine"
        self.storages: dict[str, Any] = {}
        self.host_names = tuple(f"h{i}" for i in range(len(self.host_speed)))
        self.link_names = tuple(f"l{i}" for i in range(len(self.link_bandwidth)))

    def hosts_of(self, role: str) -> Any:
        return np.arange(len(self.host_speed) if role == "compute_node" else 0)

    def routes(self, sources: Any, targets: Any) -> Any:
        found = [self.table[pair] for pair in zip(sources.tolist(), targets.tolist(), strict=True)]

        class Routes:
            offsets = np.cumsum([0, *map(len, found)])
            links = np.array([link for one in found for link in one], np.int32)
            latency_s = np.array([self.latency(one) for one in found], float)

        return Routes

    def latency(self, links: list[int]) -> float:
        return float(sum(self.link_latency[link] for link in links))


@dataclass
class Task:
    """Amounts of a task by resource (``h``, host or ``l``, link); a host may occur again."""

    uses: list[tuple[tuple[str, int], float]]
    latency: float
    bound: float


@dataclass
class Job:
    """A job: its start, and its phases: lengths of delays, and tasks."""

    start: float
    phases: list[float | Task]
    at: int = -1
    mode: str = "waiting"  # waiting, delay, latency, running or ended
    until: float = INF
    left: float = 0.0
    rate: float = 0.0
    end: float = INF
    history: list[float] = field(default_factory=list)


def task(
    machine: Machine, hosts: list[int], cpu: list[float], com: dict[Any, float], quirks: bool
) -> Task:
    """Return the task of ranks on hosts; ``com`` has bytes by pair of ranks."""
    if quirks and len(hosts) == 1:
        com = {}
    uses = [(("h", host), flops) for host, flops in zip(hosts, cpu, strict=True) if flops > 0]
    bounds = [machine.host_speed[host] / flops for (_, host), flops in uses]
    links: dict[tuple[str, int], float] = {}
    latencies = [0.0]
    for (i, k), amount in com.items():
        if amount <= 0:
            continue
        route = machine.table[hosts[i], hosts[k]]
        latencies.append(machine.latency(route))
        if latencies[-1] > 0:
            bounds.append(machine.gamma / (2 * latencies[-1] * amount))
        for link in route:
            known = links.get(("l", link), 0.0)
            joined = max(known, amount) if machine.link_fatpipe[link] else known + amount
            links["l", link] = joined
    uses += links.items()
    return Task(uses, max(latencies), min(bounds, default=INF) if uses else INF)


def capacity(machine: Machine, resource: tuple[str, int]) -> float:
    kind, number = resource
    if kind == "h":
        return float(machine.host_cores[number] * machine.host_speed[number])
    return float(machine.link_bandwidth[number])


def fat(machine: Machine, resource: tuple[str, int]) -> bool:
    return resource[0] == "l" and bool(machine.link_fatpipe[resource[1]])


def rates(machine: Machine, tasks: list[Task], quirks: bool) -> list[float]:
    """Return the rates of running tasks; each has a use or a bound."""
    bounds, uses = [], []
    for one in tasks:
        own = one.uses
        bound = one.bound
        if not quirks:
            alone = [(r, amount) for r, amount in own if fat(machine, r)]
            bound = min([bound, *(capacity(machine, r) / amount for r, amount in alone)])
            own = [(r, amount) for r, amount in own if not fat(machine, r)]
        bounds.append(bound)
        uses.append(own)
    left = {r: capacity(machine, r) for own in uses for r, _ in own}
    rate, last = [0.0] * len(tasks), [0.0] * len(tasks)
    live = set(range(len(tasks)))
    while live:
        share = {}
        for r in left:
            count = sum(1 for i in live for use, _ in uses[i] if use == r)
            if count:
                share[r] = left[r] if fat(machine, r) else left[r] / count
        for i in live:
            last[i] = min([bounds[i] - rate[i], *(share[r] / amount for r, amount in uses[i])])
            rate[i] += last[i]
        charging = range(len(tasks)) if quirks else live
        for r in share:
            taken = [last[i] * amount for i in charging for use, amount in uses[i] if use == r]
            left[r] -= min(share[r], *taken) if fat(machine, r) else sum(taken)
            if left[r] < 1e-5:
                left[r] = 0.0
        live -= {i for i in live if rate[i] == bounds[i] or any(left[r] == 0.0 for r, _ in uses[i])}
    return rate


def simulate(machine: Machine, jobs: list[Job], quirks: bool) -> list[float]:
    """Return when each job ends."""
    now = 0.0
    for job in jobs:
        job.until = job.start
    while any(job.mode != "ended" for job in jobs):
        now = min(
            job.until if job.mode != "running" else now + job.left / job.rate if job.rate else INF
            for job in jobs
            if job.mode != "ended"
        )
        if now == INF:
            break
        _advance(jobs, now)
        for job in jobs:
            done = job.left < 1e-14 or (job.rate > 0 and now + job.left / job.rate <= now)
            if job.mode == "running" and done:
                _next_phase(job, now)
            elif job.mode == "latency" and job.until <= now:
                _run(job, now)
            elif job.mode in ("waiting", "delay") and job.until <= now:
                _next_phase(job, now)
        running = [job for job in jobs if job.mode == "running"]
        found = rates(machine, [job.phases[job.at] for job in running], quirks)  # type: ignore[misc]
        for job, rate in zip(running, found, strict=True):
            job.rate = rate
    return [job.end for job in jobs]


def _advance(jobs: list[Job], now: float) -> None:
    for job in jobs:
        if job.mode == "running":
            job.left -= job.rate * (now - job.history[-1])
            job.history.append(now)


def _run(job: Job, now: float) -> None:
    one = job.phases[job.at]
    assert isinstance(one, Task)
    if one.uses:
        job.mode, job.left, job.rate = "running", 1.0, 0.0
        job.history.append(now)
    else:
        _next_phase(job, now)


def _next_phase(job: Job, now: float) -> None:
    job.at += 1
    if job.at == len(job.phases):
        job.mode, job.end = "ended", now
        return
    one = job.phases[job.at]
    if not isinstance(one, Task):
        job.mode, job.until = "delay", now + one
    elif one.latency > 0:
        job.mode, job.until = "latency", now + one.latency
    else:
        _run(job, now)
