"""The compiled discrete-event core and its state.

Its modules load Numba only to compile what is neither in the library of compiled code nor cached.
"""

from __future__ import annotations

import re

from hpctwin.errors import SimulationError

__all__ = ["NUMBA", "check_numba"]

NUMBA = ((0, 60), (0, 68))
"""The oldest and newest supported Numba version.

`compile.numba_types` and `compile.linking` use Numba's internals, which may change with any
version.
"""


def check_numba(found: str) -> None:
    """Reject a Numba version that the engine does not support.

    The engine uses Numba's internals. An unsupported version would fail later with an unclear
    error.

    Args:
        found: Numba version, such as ``0.68.1``.

    Raises:
        SimulationError: The version is outside `NUMBA`.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if not NUMBA[0] <= numbers <= NUMBA[1]:
        oldest, newest = (f"{major}.{minor}" for major, minor in NUMBA)
        beyond = f"{NUMBA[1][0]}.{NUMBA[1][1] + 1}"
        raise SimulationError(
            f"Numba {found} is installed; the engine goes with {oldest} to {newest}: "
            f"pip install 'numba>={oldest},<{beyond}'"
        )
