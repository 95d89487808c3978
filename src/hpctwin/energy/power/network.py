"""Power draw of links and switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.energy.prices.series import Series
from hpctwin.model import Cluster

__all__ = ["NetworkPower"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NetworkPower:
    """Power draw of all links and switches: a part that is always there, and one that follows loads.

    Args:
        idle_w: Power draw without traffic, in W.
        edges_s: Times at which the loads change, and their end, in seconds [bins + 1].
        more_w: Further power draw by loads, as a mean of each bin, in W [bins].
    """

    idle_w: float
    edges_s: FloatArray
    more_w: FloatArray

    @classmethod
    def idle(cls, cluster: Cluster) -> NetworkPower | None:
        """Return the power draw without traffic; None if it is unknown."""
        platform = cluster.platform if cluster.has_network_power else None
        if platform is None:
            return None
        return cls(float(platform.link_idle_w.sum()), np.zeros(1), np.zeros(0))

    def energy_j(self, begin_s: float, end_s: float) -> float:
        """Return the energy in a span, in J."""
        edges_s = np.clip(self.edges_s, begin_s, end_s)
        return self.idle_w * (end_s - begin_s) + float(self.more_w @ np.diff(edges_s))

    def cost(self, series: Series, begin_s: float, end_s: float) -> float:
        """Return the cost or the emissions of a span; see `hpctwin.energy.Energy.cost`."""
        whole = series.integral(np.array([begin_s, end_s]))
        bins = series.integral(np.clip(self.edges_s, begin_s, end_s))
        return float(self.idle_w * (whole[1] - whole[0]) + self.more_w @ np.diff(bins))

    def add_to(self, times_s: FloatArray, watts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sum of another power over time and this one, from each time on.

        Args:
            times_s: Times of the other power, in seconds; the last one is the end.
            watts: The power from each time on, in W.
        """
        inside = (self.edges_s > times_s[0]) & (self.edges_s < times_s[-1])
        every_s = np.union1d(times_s, self.edges_s[inside])
        other = watts[np.searchsorted(times_s, every_s, side="right") - 1]
        more = np.concatenate([[0.0], self.more_w, [0.0]])
        own = more[np.searchsorted(self.edges_s, every_s, side="right")]
        own[-1:] = own[-2:-1]  # the end keeps the last power
        return every_s, other + self.idle_w + own
