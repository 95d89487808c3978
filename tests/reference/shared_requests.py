"""What jobs that share nodes ask, and what nodes have, from the section of that name."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hpctwin.model import Cluster, Workload
from tests.reference.jobs import Job

ENOUGH = 10**12
NAMES = ("cores", "memory_gb", "gpus")
"""After these come the consumables."""
Amount = Fraction | int
"""Never rounded; whole amounts are int, which Python adds and compares much faster."""
Amounts = tuple[Amount, ...]
Tasks = tuple[int, ...]
"""On a node, of each kind of a job's tasks."""


def amount_of(number: float) -> Amount:
    """Return a number as it is."""
    exact = Fraction(number)
    return exact.numerator if exact.denominator == 1 else exact


@dataclass(frozen=True)
class Kind:
    """Tasks of a job that are alike."""

    tasks: int
    each: Amounts


@dataclass(frozen=True)
class Request:
    """What a job asks of nodes; `tasks` and `each` are of the first of its kinds of tasks."""

    tasks: int
    nodes: int
    most: int
    exclusive: bool
    each: Amounts  # of a task
    charge: float
    shared_with: int = 0
    user: int = 0
    account: int = 0
    more: tuple[Kind, ...] = ()
    group_by: str = ""
    spread: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (Kind(self.tasks, self.each), *self.more)

    def held(self, tasks: Tasks) -> Amounts:
        """What so many of its tasks of each kind ask together."""
        together = zip(tasks, self.kinds, strict=True)
        asked = [[count * ask for ask in kind.each] for count, kind in together]
        return tuple(sum(column) for column in zip(*asked, strict=True))

    def goes_with(self, other: Request) -> bool:
        """Whether both may be on a node at the same time, amounts apart."""
        if self.exclusive or other.exclusive:
            return False
        asked = {self.shared_with, other.shared_with}
        if 1 in asked and self.user != other.user:
            return False
        return not (2 in asked and self.account != other.account)


def has(cluster: Cluster, group: int) -> Amounts:
    """What an empty node of a group has."""
    found = []
    for name in NAMES:
        stated = any(getattr(other, name) is not None for other in cluster.nodes)
        amount = getattr(cluster.nodes[group], name)
        unstated = 1 if name == "cores" else ENOUGH
        found.append(amount_of(amount or 0) if stated else unstated)
    of_group = cluster.nodes[group].consumables
    return (*found, *(amount_of(of_group.get(name, 0)) for name in consumables(cluster)))


def consumables(cluster: Cluster) -> list[str]:
    """Of all node groups, each once."""
    return list(dict.fromkeys(name for group in cluster.nodes for name in group.consumables))


def requests(workload: Workload, cluster: Cluster, jobs: list[Job]) -> dict[Job, Request]:
    """What each job asks; what orderings see of it is put right."""
    chunks = workload.chunks
    there = [
        sum(has(cluster, g)[c] * group.count for g, group in enumerate(cluster.nodes))
        for c in range(3 + len(consumables(cluster)))
    ]
    result = {}
    for job in jobs:
        tasks = int(chunks["tasks"][job.row])
        owner = int(workload.user.codes[job.row]), int(workload.account.codes[job.row])
        if not tasks:
            nothing = (0,) * len(there)
            result[job] = Request(job.width, job.width, 1, True, nothing, job.width)
            continue
        columns = [chunks[f"{name}_per_task"] for name in NAMES]
        none = np.zeros(len(workload))
        columns += [workload.consumables.get(name, none) for name in consumables(cluster)]
        each = tuple(amount_of(float(column[job.row])) for column in columns)
        more = further_kinds(workload, job.row, consumables(cluster))
        every = tasks + sum(kind.tasks for kind in more)
        totals = [
            amount * tasks + sum(kind.tasks * kind.each[c] for kind in more)
            for c, amount in enumerate(each)
        ]
        shares = [
            float(amount) / float(whole) if 0 < whole < ENOUGH else 0.0
            for amount, whole in zip(totals, there, strict=True)
        ]
        result[job] = Request(
            tasks,
            job.width,
            int(chunks["tasks_per_node"][job.row]) or every,
            bool(chunks["exclusive"][job.row]),
            each,
            max(shares) * cluster.node_count,
            int(chunks["shared_with"][job.row]),
            *owner,
            more,
            _label(workload, job.row),
            bool(chunks["spread_job"][job.row]),
        )
        view = job.view
        wide = [
            job.needs.get(name, 0) / max(amount, 1) for name, amount in cluster.resources.items()
        ]
        view.dominant, view.load = max(shares + wide), sum(shares + wide)
        view.cores, view.memory_gb, view.gpus = (float(amount) for amount in each[:3])
        view.cpu, view.memory_mb = float(totals[0]), float(totals[1]) * 1024
    return result


def _label(workload: Workload, row: int) -> str:
    code = workload.group_by.codes[row]
    return workload.group_by.labels[code] if code >= 0 else ""


def further_kinds(workload: Workload, row: int, others: list[str]) -> tuple[Kind, ...]:
    """The kinds of a job's tasks but the first."""
    code = workload.more_tasks.codes[row]
    if code < 0:
        return ()
    found = []
    for part in workload.more_tasks.labels[code].split("+"):
        count, *said = part.split(":")
        asked = {"cores": "1"} | dict(pair.split("=") for pair in said)
        each = tuple(amount_of(float(asked.get(name, "0"))) for name in (*NAMES, *others))
        found.append(Kind(int(count), each))
    return tuple(found)
