"""``hpctwin experiment``: the command of PAS."""

from __future__ import annotations

from pathlib import Path

from hpctwin_papers.options import Count, Methods, given
from hpctwin_papers.output import run_and_show


def pas(
    *,
    seeds: Count = 10,
    jobs: Count = 5000,
    method: Methods = (),
    failures: float = 0.0,
    plot: Path | None = None,
    json: bool = False,
) -> int:
    """PAS: jobs with dependencies that share four resources, with its Table I.

    Times are in milliseconds. All methods obey dependencies; "if ignored" is the number of
    violations by a scheduler without knowledge of dependencies.

    Args:
        seeds: Number of workloads, with seeds 0, 1, ….
        jobs: Number of jobs in a workload.
        method: Method: fcfs, sjf, pfm, pas-published, easy, adaptive; default all. Repeatable.
        failures: Share of jobs that fail, to show the value of prediction; the paper has 0.
        plot: Write a heat map of resource use over time, for seed 0, to this file (.png, .svg,
            .pdf).
        json: Print one row per method and seed as JSON.
    """
    from hpctwin_papers.pas.experiment import Pas

    experiment = Pas(seeds, jobs=jobs, failures=failures, **given(methods=method))
    return run_and_show(experiment, plot=plot, json=json)
