"""An emulated cluster that schedules by one of hpctwin's policies.

``hpctwin rms emulate`` runs it as a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpctwin.engine.state.layout import ONLY_ACTIVE, SOONEST
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.emulated.agenda import Arrival
from hpctwin.rms.emulated.cluster import Plan
from hpctwin.rms.records.records import JobRecord, NodeRecord, NodeReservation
from hpctwin.twin.settings.config import check_live

__all__ = ["PolicyPlanner", "emulated_cluster"]


class PolicyPlanner:
    """Planner that starts jobs and switches nodes as a simulation of the present does.

    See `Planner`.

    Raises:
        ConfigError: A live cluster cannot run the policy, for example because its power policy
            calls a control function.
    """

    def __init__(self, policy: Policy) -> None:
        check_live(policy)
        self.policy = policy

    @property
    def soonest(self) -> bool:
        """See `Planner`."""
        return self.policy.power.power_pass.preferred == SOONEST

    @property
    def by_plan(self) -> bool:
        """See `Planner`."""
        return self.policy.power.power_pass.shown == ONLY_ACTIVE

    def __call__(
        self,
        machine: Cluster,
        jobs: Sequence[JobRecord],
        nodes: Sequence[NodeRecord],
        reservations: Sequence[NodeReservation],
        now_s: float,
    ) -> Plan:
        """See `Planner`."""
        # Imported late, so that a client that only submits jobs does not load the simulator.
        from hpctwin.simulation.lowering.cluster import pool_of_nodes
        from hpctwin.simulation.lowering.shared_nodes import taken_by
        from hpctwin.simulation.running.incremental import looks_again_ms, nodes_of_job
        from hpctwin.twin.what_if.conversion import switched
        from hpctwin.twin.what_if.present import present

        found = present(machine, jobs, nodes, reservations, now_s, self.policy)
        simulation = found.fork()
        rows = found.given_nodes(simulation).tolist()
        ids = [found.ids[row] for row in rows]
        if simulation.workload.shares_nodes:
            shares = {found.ids[row]: taken_by(simulation.state, row) for row in rows}
            return Plan([(i, ()) for i in ids], (), shares)
        if not simulation.cluster.has_power:
            starts = [(found.ids[row], simulation.nodes_by_pool(row)) for row in rows]
            return Plan(starts, pool_of_nodes(found.base.cluster).tolist())
        taken = {
            found.ids[row]: [(node, (1,)) for node in nodes_of_job(simulation.state, row)]
            for row in rows
        }
        again_ms = looks_again_ms(simulation)
        next_call_s = None if again_ms is None else again_ms / MS_PER_S
        return Plan(
            [(i, ()) for i in ids], (), taken, switched(found.base, simulation), next_call_s
        )


def emulated_cluster(
    machine: Cluster,
    workload: Workload | Iterator[Arrival] | None = None,
    *,
    policy: str | Policy = "fcfs+easy",
    **about: Any,
) -> EmulatedCluster:
    """Return an emulated cluster that schedules by a policy.

    Args:
        machine: Nodes, partitions and resources of the cluster.
        workload: Jobs, which are submitted at their submission times; see `EmulatedCluster`.
        policy: Policy of the cluster's own scheduler, used unless a client starts the jobs.
        about: Further arguments of `EmulatedCluster`.

    Raises:
        UnknownNameError, PolicyError: There is no such policy.
        HpctwinError: See `EmulatedCluster`.
    """
    order = parse_policy(policy) if isinstance(policy, str) else policy
    return EmulatedCluster(machine, workload, plan=PolicyPlanner(order), **about)
