"""Metrics for Prometheus at ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hpctwin.web.server.assembly import Live
from hpctwin.web.views.cluster_views import nodes_by_state, queue_by_reason
from hpctwin.web.views.source import Source
from hpctwin.web.views.views import MeterView

__all__ = ["exposition"]

_COUNTS = {
    "events": "events of the cluster received",
    "bad_events": "unreadable events",
    "snapshots": "snapshots taken",
    "drifts": "snapshots that differed from the mirror",
    "decisions": "decisions made",
    "starts": "starts done",
    "refused": "starts rejected by the resource manager",
}


class _Collector:
    """Collector that reads the metrics from the source at each scrape."""

    def __init__(self, source: Source, live: Live) -> None:
        self._source = source
        self._live = live

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        head = self._source.head()
        gauges = {
            "up": ("whether the twin runs", float(head.alive)),
            "is_active": ("whether the twin controls scheduling", float(head.is_active)),
            "last_update_age_seconds": ("age of the twin's last update", head.age_s),
            "errors": ("number of errors and warnings", float(len(head.trouble))),
            "cluster_time_seconds": ("present time by the cluster's clock", head.time_s),
            "jobs_running": ("jobs that run", float(head.running)),
            "jobs_waiting": ("pending jobs", float(head.waiting)),
            "viewers": ("listeners to live updates", float(self._live.listeners)),
        }
        if (energy := head.energy) is not None:
            for name, says, value in (
                ("power_watts", "power draw by the cluster's power model", energy.power_w),
                ("pue_ratio", "power usage effectiveness", energy.pue),
                (
                    "carbon_grams_per_hour",
                    "carbon emissions of the power draw",
                    energy.carbon_per_h,
                ),
                ("price_per_hour", "price of the power draw", energy.price_per_h),
            ):
                if value is not None:
                    gauges[name] = (says, value)
        if head.cycle_s is not None:
            gauges["cycle_seconds"] = ("duration of the last decision", head.cycle_s)
        for name, (says, value) in gauges.items():
            yield GaugeMetricFamily(f"hpctwin_{name}", says, value)
        with self._source.looking() as stands:
            nodes, reasons = nodes_by_state(stands), queue_by_reason(stands)
        yield _labelled("hpctwin_nodes", "nodes by state", "state", nodes)
        yield _labelled("hpctwin_queue_jobs", "pending jobs by reason", "reason", reasons)
        yield _labelled("hpctwin_policy_in_force", "1 for the current policy", "policy",
                        {head.policy: 1})  # fmt: skip
        chosen = CounterMetricFamily(
            "hpctwin_policy_decisions",
            "recorded decisions by chosen policy",
            labels=["policy"],
        )
        for policy, count in sorted(self._source.decisions_by_policy().items()):
            chosen.add_metric([policy], count)
        yield chosen
        for key, value in self._source.counts().items():
            if key in _COUNTS:
                yield CounterMetricFamily(f"hpctwin_{key}", _COUNTS[key], value)
        yield from self._forecasts()
        if head.meter is not None:
            yield from _metered(head.meter)

    def _forecasts(self) -> Iterable[Metric]:
        median = GaugeMetricFamily(
            "hpctwin_forecast_error_seconds",
            "median absolute error of start forecasts, by forecast wait",
            labels=["wait"],
        )
        covered = GaugeMetricFamily(
            "hpctwin_forecast_covered_ratio",
            "share of starts within their 80 % interval",
            labels=["wait"],
        )
        for row in self._source.accuracy():
            if row.median_error_s is not None:
                median.add_metric([row.label], row.median_error_s)
            if row.covered is not None:
                covered.add_metric([row.label], row.covered)
        yield from (median, covered)


def _metered(meter: MeterView) -> Iterable[Metric]:
    for name, says, value in (
        ("metered_power_watts", "last reading of the power meter", meter.power_w),
        ("meter_age_seconds", "age of the last reading", meter.age_s),
        ("expected_power_watts", "forecast power draw", meter.expected_w),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"hpctwin_{name}", says, value)
    error = GaugeMetricFamily(
        "hpctwin_power_error_ratio",
        "mean absolute error of power forecasts over the last day, as a share, by model",
        labels=["model"],
    )
    for model, pct in meter.error_pct.items():
        error.add_metric([model], pct / 100)
    left = CounterMetricFamily(
        "hpctwin_meter_readings_ignored", "ignored readings by reason", labels=["why"]
    )
    for why, count in meter.omitted.items():
        left.add_metric([why], count)
    yield from (error, left)


def _labelled(name: str, says: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, says, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def exposition(source: Source, live: Live) -> bytes:
    """Return the text for Prometheus.

    Args:
        source: Source of the metrics.
        live: Notifier that counts listeners.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(source, live))
    return generate_latest(registry)
