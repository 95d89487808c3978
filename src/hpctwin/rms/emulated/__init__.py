"""An emulated cluster with the faults of real ones, which needs nothing installed."""

from hpctwin.rms.emulated.cluster import EmulatedCluster
from hpctwin.rms.emulated.faults import Faults

__all__ = ["EmulatedCluster", "Faults"]
