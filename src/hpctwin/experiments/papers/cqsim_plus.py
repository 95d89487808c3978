"""CQSim+'s tables and figures with results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from hpctwin.experiments import cqsim_plus
from hpctwin.experiments.cqsim_plus_cases import CASES, EXCHANGED, PUBLISHED_WAYS
from hpctwin.experiments.entries import NO_NUMBERS, Entry, Finding, Made

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hpctwin.facility import FacilityResult

__all__ = ["entries"]


@cache
def _cqsim_rows(case: str) -> tuple[cqsim_plus.Row, ...]:
    return tuple(cqsim_plus.run_case_by_rule(case, CASES[case].workload()[0], seeds=1))


def _binned(case: str, by: str) -> Made:
    findings = []
    for row in _cqsim_rows(case):
        # What is drawn by chance was drawn otherwise in the paper.
        within = 0.001 if row.strategy == "sgs-t" else 0.15
        unit = "nodes" if by == "size" else "min"
        findings += [
            Finding(
                f"{row.strategy}, {one['bin']} {unit}, mean wait, min",
                one["published_wait_min"],
                one["mean_wait_min"],
                within,
            )
            for one in row.bins[by]
            if one["published_wait_min"] is not None and one["mean_wait_min"] is not None
        ]
        if row.published_wait_min is not None:
            findings.append(
                Finding(
                    f"{row.strategy}, all, mean wait, min",
                    row.published_wait_min,
                    row.mean_wait_min,
                    within,
                )
            )
    return Made(findings)


def _ways() -> Made:
    findings = []
    for row in _cqsim_rows("theta-polaris"):
        for way, (origin, cluster, jobs, alone_s, wait_s) in zip(
            row.ways, PUBLISHED_WAYS, strict=False
        ):
            title = f"{origin} to {cluster}"
            findings += [
                Finding(f"{title}, jobs", jobs, way.jobs, 0.001, ",.0f"),
                Finding(
                    f"{title}, mean wait siloed, s",
                    alone_s,
                    60 * (way.siloed_min or 0.0),
                    0.001,
                    ",.0f",
                ),
                Finding(f"{title}, mean wait, s", wait_s, 60 * way.mean_wait_min, 0.001, ",.0f"),
            ]
    return Made(findings)


@cache
def _placed(case: str) -> dict[str, FacilityResult]:
    chosen = CASES[case].strategies()[:3]
    kept = [one for one in chosen if one.name != "user(0.6)" or case == "heterogeneous"]
    return cqsim_plus.run_case(case, CASES[case].workload()[0], kept[:2], seeds=1)[1]


def _weeks(case: str, name: str) -> Made:
    results = _placed(case)

    def draw() -> Figure:
        from hpctwin.report.facility import plot_weeks

        return plot_weeks({label: one.weeks for label, one in results.items()})

    return Made(figures={name: draw})


def _by_cluster(name: str) -> Made:
    results = _placed("theta-polaris")
    case = CASES["theta-polaris"]
    jobs = {label: one.jobs for label, one in results.items()}

    def draw() -> Figure:
        from hpctwin.report.facility import plot_moved, plot_waits_by_size

        if name == "cqsim-plus-figure-7":
            return plot_waits_by_size(jobs, case.sizes)
        origin, cluster = case.facility.names
        return plot_moved(jobs, origin=origin, cluster=cluster)

    return Made(figures={name: draw})


_THETA = "Theta's year 2022"
_BOTH = "Polaris and Theta, September to December 2023"
_CHANCE = (
    "random and user(0.6) draw clusters, and drew others in the paper; so does SGS-T where both clusters "
    "would end a job at once, as alike ones often would"
)


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    for number, case, by in (
        (1, "homogeneous", "size"),
        (2, "homogeneous", "walltime"),
        (3, "heterogeneous", "size"),
        (4, "heterogeneous", "walltime"),
    ):
        yield entry(
            f"cqsim-plus-table-{number}",
            shows=f"waits by {by}, {case} clusters",
            config=f"{_THETA}, by CQSim+'s own rule, seed 0",
            because=_CHANCE,
            make=partial(_binned, case, by),
            more=f"hpctwin experiment cqsim-plus --case {case}",
        )
    yield entry(
        "cqsim-plus-table-5",
        shows="waits by where jobs came from and went",
        config=f"{_BOTH}, by CQSim+'s own rule",
        because=EXCHANGED.rstrip("."),
        make=_ways,
        more="hpctwin experiment cqsim-plus --case theta-polaris",
    )
    for number, case in ((5, "homogeneous"), (6, "heterogeneous")):
        name = f"cqsim-plus-figure-{number}"
        yield entry(
            name,
            shows=f"utilization and jobs by week, {case} clusters",
            config=f"{_THETA}, seed 0, by our rule",
            because=NO_NUMBERS,
            make=partial(_weeks, case, name),
        )
    for number, shows in (
        (7, "waits and jobs by size on Polaris and Theta"),
        (8, "jobs of Polaris that ran on Theta"),
    ):
        name = f"cqsim-plus-figure-{number}"
        yield entry(
            name,
            shows=shows,
            config=f"{_BOTH}, by our rule",
            because=NO_NUMBERS,
            make=partial(_by_cluster, name),
        )
