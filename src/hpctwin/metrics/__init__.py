"""Metrics of schedules: of jobs, of the system over time, and of fairness.

Every definition, with unit and source, is in ``docs/reference/metrics.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.metrics.jobs.breakdown import By, breakdown
    from hpctwin.metrics.jobs.fairness import jain, unfair_delay
    from hpctwin.metrics.jobs.jobs import served, with_job_metrics
    from hpctwin.metrics.registry import METRICS, TAU_S, Metric
    from hpctwin.metrics.studies.accounts import (
        Accounts,
        AccountsBy,
        collect_accounts,
        read_accounts,
    )
    from hpctwin.metrics.studies.conflicts import capacity_conflicts
    from hpctwin.metrics.studies.kiviat import kiviat_area, kiviat_scores
    from hpctwin.metrics.studies.paired import (
        MeanInterval,
        mean_interval,
        mean_summaries,
        paired_differences,
        values_needed,
    )
    from hpctwin.metrics.summary.summary import Summary, summarize
    from hpctwin.metrics.time.resources import (
        dependency_violations,
        resource_use,
        resource_utilization,
    )
    from hpctwin.metrics.time.series import binned, resample, series, widths_s

__all__ = [
    "METRICS",
    "TAU_S",
    "Accounts",
    "AccountsBy",
    "By",
    "MeanInterval",
    "Metric",
    "Summary",
    "binned",
    "breakdown",
    "capacity_conflicts",
    "collect_accounts",
    "dependency_violations",
    "jain",
    "kiviat_area",
    "kiviat_scores",
    "mean_interval",
    "mean_summaries",
    "paired_differences",
    "read_accounts",
    "resample",
    "resource_use",
    "resource_utilization",
    "series",
    "served",
    "summarize",
    "unfair_delay",
    "values_needed",
    "widths_s",
    "with_job_metrics",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "jobs.breakdown": ("By", "breakdown"),
        "jobs.fairness": ("jain", "unfair_delay"),
        "jobs.jobs": ("served", "with_job_metrics"),
        "registry": ("METRICS", "TAU_S", "Metric"),
        "studies.accounts": ("Accounts", "AccountsBy", "collect_accounts", "read_accounts"),
        "studies.conflicts": ("capacity_conflicts",),
        "studies.kiviat": ("kiviat_area", "kiviat_scores"),
        "studies.paired": (
            "MeanInterval",
            "mean_interval",
            "mean_summaries",
            "paired_differences",
            "values_needed",
        ),
        "summary.summary": ("Summary", "summarize"),
        "time.resources": ("dependency_violations", "resource_use", "resource_utilization"),
        "time.series": ("binned", "resample", "series", "widths_s"),
    },
)
