"""The simulation of a whole workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hpctwin.model import Cluster, Workload, to_ms
from hpctwin.model.requests.chunks import CHUNKS
from tests.reference.blocks import ON_WHOLE_NODES
from tests.reference.events import Observer
from tests.reference.jobs import Job, Order, Place, fcfs, jobs_of
from tests.reference.limits import Limits
from tests.reference.machine import Machine
from tests.reference.passes import Simulation
from tests.reference.preemption import (
    PreemptingSimulation,
    SharedPreemptingSimulation,
    is_interrupted,
)
from tests.reference.results import Pass, ReferenceJob
from tests.reference.share_tree import usage_of
from tests.reference.shared import SharedSimulation
from tests.reference.shared_places import ON_SHARED_ONLY, ORDERS
from tests.reference.slurm_by_node import ByNode
from tests.reference.suspension import SharedSuspendingSimulation, SuspendingSimulation
from tests.reference.user_state import UserState


def simulate_reference(
    workload: Workload,
    cluster: Cluster,
    *,
    order: Order = fcfs,
    backfill: str = "easy",
    reservations: int = 1,
    candidate_order: Order | None = None,
    placement: str = "first_fit",
    place: Place | None = None,
    overrun: str = "terminate",
    on_dependency_failure: str = "cancel",
    expected_ms: Sequence[int] | None = None,
    depth: int = 1000,
    patience_ms: int = 86_400_000,
    settings: dict[str, int] | None = None,
    until_ms: int | None = None,
    outages: Iterable[tuple[int, int, int]] | None = None,
    observer: Observer | None = None,
    log: list[Pass] | None = None,
    state: UserState | None = None,
    seed: int = 0,
) -> list[ReferenceJob]:
    """Simulate, and say for each row of the workload what became of it.

    Args:
        workload: the jobs.
        cluster: the system.
        order: smallest first; gets the time in seconds.
        backfill: ``none``, ``first-fit``, ``easy``, ``conservative``, ``pack``, ``slurm``, ``pbs`` or
            ``pushdown``.
        reservations: the k of EASY.
        candidate_order: for EASY's candidates, if not the same.
        placement: ``first_fit``, ``best_fit`` or ``spread``. Which nodes of a pool: always the
            lowest free numbers, but for those of `ON_WHOLE_NODES`. With ``slurm`` also ``contiguous``.
            With those of `ON_SHARED_ONLY`, whole nodes are had as by exclusive jobs on shared ones.
        place: scores free nodes in place of that, smallest first.
        overrun: ``terminate`` or ``continue``.
        on_dependency_failure: ``cancel`` or ``hold``.
        expected_ms: predicted runtimes by row; the walltimes if left out.
        depth, patience_ms: of ``pack``.
        settings: of ``slurm``, ``pbs`` and ``pushdown``, times in ms; 0 for any.
        until_ms: events after this time do not happen any more.
        outages: (node, start, duration) in ms; those of the cluster if left out.
        observer: called after each pass with the time and the reservations made in it as
            (row, start). With conservative backfilling these are all that were newly made or
            made again, also for jobs that then started at once.
        log: passes are appended to it.
        state: of the ordering; starts and ends are appended to it.
        seed: of the placement ``random``, on shared nodes.
    """
    _one_of(
        "backfill",
        backfill,
        ("none", "first-fit", "easy", "conservative", "pack", "slurm", "pbs", "pushdown"),
    )
    if placement in ON_SHARED_ONLY and not workload.shares_nodes:
        workload = workload.replace(chunks=dict.fromkeys(CHUNKS, np.zeros(len(workload))))
    of_shared = (*ORDERS, "fragmentation") if workload.shares_nodes else ()
    if backfill == "slurm" and not workload.resources:
        of_shared = (*of_shared, "contiguous")
    _one_of(
        "placement", placement, ("first_fit", "best_fit", "spread", *ON_WHOLE_NODES, *of_shared)
    )
    _one_of("overrun", overrun, ("terminate", "continue"))
    _one_of("on_dependency_failure", on_dependency_failure, ("cancel", "hold"))
    if outages is None:
        if cluster.failures.mtbf is not None:
            raise ValueError("the reference draws no failures: give the outages")
        outages = [(o.node, to_ms(o.start), to_ms(o.duration)) for o in cluster.failures.outages]
    machine = Machine(cluster)
    jobs = jobs_of(workload, machine, expected_ms)
    kind = SharedSimulation if workload.shares_nodes else Simulation
    if placement == "contiguous" and not workload.shares_nodes:
        kind = ByNode
    if is_interrupted(workload, cluster):
        kind = SharedPreemptingSimulation if workload.shares_nodes else PreemptingSimulation
        if cluster.preemption is not None and cluster.preemption.suspends:
            kind = SharedSuspendingSimulation if workload.shares_nodes else SuspendingSimulation
    simulation = kind(
        machine=machine,
        limits=Limits(workload, machine, jobs),
        jobs=jobs,
        outages=list(outages),
        share=usage_of(workload, cluster, jobs),
        order=order,
        candidate_order=candidate_order or order,
        backfill=backfill,
        k=reservations,
        depth=depth,
        patience=patience_ms,
        settings=settings or {},
        placement=placement,
        place=place,
        terminate=overrun == "terminate",
        hold=on_dependency_failure == "hold",
        observer=observer,
        log=log,
    )
    if isinstance(simulation, (SharedSimulation, PreemptingSimulation)):
        simulation.prepare(workload)
    if isinstance(simulation, SharedSimulation):
        simulation.seed = seed
    if state is not None:
        simulation.limits.log = state
    simulation.run(until_ms)
    return results_of(simulation.jobs)


def results_of(jobs: list[Job]) -> list[ReferenceJob]:
    """What became of each row."""
    return [
        ReferenceJob(
            row=job.row,
            state=job.state,
            eligible_ms=_or_none(job.eligible),
            start_ms=_or_none(job.start),
            end_ms=_or_none(job.ended),
            requeues=job.requeues,
            nodes=tuple(job.nodes),
            gpus=tuple(job.gpus),
            preemptions=job.preemptions,
            in_vain_ms=job.in_vain,
            pushed=job.pushed,
            risen=job.risen,
        )
        for job in jobs
    ]


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{what} {value!r} is none of {', '.join(known)}")


def _or_none(time: int | None) -> int:
    return -1 if time is None else time
