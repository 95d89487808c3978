"""Result of a sweep: rows of points, means with intervals, paired differences.

It also checks in advance which metrics the simulations of a sweep have. The folder of a sweep holds
the rows in complete parts, and the progress.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from hpctwin.errors import ConfigError, HpctwinError, OutputError, UnknownNameError
from hpctwin.guesses import GuessedType
from hpctwin.metrics import mean_interval, paired_change
from hpctwin.metrics.summary import RunningSummary
from hpctwin.model import State
from hpctwin.model.arguments import check_arguments
from hpctwin.model.columns import as_pandas
from hpctwin.model.files import FileLock, cause, check_folder, write_atomically
from hpctwin.model.text import Shown
from hpctwin.simulation import Simulation
from hpctwin.sweep.bench import Row, workload_of
from hpctwin.sweep.points import Plan, World
from hpctwin.sweep.settings import SweepSettings

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COUNTS",
    "NOT_FIGURES",
    "Store",
    "SweepResult",
    "check_figures",
    "read_rows",
    "rejection_notes",
    "table_of",
    "with_all_counts",
]

_FLUSH_S, _FLUSH_ROWS = 5.0, 5000
_TEXTS = (
    "key", "workload", "window", "walltimes", "cluster", "policy", "error", "rejection_reasons",
)  # fmt: skip


class Store:
    """Store of rows; a context manager.

    Args:
        folder: Folder, created if needed; an interrupted sweep in it is continued.

    Raises:
        OutputError: It cannot be written.
        ConfigError: Another sweep is writing there.
    """

    def __init__(self, folder: Path) -> None:
        check_folder(folder)
        self.folder = folder
        try:
            (folder / "points").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(folder, cause(error)) from error
        self._lock = FileLock(folder / ".lock")
        if (holder := self._lock.take()) is not None:
            raise ConfigError(f"{folder}: another sweep writes to this folder: {holder}")
        parts = sorted(folder.glob("points/part-*.parquet"))
        self._next = int(parts[-1].stem.partition("-")[2]) + 1 if parts else 0
        self._rows: list[Row] = []
        self._flushed = time.monotonic()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def done(self) -> set[str]:
        """Return the keys of finished points, without failed ones."""
        found: set[str] = set()
        for path in sorted(self.folder.glob("points/part-*.parquet")):
            part = pl.read_parquet(path, columns=["key", "error"], glob=False)
            found.update(part.filter(pl.col("error").is_null())["key"])
        return found

    def add(self, rows: Iterable[Row]) -> bool:
        """Add rows; return whether all rows so far were written now."""
        self._rows += rows
        due = len(self._rows) >= _FLUSH_ROWS or time.monotonic() - self._flushed >= _FLUSH_S
        if due:
            self.flush()
        return due

    def flush(self) -> None:
        """Write the rows that are not written yet.

        Raises:
            OutputError: They cannot be written.
        """
        if self._rows:
            path = self.folder / "points" / f"part-{self._next:06}.parquet"
            with write_atomically(path) as file:
                table_of(self._rows).write_parquet(file, compression="zstd", compression_level=1)
            self._next += 1
            self._rows = []
        self._flushed = time.monotonic()

    def tell(self, **state: Any) -> None:
        """Write the progress for other readers."""
        with write_atomically(self.folder / "sweep.json") as file:
            file.write(json.dumps(state, indent=2, default=str).encode())


def table_of(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a table; text columns have type text even if all values are null."""
    made = pl.DataFrame(list(rows), infer_schema_length=None)
    return made.with_columns(
        pl.col(name).cast(pl.String) for name in _TEXTS if name in made.columns
    )


