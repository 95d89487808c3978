"""SchedTwin's figures and table with results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from hpctwin.errors import WorkloadError
from hpctwin.experiments import schedtwin
from hpctwin.experiments.entries import NO_NUMBERS, SEEDS, Entry, Finding, Made
from hpctwin.experiments.traces import find_trace
from hpctwin.formats import read_workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["entries"]


@cache
def _schedtwin_rows() -> tuple[schedtwin.Row, ...]:
    return tuple(schedtwin.means([row for one in schedtwin.run_seeds(range(SEEDS)) for row in one]))


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


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    config = f"Four-phase workload, 150 jobs, 32 nodes, seeds 0 to {SEEDS - 1}, means"
    yield entry(
        "schedtwin-figure-1",
        shows="jobs of Polaris by size and time",
        config="The jobs of 2023 of Polaris",
        because=f"the paper's two months of 2024 are not here, and {NO_NUMBERS}",
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
