"""Use of links in a simulation: in all, over time, and by level of the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.attributes import kept
from hpctwin.contention.link_loads import LinkLoads
from hpctwin.network.platform import Platform

__all__ = ["LinkUse"]

FloatArray = npt.NDArray[np.float64]

_LEVELS = {
    "time_s": pl.Float64,
    "level": pl.String,
    "links": pl.Int64,
    "bytes": pl.Float64,
    "utilization": pl.Float64,
    "max_utilization": pl.Float64,
}


@dataclass(frozen=True, eq=False)
class LinkUse:
    """Use of the links of a cluster.

    Links that give each flow their full bandwidth (``FATPIPE``) are not in the tables.

    Args:
        platform: Hosts and links.
        loads: Recorded loads.
    """

    platform: Platform
    loads: LinkLoads

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """All tables, by their names in the folder of a run; see `report.LinkTables`."""
        return {
            "link_totals": self.table,
            "link_loads": self.over_time,
            "link_levels": self.by_level,
            "link_switches": self.by_switch,
        }

    @kept
    def table(self) -> pl.DataFrame:
        """One row for each link.

        ``link``, ``level``, ``bandwidth`` (B/s), ``bytes``, ``mean_utilization``,
        ``peak_utilization``, and ``full_s``, the time at full bandwidth.
        """
        loads, some = self.loads, self.links
        bandwidth = self.platform.link_bandwidth[some]
        span_s = loads.end_s - loads.begin_s
        capacity = bandwidth * span_s if span_s > 0 else np.inf
        return pl.DataFrame(
            {
                "link": self._names,
                "level": self._levels,
                "bandwidth": bandwidth,
                "bytes": loads.bytes[some],
                "mean_utilization": loads.bytes[some] / capacity,
                "peak_utilization": loads.peak[some] / bandwidth,
                "full_s": loads.full_s[some],
            }
        )

    @kept
    def over_time(self) -> pl.DataFrame:
        """One row for each link and each bin of time in which it carried anything.

        ``time_s`` (begin of the bin), ``link``, ``level``, ``bytes``, ``utilization``.
        """
        sent = self.loads.over_time[self.links]
        link, at = np.nonzero(sent)
        return pl.DataFrame(
            {
                "time_s": self.times_s[at],
                "link": self._names.gather(link),
                "level": self._levels.gather(link),
                "bytes": sent[link, at],
                "utilization": self.utilization[link, at],
            }
        ).sort("time_s", maintain_order=True)

    @kept
    def by_level(self) -> pl.DataFrame:
        """One row for each level of the network and each bin of time.

        ``time_s``, ``level``, ``links`` (their number), ``bytes``, ``utilization`` (mean over the
        links), ``max_utilization`` (of the busiest link).
        """
        sent = self.loads.over_time[self.links]
        levels = self._levels.to_numpy()
        parts = []
        for level in self._levels.unique(maintain_order=True):
            rows = levels == level
            used = self.utilization[rows]
            capacity = self.platform.link_bandwidth[self.links][rows][:, None] * self._spans_s
            part = pl.DataFrame(
                {
                    "time_s": self.times_s,
                    "links": np.full(len(self.times_s), len(used)),
                    "bytes": sent[rows].sum(0),
                    "utilization": sent[rows].sum(0) / np.maximum(capacity.sum(0), 1e-300),
                    "max_utilization": used.max(0),
                }
            )
            parts.append(part.insert_column(1, pl.lit(level).alias("level")))
        return pl.concat(parts) if parts else pl.DataFrame(schema=_LEVELS)

    @kept
    def by_switch(self) -> pl.DataFrame:
        """One row for each switch of a regular network.

        ``switch``, ``links`` (their number), ``bytes`` (over all its links), ``mean_utilization``
        (of its links together), ``max_utilization`` (of the busiest link), and ``full_s``, the
        longest time at full bandwidth.
        """
        ends = self.platform.link_switches[self.links]
        link, end = np.nonzero(ends >= 0)
        switch = pl.Series(self.platform.switch_names, dtype=pl.String).gather(ends[link, end])
        used, bandwidth = pl.col("mean_utilization"), pl.col("bandwidth")
        return (
            self.table[link]
            .with_columns(switch.alias("switch"))
            .group_by("switch", maintain_order=True)
            .agg(
                pl.len().cast(pl.Int64).alias("links"),
                pl.col("bytes").sum(),
                ((used * bandwidth).sum() / bandwidth.sum()).alias("mean_utilization"),
                used.max().alias("max_utilization"),
                pl.col("full_s").max(),
            )
        )

    @kept
    def links(self) -> npt.NDArray[np.int64]:
        """Numbers of the links in the tables."""
        return np.flatnonzero(~self.platform.link_fatpipe)

    @kept
    def _names(self) -> pl.Series:
        return pl.Series(self.platform.link_names, dtype=pl.String).gather(self.links)

    @kept
    def _levels(self) -> pl.Series:
        return pl.Series(self.platform.link_levels, dtype=pl.String).gather(self.links)

    @kept
    def times_s(self) -> FloatArray:
        """Begin of each bin, in seconds [bins]."""
        loads = self.loads
        steps = np.arange(loads.over_time.shape[1], dtype=np.float64)
        times: FloatArray = loads.begin_s + loads.step_s * steps
        return times

    @kept
    def _spans_s(self) -> FloatArray:
        """Length of each bin; the last one may be shorter, in seconds."""
        loads = self.loads
        spans: FloatArray = np.clip(loads.end_s - self.times_s, 0.0, loads.step_s)
        return spans

    @kept
    def utilization(self) -> FloatArray:
        """Utilization of these links in each bin [links, bins]."""
        capacity = self.platform.link_bandwidth[self.links][:, None] * self._spans_s
        sent = self.loads.over_time[self.links]
        found: FloatArray = np.divide(sent, capacity, out=np.zeros_like(sent), where=capacity > 0)
        return found
