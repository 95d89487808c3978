"""The engine asked as the plain reference is asked, and answering in its words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import polars as pl

from hpctwin import Cluster, Simulation, Workload
from hpctwin.model import State
from hpctwin.policies import Ordering, make_policy, ordering
from tests.reference import Order, ReferenceJob, fcfs

__all__ = ["run_engine"]


@cache
def compiled(order: Order) -> Ordering:
    """An ordering of the reference as one of the engine."""
    return ordering(order, name=order.__name__)


def run_engine(
    workload: Workload,
    cluster: Cluster,
    *,
    order: Order = fcfs,
    candidate_order: Order | None = None,
    backfill: str = "easy",
    reservations: int = 1,
    placement: str = "first_fit",
    expected_ms: list[int] | None = None,
    until_ms: int | None = None,
    outages: Iterable[tuple[int, int, int]] = (),
    **options: Any,
) -> list[ReferenceJob]:
    """As `simulate_reference`."""
    if outages:
        content = [
            {"node": node, "start": start / 1000, "duration": duration / 1000}
            for node, start, duration in outages
        ]
        cluster = Cluster.model_validate(
            {**cluster.model_dump(exclude_unset=True), "failures": {"outages": content}}
        )
    policy = make_policy(
        compiled(order),
        backfill,
        reservations=reservations,
        candidates=None if candidate_order is None else compiled(candidate_order),
        placement=placement.replace("_", "-"),
    )
    simulation = Simulation(
        workload,
        cluster,
        policy=policy,
        track_nodes=True,
        expected_s=None if expected_ms is None else [one / 1000 for one in expected_ms],
        **options,
    )
    simulation.advance(None if until_ms is None else until_ms / 1000)
    result = simulation.result()
    if workload.shares_nodes:
        where = result.placements.select("job_id", "start_s", "node", pl.lit(1))
    else:
        assert result.node_map is not None
        where = result.node_map.select("job_id", "start_s", "first_node", "count")
    nodes: dict[tuple[int, float], list[int]] = {}
    for job, start, first, count in where.rows():
        nodes.setdefault((job, start), []).extend(range(first, first + count))
    rows = {row["job_id"]: row for row in result.jobs.iter_rows(named=True)}
    return [
        ReferenceJob(
            row=number,
            state=State[row["state"].upper()],
            eligible_ms=ms(row["eligible_s"]),
            start_ms=ms(row["start_s"]),
            end_ms=ms(row["end_s"]),
            requeues=row["requeues"],
            nodes=tuple(sorted(nodes.get((row["job_id"], row["start_s"]), []))),
            preemptions=row.get("preemptions", 0),
            in_vain_ms=ms(row.get("preempted_s", 0.0)),
        )
        for number, row in enumerate(rows[job] for job in workload.job_id.tolist())
    ]


def ms(seconds: float | None) -> int:
    return -1 if seconds is None else round(1000 * seconds)
