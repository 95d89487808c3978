"""A year of Theta under several policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hpctwin.formats import read_workload
from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.report.accessor import report_results
from hpctwin.report.columns import Table, best_labels, format_metric, shown_columns
from hpctwin.simulation import Result, simulate
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results
from hpctwin_papers.traces import find_trace

NODES = 4360
POLICIES = ("fcfs+none", "fcfs+easy", "fcfs+conservative", "sjf+easy", "wfp+easy")
REPORT = "theta-year.html"


def workload() -> tuple[Workload, str]:
    """Return the real trace of 2022 or a generated year, and its description."""
    path = find_trace("theta_2022.swf")
    if path is not None:
        return read_workload(path), "the real trace of Theta, 2022"
    return generate("theta-year"), (
        "a generated year with the statistics of Theta's 2022 (set HPCTWIN_TRACES to a folder with "
        "theta_2022.swf for the real one)"
    )


@dataclass(frozen=True)
class ThetaYear(Experiment[tuple[Workload, str, str], tuple[str, str, Result]]):
    """The year under each policy.

    Args:
        policies: The policies.
    """

    policies: tuple[str, ...] = POLICIES
    title = "a year of Theta"

    def points(self) -> Sequence[tuple[Workload, str, str]]:
        """See `Experiment`; jobs, their description, policy."""
        jobs, origin = workload()
        return [(jobs, origin, policy) for policy in self.policies]

    def run(self, point: tuple[Workload, str, str], progress: Progress) -> tuple[str, str, Result]:
        """See `Experiment`."""
        jobs, origin, policy = point
        return policy, origin, simulate(jobs, Cluster.uniform(nodes=NODES, name="theta"), policy)

    def results(self, found: Sequence[tuple[str, str, Result]]) -> Results:
        """See `Experiment`."""
        results = {policy: result for policy, _, result in found}
        origin, jobs = found[0][1], len(found[0][2].workload)
        summaries = {
            name: {**result.summary(), "engine_ms": 1000 * result.engine_s}
            for name, result in results.items()
        }
        columns = shown_columns(summaries.values())
        best = [best_labels(column, summaries) for column in columns]
        rows = [
            [
                name,
                *(
                    format_metric(column.key, summary.get(column.key)) + "*" * (name in labels)
                    for column, labels in zip(columns, best, strict=True)
                ),
            ]
            for name, summary in summaries.items()
        ]
        heads = ["policy", *(column.short or column.header for column in columns)]
        title = "A year of Theta under five policies"
        return Results(
            tables=[Table(heads, rows, caption="* best of its column")],
            about=f"{origin}: {jobs:,} jobs on {NODES:,} nodes",
            rows=list(summaries.values()),
            files={REPORT: partial(report_results, results=results, title=title, intro=origin)},
        )
