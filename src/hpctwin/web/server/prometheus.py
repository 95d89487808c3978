"""Metrics for Prometheus at ``/metrics``; all have the label ``cluster``."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from hpctwin._version import __version__
from hpctwin.web.views.cluster_views import jobs_by_partition, nodes_by_state, queue_by_reason
from hpctwin.web.views.follower import Histogram
from hpctwin.web.views.source import Source
from hpctwin.web.views.views import MeterView

__all__ = ["EXPOSITION", "Collector", "exposition"]

EXPOSITION = "text/plain; version=0.0.4"
"""Media type of the text for Prometheus."""

_COUNTS = {
    "events": "events of the cluster received",
    "bad_events": "unreadable events",
    "snapshots": "snapshots taken",
    "drifts": "snapshots that differed from the mirror",
    "decisions": "decisions made",
    "starts": "starts done",
    "refused": "starts rejected by the resource manager",
}


class Listeners(Protocol):
    """Notifier that counts listeners."""

    listeners: int


class Collector:
    """Collector that reads the metrics of a cluster from its source at each scrape."""

    def __init__(self, source: Source, live: Listeners) -> None:
        self._source = source
        self._live = live

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self._source.head().cluster

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        head = self._source.head()
        build = {"version": __version__, "python": platform.python_version()}
        yield _labelled_by("hpctwin_build_info", "version of hpctwin", [(build, 1.0)])
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
            jobs = jobs_by_partition(stands)
        yield _labelled_by(
            "hpctwin_partition_jobs",
            "jobs by partition and state",
            [
                ({"partition": name, "state": state}, number)
                for (name, state), number in jobs.items()
            ],
        )
        yield _histogram("hpctwin_decision_seconds", "duration of decisions",
                         {(): self._source.decision_times}, ())  # fmt: skip
        yield _histogram("hpctwin_wait_seconds", "wait of started jobs, by partition",
                         {(name,): one for name, one in self._source.waits.items()},
                         ("partition",))  # fmt: skip
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


def _labelled_by(name: str, says: str, rows: Iterable[tuple[dict[str, str], float]]) -> Metric:
    family = Metric(name, says, "gauge")
    for labels, value in rows:
        family.add_sample(name, labels, value)
    return family


def _histogram(
    name: str, says: str, found: Mapping[tuple[str, ...], Histogram], labels: tuple[str, ...]
) -> Metric:
    family = HistogramMetricFamily(name, says, labels=labels)
    for values, one in sorted(found.items()):
        family.add_metric(values, one.buckets(), one.total)
    return family


class _Together:
    """Collector that joins the metrics of several clusters, and names the cluster of each."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Metric]:
        """Yield each metric once, with the samples of all clusters."""
        families: dict[str, Metric] = {}
        for one in self._collectors:
            cluster = {"cluster": one.cluster}
            for family in one.collect():
                known = families.setdefault(family.name, family)
                samples = [s._replace(labels={**cluster, **s.labels}) for s in family.samples]
                known.samples = samples if known is family else known.samples + samples
        return families.values()


def exposition(*collectors: Collector) -> bytes:
    """Return the text for Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Together(collectors))
    return generate_latest(registry)
