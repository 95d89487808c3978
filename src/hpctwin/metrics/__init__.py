"""Metrics of schedules: of jobs, of the system over time, and of fairness.

Every definition, with unit and source, is in ``docs/reference/metrics.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.metrics.accounts import (
        Accounts,
        AccountsBy,
        collect_accounts,
        read_accounts,
    )
    from hpctwin.metrics.comparison import (
        MeanInterval,
        PairedChange,
        capacity_conflicts,
        kiviat_area,
        kiviat_scores,
        mean_interval,
        mean_summaries,
        min_sample_size,
        paired_change,
        paired_differences,
    )
    from hpctwin.metrics.jobs import By, breakdown, jain, served, unfair_delay, with_job_metrics
    from hpctwin.metrics.registry import METRICS, TAU_S, Metric
    from hpctwin.metrics.summary import Summary, summarize
    from hpctwin.metrics.time_series import (
        binned,
        dependency_violations,
        durations_s,
        resample,
        resource_use,
        resource_utilization,
        series,
    )

__all__ = [
    "METRICS",
    "TAU_S",
    "Accounts",
    "AccountsBy",
    "By",
    "MeanInterval",
    "Metric",
    "PairedChange",
    "Summary",
    "binned",
    "breakdown",
    "capacity_conflicts",
    "collect_accounts",
    "dependency_violations",
    "durations_s",
    "jain",
    "kiviat_area",
    "kiviat_scores",
    "mean_interval",
    "mean_summaries",
    "min_sample_size",
    "paired_change",
    "paired_differences",
    "read_accounts",
    "resample",
    "resource_use",
    "resource_utilization",
    "series",
    "served",
    "summarize",
    "unfair_delay",
    "with_job_metrics",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "jobs": ("By", "breakdown", "jain", "unfair_delay", "served", "with_job_metrics"),
        "registry": ("METRICS", "TAU_S", "Metric"),
        "accounts": (
            "Accounts",
            "AccountsBy",
            "collect_accounts",
            "read_accounts",
        ),
        "comparison": (
            "kiviat_area",
            "kiviat_scores",
            "MeanInterval",
            "capacity_conflicts",
            "PairedChange",
            "mean_interval",
            "mean_summaries",
            "paired_change",
            "paired_differences",
            "min_sample_size",
        ),
        "summary": ("Summary", "summarize"),
        "time_series": (
            "dependency_violations",
            "resource_use",
            "resource_utilization",
            "binned",
            "resample",
            "series",
            "durations_s",
        ),
    },
)
