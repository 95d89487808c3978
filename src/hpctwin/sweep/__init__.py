"""Many simulations: of several policies side by side, and over all that can be varied."""

import sys
from types import ModuleType
from typing import Any

from hpctwin.sweep.compare import compare, fair_starts
from hpctwin.sweep.outcome import SweepResult
from hpctwin.sweep.running import Progress, sweep
from hpctwin.sweep.search import Found, SearchSettings, read_search, search
from hpctwin.sweep.settings import SweepSettings, read_sweep

__all__ = [
    "Found",
    "Progress",
    "SearchSettings",
    "SweepResult",
    "SweepSettings",
    "compare",
    "fair_starts",
    "read_search",
    "read_sweep",
    "search",
    "sweep",
]


class _Room(ModuleType):
    """A room that can be called: where it is imported first, ``hpctwin.sweep`` is the room."""

    def __call__(self, *args: Any, **options: Any) -> SweepResult:
        return sweep(*args, **options)


sys.modules[__name__].__class__ = _Room
