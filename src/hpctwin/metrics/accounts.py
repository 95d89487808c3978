"""Accounts: use, energy and waits of users."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics.jobs import weighted_values, with_job_metrics
from hpctwin.metrics.registry import TAU_S, Mean, main_statistics
from hpctwin.model import write_atomically
from hpctwin.model.arguments import check_arguments
from hpctwin.model.files import other_format

__all__ = [
    "Accounts",
    "AccountsBy",
    "collect_accounts",
    "read_accounts",
]

AccountsBy = Literal["account", "user"]
"""Owners of accounts."""

UNKNOWN = "unknown"

FORMAT = 1
"""Format number of the files that `Accounts.write` writes."""

_COUNTS = ("jobs", "ended")
MEANS = {
    name: statistic
    for name, statistic in main_statistics(
        "mean_turnaround_s", "area_weighted_response_time_s"
    ).items()
    if isinstance(statistic, Mean)
}
"""Means over jobs; a file holds the sums of values and of weights for each."""

_SUMS = (
    "node_s", "core_s", "gpu_s", "energy_j", "energy_run_js", "energy_run2_js2", "response3", "response4",
    *(f"{name}_{part}" for name in MEANS for part in ("sum", "weight")),
)  # fmt: skip
_USED = _SUMS[:4]
"""Sums that include cut-off attempts of jobs that were canceled before a restart."""
_SHOWN = (
    "jobs", "ended", "node_hours", "core_hours", "gpu_hours", "utilization", "energy_j", "mean_node_w",
    "edp_js", "ed2p_js2", *MEANS, "priority_weighted_specific_response_time_s", "fugaku_points",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Accounts:
    """Use of users or accounts, as sums, so that runs can be added up.

    The columns of ``sums``, of which all but the first two are over jobs that started and ended:

    - ``name``; ``jobs``: number of all jobs;
    - ``ended``: number of jobs that started and ended;
    - ``node_s``: nodes · s held, lost attempts included;
    - ``core_s``, ``gpu_s``, ``energy_j``: null if not known;
    - ``energy_run_js``: Σ energy · run; ``energy_run2_js2``: Σ energy · run²;
    - ``response3``: Σ nodes · (turnaround³ − wait³); ``response4``: the same with ⁴;
    - ``<name>_sum`` and ``<name>_weight`` for each mean.

    Args:
        by: Owners of the accounts.
        there_node_s: All node-seconds of the cluster.
        sums: A row for each account.
    """

    by: AccountsBy
    there_node_s: float
    sums: pl.DataFrame

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row for each account, by descending node-hours; see docs/how-to/accounts-and-incentives.md.

        Values that are not known are null.
        """
        return self._derived(self.sums).sort("node_hours", "name", descending=[True, False])

    @cached_property
    def total(self) -> dict[str, float | None]:
        """The same columns for all accounts together."""
        return self._derived(self._together("all")).drop("name").row(0, named=True)

    @cached_property
    def mean(self) -> dict[str, float | None]:
        """The same columns for a mean account: all sums divided by the number of accounts."""
        size = max(1, len(self.sums))
        mean = self._together("mean").with_columns(pl.col(*_COUNTS, *_SUMS) / size)
        return self._derived(mean).drop("name").row(0, named=True)

    def _together(self, name: str) -> pl.DataFrame:
        # A value that is not known for one account is not known for all.
        return self.sums.select(
            pl.lit(name).alias("name"), *(_sum_known(column) for column in (*_COUNTS, *_SUMS))
        )

    def _derived(self, sums: pl.DataFrame) -> pl.DataFrame:
        energy, mean_j = pl.col("energy_j"), self._mean_j
        points = (mean_j - energy) / self._mean_w if mean_j is not None and self._mean_w else None
        return sums.with_columns(
            node_hours=pl.col("node_s") / 3600,
            core_hours=pl.col("core_s") / 3600,
            gpu_hours=pl.col("gpu_s") / 3600,
            utilization=_ratio(pl.col("node_s"), pl.lit(self.there_node_s)),
            mean_node_w=_ratio(energy, pl.col("node_s")),
            edp_js=pl.col("energy_run_js"),
            ed2p_js2=pl.col("energy_run2_js2"),
            **{name: _ratio(pl.col(f"{name}_sum"), pl.col(f"{name}_weight")) for name in MEANS},
            priority_weighted_specific_response_time_s=_ratio(
                0.75 * pl.col("response4"), pl.col("response3")
            ),
            fugaku_points=pl.lit(None, pl.Float64) if points is None else points,
        ).select("name", *_SHOWN)

    @cached_property
    def _mean_j(self) -> float | None:
        """Energy of a mean account."""
        energy = self.sums["energy_j"]
        return None if energy.null_count() or not len(energy) else float(energy.sum()) / len(energy)

    @cached_property
    def _mean_w(self) -> float | None:
        """Mean power draw of a held node."""
        node_s = float(self.sums["node_s"].sum())
        return (
            None
            if self._mean_j is None or not node_s
            else float(self.sums["energy_j"].sum()) / node_s
        )

    def merged(self, *others: Accounts) -> Accounts:
        """Return the sum of these accounts and others.

        Raises:
            ConfigError: Some are of users and some of accounts.
        """
        for other in others:
            if other.by != self.by:
                raise ConfigError(f"accounts by {self.by} and by {other.by} cannot be added up")
        both = pl.concat([self.sums, *(other.sums for other in others)])
        sums = both.group_by("name").agg(_sum_known(c) for c in (*_COUNTS, *_SUMS)).sort("name")
        there = self.there_node_s + sum(other.there_node_s for other in others)
        return Accounts(self.by, there, sums)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the accounts as JSON or Parquet, by the suffix of the path.

        Raises:
            ConfigError: The suffix is another one, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix not in (".json", ".parquet"):
            raise ConfigError(f"{path}: accounts are stored as .json or .parquet")
        with write_atomically(path) as file:
            if path.suffix == ".parquet":
                about = (
                    pl.lit(FORMAT).alias("format"),
                    pl.lit(self.by).alias("by"),
                    pl.lit(self.there_node_s).alias("there_node_s"),
                )
                self.sums.with_columns(*about).write_parquet(file)
            else:
                document = {
                    "format": FORMAT, "by": self.by, "there_node_s": self.there_node_s,
                    "accounts": self.sums.to_dicts(),
                }  # fmt: skip
                file.write(json.dumps(document, indent=1).encode())


