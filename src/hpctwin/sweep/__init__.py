"""Many simulations: of several policies, side by side."""

from hpctwin.sweep.compare import compare
from hpctwin.sweep.fair_start import fair_starts

__all__ = ["compare", "fair_starts"]
