"""Savings of CarbonScaler: long jobs on any number of nodes, by the carbon intensity.

W. A. Hanafy et al., CarbonScaler, Proc. ACM Meas. Anal. Comput. Syst. 7(3), 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hpctwin.energy import Series
from hpctwin.model import Cluster, Workload
from hpctwin.model.workload.malleable import parse_speedup
from hpctwin_papers.carbon import (
    CALIFORNIA,
    CAPTURED_S,
    MOST,
    PROFILE,
    Run,
    intensity,
    run_jobs,
    saving,
)
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results
from hpctwin_sizing import CarbonScaler, Slots


def alone(
    series: Series, *, jobs: int = 180, hours: float = 24, slack_s: float = CAPTURED_S
) -> list[Run]:
    """Simulate long jobs that begin every other day, with as many nodes as each wants.

    Returns:
        Results of four ways: at once on one node (``at once``), on one node in the cleanest hours
        (``suspend and resume``), on the best fixed number of nodes in the cleanest hours
        (``static``), and as CarbonScaler plans it (``carbonscaler``).
    """
    submit = np.arange(jobs) * 2 * 86_400.0
    curve = parse_speedup(PROFILE)

    def work(least: int, most: int) -> Workload:
        size = np.ones(jobs)
        runtime = hours * 3600 / float(curve.at(least))
        return Workload.build(
            submit_s=submit,
            runtime_s=runtime * size,
            nodes=least * size,
            malleable={
                "min_nodes": least * size, "max_nodes": most * size, "speedup": [PROFILE] * jobs,
                "suspendable": size,
            },
        )  # fmt: skip

    machine = Cluster.uniform(4 * MOST, active_w=1000, idle_w=0)
    # All ways have the deadline of a job that runs on one node.
    slots, end_s = Slots(series), hours * 3600 + slack_s

    def scaled(least: int, most: int, name: str) -> Run:
        jobs_ = work(least, most)
        slack = end_s - float(jobs_.walltime_ms[0]) / 1000
        return run_jobs(name, jobs_, machine, series, end_s, CarbonScaler(slots, slack))

    fixed = [scaled(nodes, nodes, "static") for nodes in range(1, MOST + 1)]
    return [
        run_jobs("at once", work(1, 1), machine, series, end_s, None),
        Run("suspend and resume", *_figures(fixed[0])),
        min(fixed, key=lambda one: one.emitted_kg),
        scaled(1, MOST, "carbonscaler"),
    ]


def _figures(run: Run) -> tuple[float, float, int]:
    return run.emitted_kg, run.turnaround_h, run.late


@dataclass(frozen=True)
class Alone(Experiment[None, list[Run]]):
    """Long jobs, each with as many nodes as it wants; see `alone`."""

    title = "jobs by the carbon intensity"
    data = (CALIFORNIA,)

    def points(self) -> Sequence[None]:
        """See `Experiment`; one point, because the best fixed size depends on all sizes."""
        return [None]

    def run(self, point: None, progress: Progress) -> list[Run]:
        """See `Experiment`."""
        return alone(intensity())

    def results(self, found: Sequence[list[Run]]) -> Results:
        """See `Experiment`."""
        by_name = {run.name: run.emitted_kg for run in found[0]}
        findings = [
            saving(f"emissions below {what}, %", published, by_name["carbonscaler"], by_name[name],
                  "carbonscaler-savings")
            for what, name, published in (
                ("those of running at once", "at once", 51),
                ("those of suspending and resuming", "suspend and resume", 37),
                ("those of the best fixed size", "static", 8),
            )
        ]  # fmt: skip
        return Results(findings, rows=[asdict(run) for run in found[0]])
