"""The compiled discrete-event core and its state. Import its modules only when a simulation starts."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from hpctwin.errors import SimulationError

__all__ = ["NUMBA", "check_numba"]

NUMBA = ((0, 60), (0, 68))
"""The first and the last version of Numba whose insides `rows` and `linking` are known to go with."""


def check_numba(found: str) -> None:
    """Refuse a version of Numba whose insides may be others; what fails then would be hard to read.

    Args:
        found: the version, such as ``0.68.1``.

    Raises:
        SimulationError: it is not within `NUMBA`.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not NUMBA[0] <= numbers <= NUMBA[1]:
        oldest, newest = (f"{major}.{minor}" for major, minor in NUMBA)
        beyond = f"{NUMBA[1][0]}.{NUMBA[1][1] + 1}"
        raise SimulationError(
            f"Numba {found} is installed; the engine goes with {oldest} to {newest}: "
            f"pip install 'numba>={oldest},<{beyond}'"
        )


def _numba_version() -> str:
    """The version of Numba that is installed, from the name of the folder with what pip knows of it.

    `importlib.metadata` reads the same, but it and what it imports take a thirtieth of a second.
    """
    numba = find_spec("numba")
    if numba is not None and numba.origin is not None:
        for folder in Path(numba.origin).parents[1].glob("numba-*.dist-info"):
            return folder.name.removeprefix("numba-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("numba")


check_numba(_numba_version())
