"""Incentives, as in S-RAPS's figure 8 (Maiterth et al., SC25-W, §4.3): collect, then redeem.

The paper's day of measured power is not available here. So jobs, users and times are Theta's of
2023, on the same number of Frontier's nodes. Each account's use of its nodes is drawn with a seed.
The figure shows which accounts start sooner under which incentive; the draw affects it only by the
accounts' power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.formats import read_workload
from hpctwin.formats.systems import read_system
from hpctwin.generate import generate
from hpctwin.model import Category, Cluster, Workload, format_duration
from hpctwin.model.text import counted
from hpctwin.model.workload.jobs import Usage
from hpctwin.report.columns import Table
from hpctwin.simulation.running.window import from_its_first_job
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results
from hpctwin_papers.s_raps.incentive_rules import INCENTIVES
from hpctwin_papers.s_raps.redeeming import PLAIN, Redeemed, redeem
from hpctwin_papers.traces import find_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 4392
DAYS = 28.0
NAMES = tuple(name for name in INCENTIVES if name != "budget")
_DAY_MS = 86_400_000


def workload(seed: int = 0) -> tuple[Workload, str]:
    """Return four weeks of Theta's jobs with drawn use of nodes, and their origin."""
    path = find_trace("Theta-2023-lumos.swf")
    rng = np.random.default_rng(seed)
    if path is not None:
        jobs, origin = read_workload(path), "Theta's jobs of 2023"
        jobs = jobs.replace(account=jobs.user)
    else:
        jobs = generate("theta-year", seed=seed)
        origin = (
            "a generated year of Theta (set HPCTWIN_TRACES to a folder with Theta-2023-lumos.swf)"
        )
        names = [str(number) for number in range(46)]
        jobs = jobs.replace(account=Category.of(rng.choice(names, len(jobs))))
    begin_ms = jobs.submit_ms[0] + 28 * _DAY_MS
    inside = (jobs.submit_ms >= begin_ms) & (jobs.submit_ms < begin_ms + DAYS * _DAY_MS)
    jobs = from_its_first_job(jobs.take(inside))
    return drawn_use(jobs, rng), origin


def drawn_use(jobs: Workload, rng: np.random.Generator) -> Workload:
    """Return jobs with their use of nodes, drawn per account, varied a little per job."""
    used = rng.beta(2.0, 2.0, len(jobs.account.labels) + 1)
    jitter = rng.normal(0.0, 0.05, len(jobs))
    use = Usage.averages(np.clip(used[jobs.account.codes] + jitter, 0.0, 1.0))
    return jobs.replace(usage={"cpu": use, "gpu": use})


def machine() -> Cluster:
    """Return a cluster with the number of Theta's nodes, each as one of Frontier's."""
    group = read_system("frontier").nodes[0]
    return Cluster(
        name="theta-of-frontiers", nodes=[group.model_copy(update={"count": NODES, "racks": None})]
    )


def incentive_results(found: Redeemed) -> Results:
    """Return the results of accounts that were collected and redeemed."""
    gains = found.gains()
    rows = [{"incentive": name, **_told(found, name, gains)} for name in found.results]
    lines = []
    for row in rows:
        waits = (row["mean_wait_s"], row["low_power_wait_s"], row["high_power_wait_s"])
        lines.append(
            [
                row["incentive"],
                *("" if wait is None else format_duration(round(wait)) for wait in waits),
                "" if row["energy_j"] is None else f"{row['energy_j'] / 3.6e9:,.1f}",
                "" if row["incentive"] == PLAIN else f"{row['sooner']} of {len(gains)}",
            ]
        )
    heads = ["incentive", "mean wait", "low half", "high half", "energy MWh", "accounts sooner"]
    caption = (
        "low half, high half: mean wait of jobs whose accounts drew less, or more, per node than the\n"
        "median account when accounts were collected; --json tells of each account"
    )
    return Results(
        figures={"incentives": partial(_drawn, found)},
        tables=[Table(heads, lines, caption=caption)],
        rows={"incentives": rows, "accounts": gains.to_dicts()},
    )


def _drawn(found: Redeemed) -> Figure:
    from hpctwin.report.energy import plot_power

    energies = {n: r.energy for n, r in found.results.items() if r.energy is not None}
    if not energies:
        raise ConfigError("--plot: the cluster has no power model; add 'modes' to its node groups")
    return plot_power(energies, title="Power drawn under each incentive")


def _told(found: Redeemed, name: str, gains: pl.DataFrame) -> dict[str, Any]:
    """Return the metrics of one incentive."""
    result = found.results[name]
    jobs = result.jobs.join(
        found.accounts.table.select("name", "mean_node_w"),
        left_on=found.accounts.by, right_on="name", how="left",
    )  # fmt: skip
    middle = found.accounts.table["mean_node_w"].median()
    sooner = gains.filter(pl.col(f"{name}_wait_s") < pl.col(f"{PLAIN}_wait_s"))
    low, high = (
        (None, None)
        if middle is None
        else tuple(
            jobs.filter(side)["wait_s"].mean()
            for side in (pl.col("mean_node_w") <= middle, pl.col("mean_node_w") > middle)
        )
    )
    return {
        "mean_wait_s": result.jobs["wait_s"].mean(),
        "low_power_wait_s": low,
        "high_power_wait_s": high,
        "energy_j": None if result.energy is None else result.energy.total_j,
        "sooner": len(sooner),
    }


@dataclass(frozen=True)
class Incentives(Experiment[Workload, Redeemed]):
    """Accounts collected, and redeemed under each incentive.

    Args:
        names: Names of incentives.
        same: Whether the same jobs collect and redeem, as in the paper; else two weeks for each.
        seed: Seed of the draws.
    """

    names: tuple[str, ...] = NAMES
    same: bool = False
    seed: int = 0
    title = "collecting and redeeming"

    def points(self) -> Sequence[Workload]:
        """See `Experiment`; one point, because all incentives redeem the same accounts."""
        return [workload(self.seed)[0]]

    def run(self, point: Workload, progress: Progress) -> Redeemed:
        """See `Experiment`."""
        more = counted(progress, len(self.names) + 2)
        return redeem(point, machine(), self.names, same=self.same, progress=more, log=True)

    def results(self, found: Sequence[Redeemed]) -> Results:
        """See `Experiment`."""
        return incentive_results(found[0])
