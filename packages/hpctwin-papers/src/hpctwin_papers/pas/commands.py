"""``hpctwin experiment``: the command of PAS."""

from __future__ import annotations

from pathlib import Path

from hpctwin_papers.options import Count, Methods, given
from hpctwin_papers.output import run_and_show

__all__ = ["pas"]


def pas(
    *,
    seeds: Count = 10,
    jobs: Count = 5000,
    method: Methods = (),
    failures: float = 0.0,
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """PAS: jobs that depend on each other and share four resources, beside its Table I.

    Times are milliseconds. Dependencies hold under every method; "if ignored" is what the violations
    would be if the scheduler were not told of them.

    Args:
        seeds: how many workloads, with seeds 0, 1, ….
        jobs: of each workload.
        method: fcfs, sjf, pfm, pas-published, easy, adaptive; all if left out.
        failures: share of the jobs that fail, for what prediction is worth; 0 for none, as in the paper.
        plot: file for a heat map of resources in use over time, of seed 0 (.png, .svg, .pdf).
        json: print one row per method and seed as JSON.
    """
    from hpctwin_papers.pas.experiment import Pas

    experiment = Pas(seeds, jobs=jobs, failures=failures, **given(methods=method))
    return run_and_show(experiment, plot=plot, json=json)