@check_arguments()
def read_accounts(path: str | os.PathLike[str]) -> Accounts:
    """Read a file of `Accounts.write`.

    Raises:
        ConfigError: The file does not exist, or does not hold accounts.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; create it with hpctwin simulate --accounts {path}"
        )
    try:
        if path.suffix == ".parquet":
            rows = pl.read_parquet(path, glob=False)
            by, there = rows["by"][0], rows["there_node_s"][0]
            if rows["format"][0] != FORMAT:
                raise ConfigError(other_format(path, rows["format"][0], FORMAT))
        else:
            document = json.loads(path.read_bytes())
            rows = pl.DataFrame(document["accounts"], infer_schema_length=None)
            by, there = document["by"], document["there_node_s"]
            if document["format"] != FORMAT:
                raise ConfigError(other_format(path, document["format"], FORMAT))
        sums = rows.select(
            pl.col("name").cast(pl.String),
            *(pl.col(name).cast(pl.Int64) for name in _COUNTS),
            *(pl.col(name).cast(pl.Float64) for name in _SUMS),
        )
        there = float(there)
    except ConfigError:
        raise
    except (
        OSError, ValueError, LookupError, TypeError, pl.exceptions.PolarsError,
    ) as error:  # fmt: skip
        raise ConfigError(
            f"{path} is not an accounts file of hpctwin simulate --accounts: {error}"
        ) from error
    if by not in get_args(AccountsBy):
        raise ConfigError(f"{path}: accounts are by {by!r}; it must be account or user")
    if sums["name"].null_count() or sums["name"].n_unique() != len(sums):
        raise ConfigError(f"{path}: each account must have a name and occur only once")
    return Accounts(by, there, sums)


@check_arguments()
def collect_accounts(
    jobs: pl.DataFrame,
    by: AccountsBy = "account",
    *,
    lost: pl.DataFrame | None = None,
    there_node_s: float = 0.0,
    core_s: npt.NDArray[np.float64] | None = None,
    gpu_s: npt.NDArray[np.float64] | None = None,
    tau_s: float = TAU_S,
) -> Accounts:
    """Sum up the use of each user or account.

    Args:
        jobs: Table of jobs of a result; with ``energy_j`` if nodes have a power model.
        by: Owners of the accounts; jobs without one count for ``unknown``.
        lost: Attempts that node failures cut off: their node-seconds count.
        there_node_s: Node-seconds of the cluster.
        core_s: Core-seconds that each job held, lost attempts included [jobs]; None if not known.
        gpu_s: GPU-seconds that each job held, lost attempts included [jobs]; None if not known.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Raises:
        UnknownNameError: ``by`` is neither account nor user.
    """
    if by not in get_args(AccountsBy):
        raise UnknownNameError("accounts by", by, get_args(AccountsBy))
    unknown = np.full(len(jobs), np.nan)
    rows = with_job_metrics(jobs, tau_s).with_columns(
        name=pl.col(by).cast(pl.String).fill_null(UNKNOWN),
        core_s=pl.Series(unknown if core_s is None else core_s, nan_to_null=True),
        gpu_s=pl.Series(unknown if gpu_s is None else gpu_s, nan_to_null=True),
        lost_s=_lost_node_s(jobs, lost),
    )
    if "energy_j" not in rows.columns:
        rows = rows.with_columns(energy_j=pl.lit(None, pl.Float64))
    nodes, run, wait, turnaround = (
        pl.col(name).cast(pl.Float64) for name in ("nodes", "run_s", "wait_s", "turnaround_s")
    )
    energy = pl.col("energy_j").cast(pl.Float64)
    ended = run.is_not_null() & turnaround.is_not_null()
    measured = rows.select(
        "name",
        ended=ended,
        used=ended | (pl.col("lost_s") > 0),
        node_s=nodes * run.fill_null(0.0) + pl.col("lost_s"),
        core_s="core_s",
        gpu_s="gpu_s",
        energy_j=energy,
        energy_run_js=energy * run,
        energy_run2_js2=energy * run**2,
        response3=nodes * (turnaround**3 - wait**3),
        response4=nodes * (turnaround**4 - wait**4),
        **{
            f"{name}_{part}": values.fill_null(0.0)
            for name, mean in MEANS.items()
            for part, values in zip(("sum", "weight"), weighted_values(mean), strict=True)
        },
    )
    sums = (
        measured.group_by("name")
        .agg(
            pl.len().cast(pl.Int64).alias("jobs"),
            pl.col("ended").sum().cast(pl.Int64),
            *(
                _sum_known(pl.col(name).filter(pl.col("used" if name in _USED else "ended")), name)
                for name in _SUMS
            ),
        )
        .sort("name")
    )
    return Accounts(by, there_node_s, sums)


def _lost_node_s(jobs: pl.DataFrame, lost: pl.DataFrame | None) -> pl.Series:
    """Return the node-seconds of each job's lost attempts [jobs]."""
    if lost is None or not len(lost):
        return pl.Series(np.zeros(len(jobs)))
    area = lost.group_by("job_id").agg(
        ((pl.col("end_s") - pl.col("start_s")).cast(pl.Float64) * pl.col("nodes"))
        .sum()
        .alias("area")
    )
    joined = jobs.select("job_id").join(area, on="job_id", how="left", maintain_order="left")
    return joined["area"].fill_null(0.0)


def _sum_known(column: str | pl.Expr, name: str = "") -> pl.Expr:
    """Return the sum; null if any value is not known."""
    values = pl.col(column) if isinstance(column, str) else column
    return pl.when(values.null_count() == 0).then(values.sum()).alias(name or str(column))


def _ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)
