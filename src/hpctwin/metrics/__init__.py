"""What a schedule was worth: metrics of jobs, of the system over time, of fairness.

Every definition, with unit and source, is in ``docs/metrics.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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
    from hpctwin.metrics.studies.incentives import INCENTIVES, Incentive, rewarded
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
    "INCENTIVES",
    "METRICS",
    "TAU_S",
    "Accounts",
    "AccountsBy",
    "By",
    "Incentive",
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
    "rewarded",
    "series",
    "served",
    "summarize",
    "unfair_delay",
    "values_needed",
    "widths_s",
    "with_job_metrics",
]

_HOME = {
    "Accounts": "studies.accounts",
    "AccountsBy": "studies.accounts",
    "By": "jobs.breakdown",
    "INCENTIVES": "studies.incentives",
    "Incentive": "studies.incentives",
    "METRICS": "registry",
    "MeanInterval": "studies.paired",
    "Metric": "registry",
    "Summary": "summary.summary",
    "TAU_S": "registry",
    "binned": "time.series",
    "breakdown": "jobs.breakdown",
    "capacity_conflicts": "studies.conflicts",
    "collect_accounts": "studies.accounts",
    "dependency_violations": "time.resources",
    "jain": "jobs.fairness",
    "kiviat_area": "studies.kiviat",
    "kiviat_scores": "studies.kiviat",
    "mean_interval": "studies.paired",
    "mean_summaries": "studies.paired",
    "paired_differences": "studies.paired",
    "read_accounts": "studies.accounts",
    "resample": "time.series",
    "resource_use": "time.resources",
    "resource_utilization": "time.resources",
    "rewarded": "studies.incentives",
    "series": "time.series",
    "served": "jobs.jobs",
    "summarize": "summary.summary",
    "unfair_delay": "jobs.fairness",
    "values_needed": "studies.paired",
    "widths_s": "time.series",
    "with_job_metrics": "jobs.jobs",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
