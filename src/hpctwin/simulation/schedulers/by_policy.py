"""A policy as the scheduler of an external simulation: events in, starts out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.interactive import (
    close_arrivals,
    end_only_when_told,
    hand_over,
    know_job,
)
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import MS_PER_S, Cluster, Workload, to_ms
from hpctwin.policies import PolicyLike, make_policy
from hpctwin.simulation.running.simulation import Simulation
from hpctwin.simulation.schedulers.driving import Happened, Orders

__all__ = ["PolicyScheduler"]

IntArray = npt.NDArray[np.int64]

_LABELS = ("user", "account", "partition", "qos")


class PolicyScheduler:
    """Scheduler that decides as a policy does, for a simulation that runs elsewhere.

    Its own simulation advances with the reported events. It knows only what is reported: a job is
    planned to end at its walltime, and ends when its end is reported.

    Args:
        policy: Policy as for `Simulation`, without power policy; all nodes are on and equal.
        nodes: Number of nodes.
        rows: Number of jobs for which memory is allocated at first.

    Raises:
        PolicyError: The policy uses fair share, and past usage is not reported here.
    """

    def __init__(self, policy: PolicyLike | None, nodes: int, *, rows: int = 1024) -> None:
        self.policy = make_policy(policy)
        if self.policy.order.fairshare:
            raise PolicyError(
                f"policy {self.policy.name!r} goes by fair share; a scheduler from outside is not told what "
                "was used before"
            )
        self.cluster = Cluster.uniform(nodes=nodes)
        self._simulation = Simulation(_of_nobody(rows), self.cluster, self.policy)
        self._simulation.know_facts()
        sim = self._simulation.state
        close_arrivals(sim)
        sim.own("fact")
        self._simulation.decided()
        self._spare = list(range(rows))[::-1]
        self._row: dict[Any, int] = {}
        self._waiting: dict[Any, Mapping[str, Any]] = {}
        self._running: dict[Any, tuple[Mapping[str, Any], IntArray]] = {}
        self._rank: dict[Any, int] = {}
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _LABELS}
        self._free = np.ones(nodes, bool)

    def __call__(self, happened: Happened) -> Orders:
        """Take over what happened and return orders.

        Raises:
            SimulationError: It happened before the last reported time.
        """
        now_ms = to_ms(happened.now_s)
        if now_ms < self._simulation.state.clock.now:
            raise SimulationError(
                f"what happened at {happened.now_s:g} s is told after {self._simulation.now_s:g} s; time "
                "does not go back"
            )
        ended: list[int] = []
        for job_id, _ in happened.ended:
            self._over(job_id, now_ms, ended)
        again = [self._running[job_id][0] for job_id in happened.refused]
        never: list[Mapping[str, Any]] = []
        come: list[Mapping[str, Any]] = []
        for job in (*again, *happened.submitted):
            self._over(job["job_id"], now_ms, ended)
            fits = job["nodes"] <= self.cluster.node_count
            (come if fits else never).append(job)
        for job in come:
            self._enter(job)
        start = self._starts(now_ms, ended)
        self._spare += ended
        timer = int(self._simulation.state.clock.timer)
        later = self._waiting and timer < layout.NEVER
        return Orders(start, timer / MS_PER_S if later else None, [job["job_id"] for job in never])

    def nodes_of(self, job_id: Any) -> list[int]:
        """Return the numbers of the nodes that a running job has."""
        found: list[int] = self._running[job_id][1].tolist()
        return found

    def _over(self, job_id: Any, now_ms: int, ended: list[int]) -> None:
        """Remove a job; if it ran, its row is added to ``ended``."""
        from hpctwin.engine.operations.lookahead import withdraw

        row = self._row.pop(job_id, None)
        if row is None:
            return
        if job_id in self._running:
            self._free[self._running.pop(job_id)[1]] = True
            ended.append(row)
        else:
            del self._waiting[job_id]
            withdraw(self._simulation.state.address, row, now_ms)
            self._spare.append(row)

    def _enter(self, job: Mapping[str, Any]) -> None:
        """Add a job to the queue."""
        from hpctwin.engine.operations.lookahead import enter

        if not self._spare:
            self._grow()
        job_id, row = job["job_id"], self._spare.pop()
        self._row[job_id] = row
        self._waiting[job_id] = job
        walltime_ms = to_ms(job["walltime_s"])
        # Ties go by the order in which jobs were reported, whatever their ids look like.
        known = {
            "submit": to_ms(job["submit_s"]), "nodes": job["nodes"], "runtime": walltime_ms,
            "limit": walltime_ms, "expected": walltime_ms,
            "rank": self._rank.setdefault(job_id, len(self._rank)),
        }  # fmt: skip
        share = job["nodes"] / self.cluster.node_count
        fact = {
            "priority": job.get("priority", 0.0), "dominant": share, "load": share,
            "predicted_runtime": job["walltime_s"],
            **{name: self._code(name, job.get(name)) for name in _LABELS},
        }  # fmt: skip
        sim = self._simulation.state
        know_job(sim, row, known, fact)
        enter(sim.address, row)

    def _code(self, name: str, label: str | None) -> int:
        codes = self._codes[name]
        return -1 if label is None else codes.setdefault(label, len(codes))

    def _grow(self) -> None:
        """Double the number of rows for jobs."""
        simulation, before = self._simulation, self._simulation.state
        rows, size = np.array(sorted(self._row.values()), np.int64), before.jobs
        simulation.go_on_with(_of_nobody(2 * size), rows, rows, waits=False)
        simulation.know_facts()
        hand_over(before, simulation.state, rows)
        simulation.decided()
        self._spare = list(range(size, 2 * size))[::-1]

    def _starts(self, now_ms: int, ended: list[int]) -> list[Any]:
        """Return the jobs that start now."""
        sim = self._simulation.state
        end_only_when_told(sim, now_ms, ended)
        self._simulation.advance(now_ms / MS_PER_S)
        ids = list(self._waiting)
        phases = sim["state"]["phase"][[self._row[job_id] for job_id in ids]]
        started = [ids[place] for place in np.flatnonzero(phases == layout.RUNNING)]
        for job_id in started:
            job = self._waiting.pop(job_id)
            nodes = np.flatnonzero(self._free)[: job["nodes"]]
            self._free[nodes] = False
            self._running[job_id] = job, nodes
        return started


def _of_nobody(rows: int) -> Workload:
    """Return a workload of placeholder jobs, whose rows are filled later."""
    return Workload.build(submit_s=np.zeros(rows), runtime_s=np.ones(rows), nodes=np.ones(rows))
