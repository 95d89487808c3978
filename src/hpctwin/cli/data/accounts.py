"""``hpctwin accounts``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

__all__ = ["accounts_command"]


def accounts_command(
    *files: Path,
    out: Annotated[Path | None, Parameter(group="Output")] = None,
    json: Annotated[bool, Parameter(group="Output")] = False,
) -> int:
    """Show use, cost and wait of each user or account, summed over several runs.

    Args:
        files: Files written by hpctwin simulate --accounts.
        out: Write the summed accounts to this file, .json or .parquet.
        json: Print the accounts as JSON: by, total, accounts.
    """
    from hpctwin.cli.output import check_outputs, plain_table, print_json, screen
    from hpctwin.errors import ConfigError
    from hpctwin.metrics import read_accounts
    from hpctwin.model.text import format_duration

    if not files:
        raise ConfigError("no accounts; give files that hpctwin simulate --accounts wrote")
    check_outputs(files=[out])
    first, *others = [read_accounts(file) for file in files]
    accounts = first.merged(*others)
    if out is not None:
        accounts.write(out)
    if json:
        own = accounts.table.to_dicts()
        print_json({"by": accounts.by, "total": accounts.total, "accounts": own})
        return 0
    heads = "jobs", "node hours", "of all", "energy MWh", "W a node", "wait", "points"
    rows = []
    for row in [*accounts.table.iter_rows(named=True), {"name": "all", **accounts.total}]:
        energy, points, wait = row["energy_j"], row["fugaku_points"], row["mean_wait_s"]
        rows.append((
            row["name"],
            f"{row['jobs']:,}",
            f"{row['node_hours']:,.1f}",
            "" if row["utilization"] is None else f"{row['utilization']:.1%}",
            "" if energy is None else f"{energy / 3.6e9:,.3f}",
            "" if row["mean_node_w"] is None else f"{row['mean_node_w']:,.0f}",
            "" if wait is None else format_duration(wait),
            "" if points is None or row["name"] == "all" else f"{points / 3600:,.0f}",
        ))  # fmt: skip
    screen().print(plain_table((accounts.by, *heads), rows, numbers=slice(1, None)))
    if accounts.total["energy_j"] is not None:
        print(
            "points: Fugaku points, in node-hours that a mean account would have drawn in addition "
            "(docs/how-to/accounts-and-incentives.md)"
        )
    return 0
