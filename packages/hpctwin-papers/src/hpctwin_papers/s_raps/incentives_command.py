"""``hpctwin incentives``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hpctwin.cli.options import ClusterOptions, Trace, TraceOptions

if TYPE_CHECKING:
    import polars as pl

Json = Annotated[bool, Parameter(group="Output")]
Plot = Annotated[Path | None, Parameter(group="Output")]
Names = Annotated[tuple[str, ...], Parameter(name=["--incentive", "-i"])]


def incentives_command(
    trace: Trace,
    /,
    *,
    incentive: Names = (),
    accounts_by: Literal["account", "user"] = "account",
    collect: str = "fcfs+easy",
    backfill: Annotated[str, Parameter(name=["--backfill", "-b"])] = "easy",
    same: bool = False,
    budget: float | None = None,
    cheat: str | None = None,
    reading: TraceOptions = TraceOptions(),  # noqa: B008
    machine: ClusterOptions = ClusterOptions(),  # noqa: B008
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Collect accounts in half of a trace, redeem them in the other, and show gains.

    Args:
        trace: The trace, with accounts or users; for power, give --cluster.
        incentive: Incentive: low-power, high-power, energy, edp, ed2p, fugaku-points or budget;
            default all but budget. Repeatable.
        accounts_by: Collect by account or by user.
        collect: Policy of the collecting phase, or replay for the recorded starts.
        backfill: Backfill of the redeeming phase.
        same: Collect and redeem with the same jobs, as in the paper.
        budget: Node-hours of each account; needed for --incentive budget.
        cheat: Account (or user) whose gains by cheating are shown: split jobs, padded walltimes, or
            idle jobs in the collecting phase.
        plot: Write a chart of power under each incentive to this file (.png, .svg, .pdf).
        json: Print a row for each account, and one for each incentive, as JSON.
    """
    from hpctwin.cli.output import check_outputs
    from hpctwin.errors import ConfigError
    from hpctwin.model.text import counted, progress_bar
    from hpctwin_papers.output import show
    from hpctwin_papers.s_raps.incentive_rules import INCENTIVES
    from hpctwin_papers.s_raps.incentives import incentive_results
    from hpctwin_papers.s_raps.redeeming import redeem, try_tricks

    check_outputs(trace, figures=[plot])
    names = incentive or tuple(n for n, rule in INCENTIVES.items() if not rule.budgeted)
    if (budget is None) == any(INCENTIVES[n].budgeted for n in names if n in INCENTIVES):
        raise ConfigError("--budget and --incentive budget are required together")
    workload = reading.jobs(trace, machine)
    labels = workload.account if accounts_by == "account" else workload.user
    if not labels.labels:
        raise ConfigError(
            f"{trace}: the {accounts_by}s of its jobs are unknown; give a trace that records them"
        )
    cluster = machine.make(workload, trace, reading.timezone)
    with progress_bar("collecting and redeeming") as progress:
        if cheat is not None:
            paid = [name for name in names if not INCENTIVES[name].budgeted]
            rows = try_tricks(workload, cluster, paid, cheat, by=accounts_by, backfill=backfill)
            return _show_tricks(rows, cheat, json)
        found = redeem(
            workload, cluster, names, by=accounts_by, collect=collect, backfill=backfill, same=same,
            budgets=budget, progress=counted(progress, len(names) + 2), log=plot is not None,
        )  # fmt: skip
    return show(incentive_results(found), plot=plot, json=json)


def _show_tricks(rows: pl.DataFrame, who: str, json: bool) -> int:
    from hpctwin.cli.output import plain_table, print_json, screen
    from hpctwin.model.text import format_duration
    from hpctwin_papers.s_raps.redeeming import TRICKS

    if json:
        print_json(rows.to_dicts())
        return 0
    heads = ("incentive", "trick", "place", "mean wait", "node hours", "W a node")
    lines = []
    for row in rows.iter_rows(named=True):
        watts, wait = row["mean_node_w"], row["mean_wait_s"]
        lines.append((
            row["incentive"],
            row["trick"],
            "" if row["place"] is None else f"{row['place']}",
            "" if wait is None else format_duration(round(wait)),
            f"{row['node_hours']:,.1f}",
            "" if watts is None else f"{watts:,.0f}",
        ))  # fmt: skip
    table = plain_table(heads, lines, numbers=slice(2, None))
    table.title = f"What {who} gains by cheating"
    console = screen()
    console.print(table)
    for name, trick in TRICKS.items():
        console.print(f"{name}: {trick.help}")
    return 0
