"""``hpctwin policy``."""

from __future__ import annotations

from typing import Annotated, get_args

from cyclopts import App, Parameter

__all__ = ["policy_app"]

policy_app = App(name="policy", help="List policies, check one's own.")


@policy_app.command(name="list")
def list_policies(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """List the orderings, backfills and placements there are.

    Args:
        json: print them as JSON.
    """
    from importlib import metadata

    from rich.console import Console
    from rich.table import Table

    from hpctwin.cli.output import print_json
    from hpctwin.policies import BUILT_IN, Backfill, Placement
    from hpctwin.policies.lookup import ENTRY_POINTS, MAKERS

    orders = {name: made.summary for name, made in sorted(BUILT_IN.items())}
    orders |= {name: make().summary for name, make in sorted(MAKERS.items())}
    orders |= {p.name: f"plug-in: {p.value}" for p in metadata.entry_points(group=ENTRY_POINTS)}
    if json:
        print_json(
            {"order": orders, "backfill": get_args(Backfill), "placement": get_args(Placement)}
        )
        return 0
    table = Table("order", "what comes first", box=None, header_style="bold")
    for name, summary in orders.items():
        table.add_row(name, summary)
    console = Console()
    console.print(table)
    console.print(f"\nbackfill:  {', '.join(get_args(Backfill))}")
    console.print(f"placement: {', '.join(get_args(Placement))}")
    console.print(
        '\nAlso any formula, "-(wait/walltime)**3*nodes", and any function, my.py:my_order.'
    )
    return 0


@policy_app.command
def check(policy: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
    """Check a policy: that it can be found, compiled, and gives a number for every kind of job.

    Args:
        policy: ORDER+BACKFILL; the ordering a name, a formula, or a function in a file, my.py:my_order.
    """
    from hpctwin.policies import parse_policy
    from hpctwin.policies.check import check_ordering

    found = parse_policy(policy)
    for order in filter(None, (found.order, found.candidates)):
        print(check_ordering(order))
    return 0
