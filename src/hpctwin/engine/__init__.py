"""The compiled discrete-event core and its state. Import its modules only when a simulation starts."""

from __future__ import annotations

import re
from importlib.metadata import version

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


check_numba(version("numba"))
