"""Which figures the simulations of a sweep have: told before they run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import polars as pl

from hpctwin.errors import HpctwinError, UnknownNameError
from hpctwin.metrics.summary.running import RunningSummary
from hpctwin.model import State
from hpctwin.simulation import Simulation
from hpctwin.sweep.bench import workload_of
from hpctwin.sweep.points import Plan, World

__all__ = ["COUNTS", "NOT_FIGURES", "check_figures", "with_all_counts"]

NOT_FIGURES = ("key", "point", "error", "seconds", "engine_s", "instants", "rejected_why")
"""What rows tell besides what was varied and figures."""

COUNTS = tuple(f"jobs_{state.label}" for state in State)
"""A row has those of states that occur."""


def check_figures(plan: Plan, names: Collection[str]) -> None:
    """Find out whether some simulation of a plan will have each of some figures.

    Those of jobs and of time are known. What else there is depends on the machine, and on whether jobs share
    its nodes: one job is simulated in each kind of world, until all names are found.

    Raises:
        UnknownNameError: there is no such figure.
    """
    known = {*RunningSummary(1, exact=True).figures(), *COUNTS}
    kinds = _kinds(plan)
    unsure = False
    while not known.issuperset(names):
        kind = next(kinds, None)
        if kind is None:
            break
        try:
            known |= _figures(plan, *kind)
        except HpctwinError:
            unsure = True  # its rows will tell why
    missing = [name for name in names if name not in known]
    if missing and not unsure:
        raise UnknownNameError("figure", missing[0], known)


def _kinds(plan: Plan) -> Iterator[tuple[World, str]]:
    """A world of each machine with jobs of each source, and a policy of theirs."""
    seen = set()
    for worlds, policies in plan.parts:
        for world in worlds:
            kind = (world.cluster, world.trace, world.source.label)
            if kind not in seen:
                seen.add(kind)
                yield world, policies[0][0]


def _figures(plan: Plan, world: World, policy: str) -> set[str]:
    jobs, cluster = workload_of(world, plan.inputs)
    summary = (
        Simulation(jobs[:1], cluster, policy, seed=world.seed, **plan.inputs.run).run().summary()
    )
    return {
        name
        for name, value in summary.items()
        if name not in NOT_FIGURES and not isinstance(value, str)
    }


def with_all_counts(rows: pl.DataFrame, names: Collection[str]) -> pl.DataFrame:
    """Rows with 0 for counts of jobs in states that did not occur."""
    counts: list[Any] = [
        pl.col(name).fill_null(0) if name in rows.columns else pl.lit(0).alias(name)
        for name in names
        if name in COUNTS
    ]
    return rows.with_columns(counts)
