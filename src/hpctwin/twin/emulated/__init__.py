"""An emulated cluster whose own scheduling is one of our policies; `python -m` runs it as a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.emulated.planner import Plan
from hpctwin.rms.records import JobRecord, NodeRecord, NodeReservation

__all__ = ["PolicyPlanner", "emulated_cluster"]


class PolicyPlanner:
    """Starts the jobs that a simulation of this moment starts; see `Planner`.

    Args:
        policy: what it starts them by.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(
        self,
        machine: Cluster,
        jobs: Sequence[JobRecord],
        nodes: Sequence[NodeRecord],
        reservations: Sequence[NodeReservation],
        now_s: float,
    ) -> Plan:
        """See `Planner`."""
        # Who only submits to the cluster does not wait for the simulator to be loaded.
        from hpctwin.simulation.lower import pool_of_nodes
        from hpctwin.simulation.sharing import taken_by
        from hpctwin.twin.present import present

        found = present(machine, jobs, nodes, reservations, now_s, self.policy)
        simulation = found.fork()
        simulation.advance(found.now_ms / MS_PER_S)
        begun = simulation.column("start")[found.waiting] == found.now_ms
        rows = found.waiting[begun].tolist()
        shares = simulation.workload.shares_nodes
        starts = [(found.ids[row], [] if shares else simulation.nodes_by_pool(row)) for row in rows]
        taken = {found.ids[row]: taken_by(simulation.state, row) for row in rows if shares}
        return Plan(starts, pool_of_nodes(found.base.cluster).tolist(), taken)


def emulated_cluster(
    machine: Cluster,
    workload: Workload | None = None,
    *,
    policy: str | Policy = "fcfs+easy",
    **about: Any,
) -> EmulatedCluster:
    """An emulated cluster that schedules by a policy.

    Args:
        machine: its nodes, partitions and resources.
        workload: jobs that are submitted at their times.
        policy: of its own scheduling, where nobody else starts jobs.
        about: further arguments of `EmulatedCluster`.

    Raises:
        UnknownNameError, PolicyError: there is no such policy.
        HpctwinError: as `EmulatedCluster`.
    """
    order = parse_policy(policy) if isinstance(policy, str) else policy
    return EmulatedCluster(machine, workload, plan=PolicyPlanner(order), **about)