def rejection_notes(table: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence for each workload and cluster that rejected jobs in any point."""
    if "jobs_rejected" not in table.columns:  # no point succeeded
        return
    for (jobs, cluster), rows in table.group_by("workload", "cluster", maintain_order=True):
        numbers: list[int] = rows["jobs_rejected"].drop_nulls().to_list()
        if most := max(numbers, default=0):
            row = rows.filter(jobs_rejected=most).row(0, named=True)
            load = "; the load counts them too" if row.get("load") is not None else ""
            upto = "" if min(numbers) == most else "up to "
            yield (
                f"{jobs}: {upto}{most:,} of {row['jobs']:,} jobs ({most / row['jobs']:.0%}) were "
                f"rejected, because they can never run on cluster {cluster!r}: "
                f"{row['rejection_reasons']}{load}"
            )


def read_rows(folder: Path, keys: Iterable[str]) -> pl.DataFrame:
    """Return the rows of points in the given order; of several, the last written."""
    wanted = pl.DataFrame({"key": list(keys)}, schema={"key": pl.String})
    wanted = wanted.with_row_index("place")
    parts = [
        pl.read_parquet(path, glob=False).join(wanted.select("key"), on="key", how="semi")
        for path in sorted(folder.glob("points/part-*.parquet"))
    ]
    parts = [one for one in parts if len(one)]
    if not parts:
        return pl.DataFrame(schema={"key": pl.String, "error": pl.String})
    found = pl.concat(parts, how="diagonal_relaxed").unique("key", keep="last")
    # The number of a point is its index among these keys; it may have had another one.
    found = found.join(wanted, on="key").sort("place")
    return found.with_columns(point=pl.col("place").cast(pl.Int64)).drop("place")


NOT_FIGURES = (
    "key",
    "point",
    "error",
    "seconds",
    "engine_s",
    "instants",
    "rejection_reasons",
    "tau_s",
)
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
        raise UnknownNameError("metric", missing[0], known)


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


VARIED = (
    "workload", "window", "load", "runtimes", "widths", "walltimes", "shift_s", "cluster",
    "replicate", "seed", "policy",
)  # fmt: skip


_UNPAIRED: dict[str, Any] = {
    **dict.fromkeys(("difference", "difference_low", "difference_high")),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high")),
    "fewer": 0, "more": 0,
}  # fmt: skip
"""Columns of a paired change, for rows that have none."""


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult(Shown, metaclass=GuessedType):
    """The rows of a sweep.

    Each row of ``table`` has these columns:

    - the varied values: ``workload``, ``window``, ``load``, ``runtimes``, ``widths``,
      ``walltimes``, ``shift_s``, ``cluster``, ``replicate``, ``seed``, ``policy``,
      ``parameter_…``;
    - ``written``: the policy as the settings have it;
    - ``error``: the error of a failed point;
    - all metrics of the simulation (docs/reference/metrics.md), ``engine_s`` and ``seconds``.

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

    def to_pandas(self) -> pd.DataFrame:
        """Return ``table`` as a table of pandas.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.table)

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

    @check_arguments("level")
    def compare(self, metrics: Sequence[str] | None = None, *, level: float = 0.95) -> pl.DataFrame:
        """Return means over replicates, and paired differences to the baseline.

        Pairs have equal values of everything but the policy.

        Args:
            metrics: Names of metrics; by default those of the settings.
            level: Confidence level of the intervals.

        Returns:
            A row for each combination of varied values, each policy and metric: ``runs``, ``mean``,
            ``low``, ``high``; ``against``, ``pairs``, ``difference``, ``difference_low``,
            ``difference_high``; ``ratio``, ``ratio_low``, ``ratio_high``; and ``fewer``, ``more``:
            the numbers of pairs with a lower and a higher value. A ratio is the geometric mean of
            the pairs' ratios, null if a value is not above 0 (`hpctwin.metrics.paired_change`).
            Intervals are those of `hpctwin.metrics.mean_interval`, null if there are too few
            values.

        Raises:
            UnknownNameError: There is no such metric.
        """
        asked = list(self.settings.metrics if metrics is None else metrics)
        known = {*self.metrics, *COUNTS}
        for name in asked:
            if name not in known and len(self.failed) < len(self.table):
                raise UnknownNameError("metric", name, known)
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
                pairs = rows.select(f"{metric} before", metric).drop_nulls()
                if about["policy"] == baseline or not len(pairs):
                    yield {**found, "against": None, "pairs": 0, **_UNPAIRED}
                    continue
                change = paired_change(*pairs.get_columns(), level=level)
                told = *change.difference, *change.ratio, change.lower, change.higher
                yield {
                    **found, "against": baseline, "pairs": len(pairs),
                    **dict(zip(_UNPAIRED, told, strict=True)),
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
