"""How many examples a property draws where tests run twice: without, and with array bounds checked."""

from __future__ import annotations

import os

from tests.examples import ALL

BOUNDS = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
"""Whether this is the run with array bounds checked."""


def examples(count: int) -> int:
    """How many of so many are tried in each run: a sixth of them, and another sixth in the other."""
    return count if ALL else max(5, count // 6)
