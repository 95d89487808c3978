"""What the abstracts of CarbonScaler and CarbonFlex say is saved."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin.experiments import malleable
from hpctwin.experiments.entries import Entry, Finding, Made

__all__ = ["carbonflex", "carbonscaler"]


def _carbonscaler() -> Made:
    by_name = {run.name: run for run in malleable.alone(malleable.intensity())}
    scaled = by_name["carbonscaler"].emitted_kg
    return Made(
        [
            Finding(
                f"emissions below {what}, %",
                published,
                100 * (1 - scaled / by_name[name].emitted_kg),
                0.05,
            )
            for what, name, published in (
                ("those of running at once", "at once", 51),
                ("those of suspending and resuming", "suspend and resume", 37),
                ("those of the best fixed size", "static", 8),
            )
        ]
    )


def _carbonflex() -> Made:
    by_name = {run.name: run for run in malleable.shared()}
    flex = by_name["carbonflex"].emitted_kg
    return Made(
        [
            Finding(
                "emissions below those of FCFS with EASY, %",
                57,
                100 * (1 - flex / by_name["fcfs+easy"].emitted_kg),
                0.05,
            ),
            Finding(
                "emissions above the oracle's, %",
                2.1,
                100 * (flex / by_name["oracle"].emitted_kg - 1),
                0.05,
            ),
        ]
    )


def carbonscaler(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    yield entry(
        "carbonscaler-savings",
        shows="what scaling a job by the carbon intensity saves",
        config="180 jobs of 24 h of its N-body profile, 1 to 7 nodes, one every other day, deadline 48 h, "
        "California 2022, all known; `hpctwin.experiments.malleable.alone`",
        because="the region, the start times, the deadline and the mix of jobs behind the abstract's numbers "
        "are not given with them",
        make=_carbonscaler,
    )


def carbonflex(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    yield entry(
        "carbonflex-savings",
        shows="what provisioning and scheduling learnt from an oracle saves",
        config="A week of GAIA's Alibaba trace, jobs of 1 to 24 h on 1 to 7 nodes, half the machine in use, "
        "slack 24 h, California 2022, forecast with 5 % error, learnt of the three weeks before; "
        "`hpctwin.experiments.malleable.shared`",
        because="the workloads, the region and the slack behind the abstract's numbers are not given with "
        "them; what the oracle saves here (27.6 %) sets the limit",
        make=_carbonflex,
    )
