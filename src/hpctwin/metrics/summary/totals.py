"""What a summary is made of, and how it is put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpctwin.metrics.jobs.fairness import jain
from hpctwin.metrics.jobs.jobs import ROWS
from hpctwin.model import MS_PER_S

__all__ = ["SPREADS", "SPREAD_ROWS", "Summary", "Totals"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

SPREADS = "wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown"
"""Of which quantiles are told."""


SPREAD_ROWS = [ROWS.index(name) for name in SPREADS]
_SPREAD_NAMES = [
    f"{what}_{name}" for name in SPREADS for what in ("mean", "median", "p95", "p99", "max")
]
_AREA, _RESPONSE = ROWS.index("area"), ROWS.index("response")


class Totals(NamedTuple):
    """A run, summed up.

    Args:
        states: how many jobs there are by state.
        counts: how many numbers each of `hpctwin.metrics.jobs.jobs.ROWS` has [rows].
        means: of those that quantiles are told of the mean, else the sum [rows].
        quantiles: median, 95th and 99th percentile of each of `SPREADS`.
        largest: of each of these; None where there are no numbers.
        first_s: the first submission, seconds; None if there are no jobs.
        last_s: the last end of a job that ran, seconds; None if there is none.
        over_time: `hpctwin.engine.summary.level_sums.SUMS` by name, times ms.
        longest: the longest queue that held for a time.
        lost_node_s: what ran in vain.
        by_user: the mean bounded slowdown of each user of whom any job ran.
    """

    states: Mapping[str, int]
    counts: Sequence[int]
    means: Sequence[float]
    quantiles: Sequence[Sequence[float | None]]
    largest: Sequence[float | None]
    first_s: float | None
    last_s: float | None
    over_time: Mapping[str, int | float]
    longest: int
    lost_node_s: float
    by_user: Sequence[float]

    def figures(self, nodes: int) -> Summary:
        """Values that JSON can hold, by metric.

        Args:
            nodes: size of the machine.
        """
        summary: Summary = {"jobs": sum(self.states.values())}
        for state in sorted(self.states):
            summary[f"jobs_{state}"] = self.states[state]
        spreads: list[float | None] = []
        for row, told, largest in zip(SPREAD_ROWS, self.quantiles, self.largest, strict=True):
            spreads += (self.means[row] if self.counts[row] else None, *told, largest)
        summary.update(zip(_SPREAD_NAMES, spreads, strict=True))
        self._tell_over_time(self.counts[_AREA], nodes, summary)
        summary["area_weighted_response_time_s"] = _ratio(self.means[_RESPONSE], self.means[_AREA])
        summary["lost_node_s"] = self.lost_node_s
        summary["jain_fairness_user"] = jain(self.by_user) if len(self.by_user) > 1 else None
        return summary

    def _tell_over_time(self, ran: int, nodes: int, summary: Summary) -> None:
        makespan = 0.0 if self.last_s is None else self.last_s - (self.first_s or 0.0)
        sums, makespan_ms = self.over_time, makespan * MS_PER_S
        loss = sums["present_loaded"] - sums["used_loaded"]
        summary["interval_begin_s"] = self.first_s if ran else None
        summary["interval_end_s"] = self.last_s if ran else None
        summary["makespan_s"] = makespan if ran else None
        summary["throughput_jobs_per_h"] = _ratio(ran, makespan / 3600)
        summary["nodes"] = nodes
        summary["availability"] = _ratio(sums["up"], nodes * makespan_ms)
        summary["utilization"] = _ratio(sums["used"], sums["present"])
        summary["utilization_loaded"] = _ratio(sums["used_loaded"], sums["present_loaded"])
        summary["loaded_share"] = _ratio(sums["loaded"], makespan_ms)
        summary["fragmentation_loss"] = _ratio(loss, sums["present"])
        summary["mean_queue_length"] = _ratio(sums["queue"], makespan_ms)
        summary["max_queue_length"] = self.longest
        summary["mean_queued_nodes"] = _ratio(sums["queued_nodes"], makespan_ms)


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
