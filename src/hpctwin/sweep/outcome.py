"""Result of a sweep: rows of points, means with intervals, paired differences.

It also checks in advance which metrics the simulations of a sweep have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from hpctwin.errors import HpctwinError, UnknownNameError
from hpctwin.metrics import mean_interval
from hpctwin.metrics.summary.running import RunningSummary
from hpctwin.model import State
from hpctwin.model.text import Shown
from hpctwin.simulation import Simulation
from hpctwin.sweep.bench import workload_of
from hpctwin.sweep.points import Plan, World
from hpctwin.sweep.settings import SweepSettings

__all__ = ["COUNTS", "NOT_FIGURES", "SweepResult", "check_figures", "with_all_counts"]

NOT_FIGURES = ("key", "point", "error", "seconds", "engine_s", "instants", "rejected_why")
"""Numeric columns of rows that are neither varied nor metrics."""

COUNTS = tuple(f"jobs_{state.label}" for state in State)
"""Counts of jobs by state; a row has only the states that occur."""


def check_figures(plan: Plan, names: Collection[str]) -> None:
    """Check that some simulation of a plan will have each of the given metrics.

    The metrics of jobs and of time are known. Others depend on the cluster, and on whether jobs
    share its nodes: one job is simulated in each kind of world, until all names are found.

    Raises:
        UnknownNameError: There is no such metric.
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
            unsure = True  # its rows will have the reason
    missing = [name for name in names if name not in known]
    if missing and not unsure:
        raise UnknownNameError("figure", missing[0], known)


def _kinds(plan: Plan) -> Iterator[tuple[World, str]]:
    """Yield a world of each cluster with jobs of each source, and one of its policies."""
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
    """Return rows with 0 for counts of jobs in states that did not occur."""
    counts: list[Any] = [
        pl.col(name).fill_null(0) if name in rows.columns else pl.lit(0).alias(name)
        for name in names
        if name in COUNTS
    ]
    return rows.with_columns(counts)


VARIED = ("workload", "window", "load", "runtimes", "widths", "cluster", "seed", "policy")


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult(Shown):
    """The rows of a sweep.

    Each row of ``table`` has these columns:

    - the varied values: ``workload``, ``window``, ``load``, ``runtimes``, ``widths``, ``cluster``,
      ``seed``, ``policy``, ``parameter_…``;
    - ``written``: the policy as the settings have it;
    - ``error``: the error of a failed point;
    - all metrics of the simulation (docs/metrics.md), ``engine_s`` and ``seconds``.

    Args:
        settings: Settings of the sweep.
        table: A row for each point.
        notes: Changes and omissions of readers, and assumptions, one sentence each.
    """

    settings: SweepSettings
    table: pl.DataFrame
    notes: tuple[str, ...] = ()

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
        facts = {"points": f"{len(self.table):,}", "failed": f"{len(self.failed):,}"}
        return f"{len(self.table):,} simulations", facts

    @property
    def failed(self) -> pl.DataFrame:
        """Rows of points that failed."""
        return self.table.filter(pl.col("error").is_not_null())

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics in the rows."""
        return [
            name
            for name, dtype in self.table.schema.items()
            if dtype.is_numeric()
            and name not in (*VARIED, *NOT_FIGURES)
            and not name.startswith("parameter_")
        ]

    def varied(self) -> list[str]:
        """Return the columns with several values, without replicates and the policy."""
        fixed = ("policy", *self.settings.replicates)
        names = [name for name in VARIED if name not in fixed]
        names += [name for name in self.table.columns if name.startswith("parameter_")]
        return [name for name in names if self.table[name].n_unique() > 1]

    def compare(self, metrics: Sequence[str] | None = None, *, level: float = 0.95) -> pl.DataFrame:
        """Return means over replicates, and paired differences to the baseline.

        Pairs have equal values of everything but the policy.

        Args:
            metrics: Names of metrics; by default those of the settings.
            level: Confidence level of the intervals.

        Returns:
            A row for each combination of varied values, each policy and metric: ``runs``, ``mean``,
            ``low``, ``high``; ``against``, ``pairs``, ``difference``, ``difference_low``,
            ``difference_high``, and ``fewer``, ``more``: the numbers of pairs with a lower and a
            higher value. Intervals are those of `hpctwin.metrics.mean_interval`, null if there are
            too few values.

        Raises:
            UnknownNameError: There is no such metric.
        """
        asked = list(self.settings.metrics if metrics is None else metrics)
        known = {*self.metrics, *COUNTS}
        for name in asked:
            if name not in known and len(self.failed) < len(self.table):
                raise UnknownNameError("figure", name, known)
        kept = [name for name in asked if name in (*self.table.columns, *COUNTS)]
        return pl.DataFrame(
            list(self._compared(kept, level)), infer_schema_length=None, orient="row"
        )

    def _compared(self, metrics: Sequence[str], level: float) -> Iterator[dict[str, Any]]:
        ran = with_all_counts(self.table.filter(pl.col("error").is_null()), metrics)
        varied = self.varied()
        baseline = self.settings.baseline or self._first()
        shared = [name for name in VARIED if name != "policy"] + self._of_worlds()
        base = ran.filter(pl.col("policy") == baseline).select(
            *shared, *(pl.col(name).alias(f"{name} before") for name in metrics)
        )
        paired = ran.join(base, on=shared, how="left", nulls_equal=True, maintain_order="left")
        for group, rows in paired.group_by([*varied, "policy", "written"], maintain_order=True):
            about = dict(zip([*varied, "policy", "written"], group, strict=True))
            for metric in metrics:
                values = rows[metric].drop_nulls()
                mean = mean_interval(values, level=level) if len(values) else (None, None, None)
                found = {
                    **about, "metric": metric, "runs": len(values),
                    "mean": mean[0], "low": mean[1], "high": mean[2],
                }  # fmt: skip
                change = (rows[metric] - rows[f"{metric} before"]).drop_nulls()
                own = about["policy"] == baseline or not len(change)
                between: tuple[Any, ...] = (None,) * 3
                if not own:
                    between = mean_interval(change, level=level)
                yield {
                    **found, "against": None if own else baseline, "pairs": 0 if own else len(change),
                    "difference": between[0], "difference_low": between[1], "difference_high": between[2],
                    "fewer": 0 if own else int((change < 0).sum()),
                    "more": 0 if own else int((change > 0).sum()),
                }  # fmt: skip

    def _first(self) -> str:
        return str(self.table["policy"][0]) if len(self.table) else ""

    def _of_worlds(self) -> list[str]:
        """Return the parameters of jobs and clusters, which a pair shares.

        The baseline has them too.
        """
        from hpctwin.sweep.settings import names_in

        texts = [str(v) for source in self.settings.workloads for v in source.options.values()]
        texts += [str(cluster) for cluster in self.settings.clusters]
        return [f"parameter_{name}" for text in texts for name in names_in(text)]
