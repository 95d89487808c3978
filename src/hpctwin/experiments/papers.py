"""Every table and figure with results in the five papers, and RLScheduler's, and how each is made again.

Diagrams and descriptions (SPARS figure 2 and tables 1 to 4, CQSim+ figures 1 to 4, SchedTwin figure 2, PAS
figure 1, S-RAPS figures 1 to 3 and 9 and table 1) have no results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctwin.errors import UnknownNameError, WorkloadError
from hpctwin.experiments import cqsim_plus, pas, rlscheduler, schedtwin, spars
from hpctwin.experiments.cqsim_plus_cases import CASES, EXCHANGED, PUBLISHED_WAYS
from hpctwin.experiments.entries import Entry, Finding, Made
from hpctwin.experiments.spars_published import TIMEOUTS_S, published
from hpctwin.experiments.traces import find_trace
from hpctwin.formats import read_workload
from hpctwin.generate import generate
from hpctwin.model import Workload
from hpctwin.simulation import Result, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hpctwin.facility import FacilityResult

__all__ = ["ENTRIES", "find_entry"]

_SEEDS = 10


@cache
def _nasa() -> Workload:
    return spars.workload()


def _batched() -> Made:
    """Jobs 1 and 2 end at the same instant, while jobs 3 and 4 wait."""
    jobs = Workload.build(
        job_id=[1, 2, 3, 4], submit_s=[0.0, 0.0, 1.0, 2.0], runtime_s=[10.0, 10.0, 5.0, 5.0], nodes=[1, 1,
        2, 1], name="figure 1",
    )  # fmt: skip
    result = simulate(jobs, 2, "fcfs+easy", track_nodes=True)
    start = dict(result.jobs.select("job_id", "start_s").iter_rows())
    wanted = {3: 10.0, 4: 15.0}
    return Made(
        [
            Finding(f"start of job {job}, s (jobs 1 and 2 end at 10)", at, start[job], 0.0, "g")
            for job, at in wanted.items()
        ],
        {"spars-figure-1": partial(_gantt, result, "Two ends at one instant, then one pass")},
    )


def _gantt(result: Result, title: str) -> Figure:
    from hpctwin.report import plot_gantt

    nodes = result.cluster.node_count
    return plot_gantt(result.jobs, result.node_map, nodes=nodes, title=title)


def _easy_gantt() -> Made:
    jobs = generate("poisson", jobs=200, nodes=16, load=0.9, seed=0)
    result = simulate(jobs, 16, "fcfs+easy", overrun="terminate", track_nodes=True)
    draw = partial(_gantt, result, "200 jobs on 16 nodes, EASY")
    return Made(figures={"spars-figure-3": draw})


@cache
def _spars_rows() -> tuple[spars.Row, ...]:
    return tuple(spars.run(_nasa()))


def _six_schedulers() -> Made:
    rows = _spars_rows()
    findings = []
    for name in spars.SCHEDULERS:
        rule = "as-published" if name.startswith("fcfs") else "sound"
        own = [row for row in rows if (row.scheduler, row.rule) == (name, rule) and row.published]
        theirs = [row.published for row in own if row.published is not None]
        for what, here, there, form in (
            ("total energy, GJ", [r.total_energy_j / 1e9 for r in own], [c.total_j / 1e9 for c in theirs],
            ".3f"), ("mean wait, s", [r.mean_wait_s for r in own], [c.mean_wait_s for c in theirs], ",.1f"),
        ):  # fmt: skip
            title = f"{name}, {what}, mean over 12 timeouts"
            findings.append(
                Finding(title, float(np.mean(there)), float(np.mean(here)), 0.001, form)
            )

    def draw() -> Figure:
        from hpctwin.report import plot_energy_against_wait

        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row.rule == "sound" and row.scheduler.startswith("easy"):
                curves.setdefault(row.scheduler, []).append((row.total_energy_j, row.mean_wait_s))
        cells = {
            f"{name} (SPARS)": [
                (cell.total_j, cell.mean_wait_s)
                for timeout_s in TIMEOUTS_S
                if (cell := published(name, timeout_s)) is not None
            ]
            for name in curves
        }
        return plot_energy_against_wait(curves, published=cells)

    return Made(findings, {"spars-figure-4": draw})


_SPARS_S = (16.21, 15.22, 14.56, 14.27, 13.90, 13.54, 14.02, 14.36, 12.66, 13.18, 12.67, 12.52)
"""Table 5: run time of SPARS by timeout, seconds."""


def _run_times() -> Made:
    findings = []
    spars.simulate_cell(_nasa(), "easy-psus", 0)  # compiled, where it is not yet
    for timeout_s, theirs in zip(TIMEOUTS_S, _SPARS_S, strict=True):
        begin = time.process_time()
        spars.simulate_cell(_nasa(), "easy-psus", timeout_s)
        spent = time.process_time() - begin
        minutes = f"{timeout_s / 60:g}"
        findings.append(
            Finding(f"run time with a timeout of {minutes} min, s", theirs, spent, 0.1, ".3f")
        )
    return Made(findings)


@cache
def _pas_rows() -> tuple[pas.Row, ...]:
    rows: list[pas.Row] = []
    for own, _ in pas.run_seeds(range(_SEEDS), methods=tuple(pas.PUBLISHED)):
        rows += own
    return tuple(pas.means(rows))


def _pas_table() -> Made:
    findings = []
    for row in _pas_rows():
        paper = pas.PUBLISHED[row.method]
        findings += [
            Finding(f"{row.method}, makespan, ms", paper.makespan, row.makespan, pas.NEAR, ",.0f"),
            Finding(f"{row.method}, mean wait, ms", paper.mean_wait, row.mean_wait, pas.NEAR),
            Finding(
                f"{row.method}, jobs that violate a dependency", paper.dependency_violations,
                row.dependency_violations, pas.NEAR, ",.0f",
            ),
        ]  # fmt: skip
    return Made(findings)


def _pas_bars() -> Figure:
    from hpctwin.report import plot_compare_bars
    from hpctwin.report.columns import Column

    bars: dict[str, dict[str, Any]] = {}
    for row in _pas_rows():
        paper = pas.PUBLISHED[row.method]
        for label, makespan, wait in (
            (f"{row.method} (paper)", paper.makespan, paper.mean_wait),
            (f"{row.method} (here)", row.makespan, row.mean_wait),
        ):
            bars[label] = {"makespan_ms": makespan, "mean_wait_ms": wait}
    shown = [
        Column("makespan_ms", "makespan, ms", "low"),
        Column("mean_wait_ms", "mean wait, ms", "low"),
    ]
    return plot_compare_bars(bars, shown, title="PAS, figure 2: published and here")


@cache
def _schedtwin_rows() -> tuple[schedtwin.Row, ...]:
    return tuple(
        schedtwin.means([row for one in schedtwin.run_seeds(range(_SEEDS)) for row in one])
    )


def _radar() -> Made:
    rows = _schedtwin_rows()

    def draw() -> Figure:
        from hpctwin.report import plot_radar

        return plot_radar({row.method: row.plain() for row in rows}, title="SchedTwin, figure 3")

    findings = [
        Finding(
            f"area of {row.method}", schedtwin.PUBLISHED_AREA[row.method], row.area, 0.05, ".2f"
        )
        for row in rows
    ]
    return Made(findings, {"schedtwin-figure-3": draw})


def _shares() -> Made:
    twin = next(row for row in _schedtwin_rows() if row.method == schedtwin.TWIN)
    return Made(
        [
            Finding(
                f"jobs started under {name}, %", 100 * share, 100 * twin.share_by_policy[name], 0.05
            )
            for name, share in schedtwin.PUBLISHED_SHARE.items()
        ]
    )


def _polaris() -> Made:
    path = find_trace("Polaris-2023-schedulus.swf")
    if path is None:
        raise WorkloadError(
            "put Polaris-2023-schedulus.swf into the folder that HPCTWIN_TRACES names"
        )
    jobs = read_workload(path)

    def draw() -> Figure:
        from hpctwin.report import plot_workload

        return plot_workload(jobs, title=f"Jobs of Polaris, 2023: {len(jobs):,}")

    return Made(figures={"schedtwin-figure-1": draw})


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
_NO_NUMBERS = "the paper prints no numbers of it"
_PAS_OPEN = (
    "the paper gives no distributions, runtimes or seed: they were chosen so that FCFS comes out. PAS as "
    "published takes longer, and dependencies hold here under every method"
)


def _of_spars(entry: partial[Entry]) -> Iterator[Entry]:
    yield entry(
        "spars-figure-1",
        shows="two ends at one instant, and what is started then",
        config="Four jobs on two nodes, EASY",
        make=_batched,
    )
    yield entry(
        "spars-figure-3",
        shows="Gantt chart of 200 jobs under EASY",
        config="200 generated jobs, seed 0, 16 nodes",
        because=f"its workload is not published, and {_NO_NUMBERS}",
        make=_easy_gantt,
    )
    yield entry(
        "spars-figure-4",
        shows="energy and waiting of six schedulers",
        config="Last fifth of NASA iPSC/860, 128 nodes, timeouts of 5 to 60 min; FCFS by the published rule, "
        "EASY by the sound one",
        because="SPARS's EASY forms have faults that the sound rule has not; what each moves is told by the "
        "command",
        make=_six_schedulers,
        more="hpctwin experiment spars --more",
    )
    yield entry(
        "spars-table-5",
        shows="run time of EASY with PSUS by timeout",
        config="As figure 4; processor time",
        because="it is another program on another machine",
        make=_run_times,
    )


def _of_pas(entry: partial[Entry]) -> Iterator[Entry]:
    config = f"5,000 jobs, seeds 0 to {_SEEDS - 1}, means"
    yield entry(
        "pas-table-1",
        shows="makespan, mean wait and violations of four schedulers",
        config=config,
        because=_PAS_OPEN,
        make=_pas_table,
        more="hpctwin experiment pas",
    )
    yield entry(
        "pas-figure-2",
        shows="the same as bars",
        config=config,
        because=_PAS_OPEN,
        make=lambda: Made(_pas_table().findings, {"pas-figure-2": _pas_bars}),
    )


def _of_schedtwin(entry: partial[Entry]) -> Iterator[Entry]:
    config = f"Four-phase workload, 150 jobs, 32 nodes, seeds 0 to {_SEEDS - 1}, means"
    yield entry(
        "schedtwin-figure-1",
        shows="jobs of Polaris by size and time",
        config="The jobs of 2023 of Polaris",
        because=f"the paper's two months of 2024 are not here, and {_NO_NUMBERS}",
        make=_polaris,
    )
    yield entry(
        "schedtwin-figure-3",
        shows="area of four methods in a Kiviat chart",
        config=config,
        because="the paper does not say how long jobs run nor how axes are normalised; the twin has the "
        "largest area in both",
        make=_radar,
        more="hpctwin experiment schedtwin --seeds 20",
    )
    yield entry(
        "schedtwin-table-1",
        shows="share of jobs started under each policy",
        config=config,
        because="runtimes are not published; the order of the shares is the same",
        make=_shares,
    )


def _of_cqsim_plus(entry: partial[Entry]) -> Iterator[Entry]:
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
            because=_NO_NUMBERS,
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
            because=_NO_NUMBERS,
            make=partial(_by_cluster, name),
        )


def _of_s_raps(entry: partial[Entry]) -> Iterator[Entry]:
    ours = "hpctwin experiment s-raps"
    for number, shows, lacks, more in (
        (4, "17 h of Marconi100 under four schedules", "PM100 is not here", f"{ours} FILE"),
        (
            5,
            "15 days of Adastra under four schedules",
            "Adastra's jobs are not here",
            f"{ours} FILE",
        ),
        (
            6,
            "a day of Frontier with cooling",
            "Frontier's telemetry is not public",
            f"{ours} FOLDER",
        ),
        (7, "a trace scheduled by FastSim", "FastSim is not public", f"{ours}-schedulers"),
        (8, "incentives by accounts", "PM100 is not here", f"{ours}-incentives FILE"),
        (
            10,
            "scheduling guided by learned prediction",
            "F-DATA, with measured power, is not here; waits on Theta's year can be made",
            f"{ours}-ml",
        ),
    ):
        yield entry(f"s-raps-figure-{number}", shows=shows, because=lacks, more=more)


ENTRIES: dict[str, Entry] = {
    one.name: one
    for paper, of in {
        "SPARS": _of_spars,
        "PAS": _of_pas,
        "SchedTwin": _of_schedtwin,
        "CQSim+": _of_cqsim_plus,
        "S-RAPS": _of_s_raps,
        "RLScheduler": rlscheduler.entries,
    }.items()
    for one in of(partial(Entry, paper=paper))
}
"""All of them, by name."""


def find_entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in ENTRIES:
        raise UnknownNameError("published table or figure", name, ENTRIES)
    return ENTRIES[name]
