"""The simulation of a whole workload on nodes with power states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpctwin.model import Cluster, PowerCap, Workload, to_ms
from hpctwin.policies import PowerPolicy
from tests.reference.jobs import Order, fcfs, jobs_of
from tests.reference.limits import Limits
from tests.reference.machine import Machine
from tests.reference.nodes import COMPUTING, Span
from tests.reference.outside import capped, controlled, fitted
from tests.reference.power import PoweredSimulation
from tests.reference.powered_preemption import kind_of
from tests.reference.preemption import PreemptingSimulation, is_interrupted
from tests.reference.results import ReferenceJob
from tests.reference.share_tree import usage_of
from tests.reference.shared_power import SharedPoweredSimulation, divided
from tests.reference.simulate import results_of

__all__ = ["PoweredResult", "simulate_powered_reference"]


@dataclass(frozen=True)
class PoweredResult:
    """Jobs by row; the past of each node; energy of each node (by state) and of each job, J."""

    jobs: list[ReferenceJob]
    nodes: list[list[Span]]
    node_j: list[dict[tuple[str, str | int], float]]
    job_j: list[float]


def simulate_powered_reference(
    workload: Workload,
    platform: Cluster,
    power: PowerPolicy,
    *,
    cluster: Cluster | None = None,
    order: Order = fcfs,
    candidate_order: Order | None = None,
    backfill: str = "easy",
    reservations: int = 1,
    depth: int = 1000,
    patience_ms: int = 86_400_000,
    settings: dict[str, int] | None = None,
    placement: str = "first_fit",
    overrun: str = "terminate",
    expected_ms: list[int] | None = None,
    cap: PowerCap | None = None,
    control: Callable[[Any], Any] | None = None,
    commands: list[tuple[int, Callable[[PoweredSimulation], None]]] | None = None,
) -> PoweredResult:
    """Simulate to the end of the last job; arguments as of `simulate_reference` and the simulation."""
    base = cluster or Cluster.model_validate(
        {"nodes": [{"name": g.name, "count": g.count} for g in platform.nodes]}
    )
    raises = []
    if cap is not None:
        workload, base, raises = capped(workload, base, platform, power, cap)
    watch = None if control is None else controlled(control)
    if cap is not None and cap.lower_modes:
        watch = fitted(cap)
    machine = Machine(base)
    machine.raises = raises
    jobs = jobs_of(workload, machine, expected_ms)
    kind = kind_of(
        shares=workload.shares_nodes,
        interrupted=is_interrupted(workload, base),
        suspends=base.preemption is not None and base.preemption.suspends,
    )
    simulation = kind(
        machine=machine,
        limits=Limits(workload, machine, jobs),
        jobs=jobs,
        outages=[(o.node, to_ms(o.start), to_ms(o.duration)) for o in base.failures.outages],
        share=usage_of(workload, base, jobs),
        order=order,
        candidate_order=candidate_order or order,
        backfill=backfill,
        k=reservations,
        depth=depth,
        patience=patience_ms,
        settings=settings or {},
        placement=placement,
        terminate=overrun == "terminate",
        hold=False,
        observer=None,
        log=None,
        platform=platform,
        power=power,
        speeds=[group.speed for group in base.nodes],
        watch=watch,
        commands=sorted(commands or [], key=lambda one: one[0]),
    )
    if isinstance(simulation, (SharedPoweredSimulation, PreemptingSimulation)):
        simulation.prepare(workload)
    simulation.run()
    if isinstance(simulation, SharedPoweredSimulation):
        of_node, of_job = divided(simulation, base)
        past = [node.past for node in simulation.nodes]
        return PoweredResult(results_of(simulation.jobs), past, of_node, of_job)
    return PoweredResult(
        results_of(simulation.jobs),
        [node.past for node in simulation.nodes],
        [energies(node) for node in simulation.nodes],
        [
            sum(
                _overlap(span, start, end) * node.watts(span)
                for start, end, nodes in job.runs
                for node in (simulation.nodes[number] for number in nodes)
                for span in node.past
                if span.state == COMPUTING
            )
            for job in simulation.jobs
        ],
    )


def energies(node: Any) -> dict[tuple[str, str | int], float]:
    """Energy of a node by state and mode or depth, J."""
    found: dict[tuple[str, str | int], float] = {}
    for span in node.past:
        key = (span.state, span.which)
        found[key] = found.get(key, 0.0) + (span.end - span.start) / 1000 * node.watts(span)
    return found


def _overlap(span: Span, start: int, end: int) -> float:
    return max(0, min(span.end, end) - max(span.start, start)) / 1000
