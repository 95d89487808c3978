"""Trial of incentives: accounts are collected and redeemed; and tricks to cheat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics import Accounts
from hpctwin.metrics.accounts import AccountsBy
from hpctwin.model import Cluster, Workload
from hpctwin.model.text import count_text
from hpctwin.simulation import Result, replay, simulate
from hpctwin.simulation.running.simulation import RunOptions, spelled_out
from hpctwin.simulation.running.window import from_its_first_job
from hpctwin_papers.s_raps.incentive_rules import rewarded

REPLAY = "replay"
PLAIN = "plain"


@dataclass(frozen=True, eq=False)
class Redeemed:
    """Results of incentives.

    Args:
        accounts: Collected accounts.
        results: Results of the redeeming phase, by incentive; ``plain`` is without one.
    """

    accounts: Accounts
    results: dict[str, Result]

    def gains(self) -> pl.DataFrame:
        """Return a row for each account of the redeeming phase, by decreasing node-hours.

        Columns are ``name``, ``jobs``, ``node_hours``; ``collected_node_w``, its nodes' mean power
        in the collecting phase; ``plain_wait_s``, its mean wait without incentives; and
        ``<incentive>_wait_s`` for each incentive.
        """
        tables = {
            name: result.accounts(self.accounts.by).table for name, result in self.results.items()
        }
        rows = tables[PLAIN].select("name", "jobs", "node_hours")
        earlier = self.accounts.table.select("name", collected_node_w="mean_node_w")
        rows = rows.join(earlier, on="name", how="left", maintain_order="left")
        for name, table in tables.items():
            waits = table.select("name", pl.col("mean_wait_s").alias(f"{name}_wait_s"))
            rows = rows.join(waits, on="name", how="left", maintain_order="left")
        return rows


@spelled_out(RunOptions)
def redeem(
    workload: Workload,
    cluster: Cluster,
    incentives: Iterable[str],
    *,
    by: AccountsBy = "account",
    collect: str = "fcfs+easy",
    backfill: str = "easy",
    same: bool = False,
    budgets: Mapping[str, float] | float | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Unpack[RunOptions],
) -> Redeemed:
    """Collect accounts in the first half of the jobs, and redeem them in the second half.

    Args:
        incentives: Names, see `INCENTIVES`.
        by: Whether accounts are those of accounts or of users.
        collect: Policy of the collecting phase; ``replay`` starts jobs at their recorded times.
        backfill: Backfill of the redeeming phase; without incentives, its ordering is FCFS.
        same: Whether all jobs collect, and the same ones redeem, as in S-RAPS's figure 8.
        budgets: Budgets for the incentive ``budget``, in node-hours.
        progress: Function called with the name of each completed simulation.
        options: Further arguments of `simulate`.

    Raises:
        ConfigError, UnknownNameError: See `rewarded`; or there are fewer than two
            jobs.
    """
    earlier, later = phases(workload, same=same)
    told = progress or (lambda name: None)
    if collect == REPLAY:
        found = replay(earlier, cluster).result
    else:
        found = simulate(earlier, cluster, policy=collect, **options)
    accounts = found.accounts(by)
    told("collecting")
    results = {PLAIN: simulate(later, cluster, order="fcfs", backfill=backfill, **options)}
    told(PLAIN)
    for name in incentives:
        jobs = rewarded(later, accounts, name, budgets if name == "budget" else None)
        results[name] = simulate(jobs, cluster, order="priority", backfill=backfill, **options)
        told(name)
    return Redeemed(accounts, results)


def phases(workload: Workload, *, same: bool) -> tuple[Workload, Workload]:
    """Return the jobs of the collecting phase, and those of the redeeming phase."""
    if len(workload) < 2:
        raise ConfigError(
            f"{workload.name} has {count_text(len(workload), 'job')}; the two phases need two or more"
        )
    if same:
        return workload, workload
    half = len(workload) // 2
    rows = np.arange(len(workload))
    return workload.take(rows < half), from_its_first_job(workload.take(rows >= half))


@dataclass(frozen=True)
class Trick:
    """A way for an account to look better than it is.

    Args:
        help: Behavior of the account.
        columns: Changes of its jobs.
        second: Changes that turn each job into a second one that follows it; None for no second
            job.
    """

    help: str
    columns: Callable[[pl.DataFrame], dict[str, pl.Expr]] = lambda jobs: {}
    second: Callable[[pl.DataFrame], dict[str, pl.Expr]] | None = None


def _halved(_: pl.DataFrame) -> dict[str, pl.Expr]:
    return {name: pl.col(name) / 2 for name in ("runtime_s", "walltime_s")}


def _unused(jobs: pl.DataFrame) -> dict[str, pl.Expr]:
    return {
        name: pl.lit(0.0)
        for name, dtype in jobs.schema.items()
        if name.startswith("use_") and dtype.is_numeric() and not name.endswith("_step_s")
    }


TRICKS = {
    "split": Trick(
        "each job is handed in as two of half its time, one after the other", _halved, _halved
    ),
    "pad": Trick("walltimes are doubled", lambda _: {"walltime_s": pl.col("walltime_s") * 2}),
    "idle": Trick("each job is followed by one as long that does nothing", second=_unused),
}
"""Tricks by name; an account may use one in the collecting phase."""


def trick(workload: Workload, name: str, who: str, by: AccountsBy = "account") -> Workload:
    """Return the jobs as if one account used a trick.

    Args:
        name: Name of the trick, see `TRICKS`.
        by: Whether `who` is an account or a user.
    """
    if name not in TRICKS:
        raise UnknownNameError("trick", name, list(TRICKS))
    frame = workload.to_frame().with_columns(pl.col("job_id").cast(pl.String))
    names = sorted(frame[by].drop_nulls().unique()) if by in frame.columns else []
    if who not in names:
        raise UnknownNameError(by, who, names)
    rule, own = TRICKS[name], pl.col(by) == who
    mine = frame.filter(own)
    parts = [frame.filter(~own.fill_null(False)), mine.with_columns(**rule.columns(mine))]
    if rule.second is not None:
        follows = pl.format("afterany:{}", pl.col("job_id"))
        parts.append(
            mine.with_columns(
                depends=follows, job_id=pl.format("{}-2", pl.col("job_id")), **rule.second(mine)
            )
        )
    return Workload.from_frame(
        pl.concat(parts, how="diagonal_relaxed"),
        name=workload.name,
        start_epoch_s=workload.start_epoch_s,
        nodes_hint=workload.nodes_hint,
    )


@spelled_out(RunOptions)
def try_tricks(
    workload: Workload,
    cluster: Cluster,
    incentives: Iterable[str],
    who: str,
    *,
    by: AccountsBy = "account",
    backfill: str = "easy",
    **options: Unpack[RunOptions],
) -> pl.DataFrame:
    """Return an account's gains in the redeeming phase by tricks in the collecting phase.

    Args:
        workload: The jobs; the first half collects, the second redeems.
        incentives: Names, without ``budget``.
        by: Whether `who` is an account or a user.
        options: Further arguments of `simulate`.

    Returns:
        A row for each incentive and trick (``none`` first): ``incentive``, ``trick``, ``place`` (1
        is the best of different ones), ``mean_wait_s`` of its jobs when redeeming, its
        ``node_hours`` and ``mean_node_w`` when collecting.

    Raises:
        ConfigError, UnknownNameError: See `redeem`, `trick`.
    """
    earlier, later = phases(workload, same=False)
    rows = []
    tricked = {name: trick(earlier, name, who, by) for name in TRICKS}
    for name, jobs in {"none": earlier, **tricked}.items():
        accounts = simulate(jobs, cluster, order="fcfs", backfill=backfill, **options).accounts(by)
        mine = accounts.table.filter(pl.col("name") == who).row(0, named=True)
        for incentive in incentives:
            redeeming = rewarded(later, accounts, incentive)
            labels = (redeeming.account if by == "account" else redeeming.user).to_series("name")
            own = (labels == who).fill_null(False).to_numpy()
            result = simulate(redeeming, cluster, order="priority", backfill=backfill, **options)
            waits = result.jobs.filter(pl.col(by) == who)["wait_s"]
            places = np.unique(redeeming.priority)[::-1].tolist()
            rows.append(
                {
                    "incentive": incentive,
                    "trick": name,
                    "place": places.index(redeeming.priority[own][0]) + 1 if own.any() else None,
                    "mean_wait_s": waits.mean(),
                    "node_hours": mine["node_hours"],
                    "mean_node_w": mine["mean_node_w"],
                }
            )
    order = {name: place for place, name in enumerate(incentives)}
    return pl.DataFrame(rows).sort(pl.col("incentive").replace_strict(order), maintain_order=True)
