"""Many simulations: comparisons of policies, and sweeps over varied inputs."""

import sys
from types import ModuleType
from typing import Any

from hpctwin.sweep.compare import Comparison, compare, fair_starts
from hpctwin.sweep.outcome import SweepResult
from hpctwin.sweep.running import Progress, sweep
from hpctwin.sweep.search import Found, SearchSettings, read_search, search
from hpctwin.sweep.settings import SweepSettings, read_sweep

__all__ = [
    "Comparison",
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
    """A callable package: ``hpctwin.sweep`` may be imported as a module first."""

    def __call__(self, *args: Any, **options: Any) -> SweepResult:
        return sweep(*args, **options)


sys.modules[__name__].__class__ = _Room
