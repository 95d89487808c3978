"""Options that commands of several papers share."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from hpctwin.cli.option_values import AT_LEAST_1

Count = Annotated[int, AT_LEAST_1]
Methods = Annotated[tuple[str, ...], Parameter(name=["--method", "-m"])]
Pool = Annotated[tuple[str, ...], Parameter(name=["--policy", "-p"])]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given; an experiment has defaults for the others."""
    return {name: value for name, value in options.items() if value not in (None, ())}
