"""Our policies as a scheduler for somebody else's simulation: told what happened, they say who starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpctwin.errors import PolicyError
from hpctwin.model import Category, Cluster, Workload, to_ms
from hpctwin.policies import PolicyLike, make_policy
from hpctwin.simulation.present import Running, begin_at
from hpctwin.simulation.schedulers.driving import Happened, Orders
from hpctwin.simulation.simulation import Simulation

__all__ = ["PolicyScheduler"]

_LABELS = ("user", "account", "partition", "qos")
_NONE = np.zeros(0, np.int64)


class PolicyScheduler:
    """Decides as a policy does, by an engine that begins anew in the present at each question.

    It knows of jobs what it was told: a job ends at its walltime, or when it is told so.

    Args:
        policy: as of `Simulation`; without power policy, for nodes that are all on and equal.
        nodes: so many there are.

    Raises:
        PolicyError: the policy goes by what was used before (fair share), which nobody tells here.
    """

    def __init__(self, policy: PolicyLike | None, nodes: int) -> None:
        self.policy = make_policy(policy)
        if self.policy.order.fairshare:
            raise PolicyError(
                f"policy {self.policy.name!r} goes by fair share; a scheduler from outside is not told what "
                "was used before"
            )
        self.cluster = Cluster.uniform(nodes=nodes)
        self.waiting: dict[Any, Mapping[str, Any]] = {}
        self.running: dict[Any, tuple[Mapping[str, Any], float, tuple[int, ...]]] = {}
        self._number: dict[Any, int] = {}
        self._free = set(range(nodes))

    def __call__(self, happened: Happened) -> Orders:
        """Hear what happened, and give orders."""
        for job_id, _ in happened.ended:
            self._over(job_id)
        never = []
        for job_id in happened.refused:
            job = self.running[job_id][0]
            self._over(job_id)
            self.waiting[job_id] = job
        for job in happened.submitted:
            self._over(job["job_id"])
            if job["nodes"] > self.cluster.node_count:
                never.append(job["job_id"])
                continue
            self._number.setdefault(job["job_id"], len(self._number) + 1)
            self.waiting[job["job_id"]] = job
        start = self._starts(to_ms(happened.now_s)) if self.waiting else []
        for job_id in start:
            job = self.waiting.pop(job_id)
            nodes = tuple(sorted(self._free)[: job["nodes"]])
            self._free.difference_update(nodes)
            self.running[job_id] = (job, happened.now_s, nodes)
        return Orders(start, None, never)

    def nodes_of(self, job_id: Any) -> tuple[int, ...]:
        """The numbers of the nodes that a running job has."""
        return self.running[job_id][2]

    def _over(self, job_id: Any) -> None:
        self.waiting.pop(job_id, None)
        if job_id in self.running:
            self._free.update(self.running.pop(job_id)[2])

    def _starts(self, now_ms: int) -> list[Any]:
        """Who starts now."""
        ids = [*self.running, *self.waiting]
        jobs = [self.running[job_id][0] for job_id in self.running] + list(self.waiting.values())
        # Ties go by the order in which jobs were told of, whatever their ids look like.
        workload = Workload.build(
            job_id=[self._number[job_id] for job_id in ids],
            submit_s=[job["submit_s"] for job in jobs],
            runtime_s=[job["walltime_s"] for job in jobs],
            walltime_s=[job["walltime_s"] for job in jobs],
            nodes=[job["nodes"] for job in jobs],
            priority=[job.get("priority", 0.0) for job in jobs],
        ).replace(**{name: Category.of([job.get(name) for job in jobs]) for name in _LABELS})
        id_of = {self._number[job_id]: job_id for job_id in ids}
        named = [id_of[number] for number in workload.job_id.tolist()]
        rows = np.array([row for row, one in enumerate(named) if one in self.running], np.int64)
        ran = [self.running[named[row]] for row in rows]
        start = np.array([to_ms(begun) for _, begun, _ in ran], np.int64)
        simulation = Simulation(workload, self.cluster, self.policy)
        running = Running(
            rows,
            start,
            np.maximum(start + workload.walltime_ms[rows], now_ms + 1),
            tuple(np.array(nodes, np.int64) for _, _, nodes in ran),
        )
        begin_at(simulation, now_ms, running, _NONE, _NONE)
        present = simulation.fork(self.policy)
        present.advance(now_ms / 1000)
        begun = present.column("start")[: len(workload)] == now_ms
        begun[rows] = False
        return [named[row] for row in np.flatnonzero(begun)]
