"""How many examples a property test draws."""

from __future__ import annotations

import os

BOUNDS = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
"""Whether the engine runs with array bounds checked, which takes several times as long."""


def examples(count: int) -> int:
    """A quarter of them with bounds checked."""
    return max(5, count // 4) if BOUNDS else count
