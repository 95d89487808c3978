"""Savings in CarbonScaler's abstract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.carbonscaler.experiment import Alone
from hpctwin_papers.entry import Entry

__all__ = ["entries"]


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    yield entry(
        "carbonscaler-savings",
        shows="what scaling a job by the carbon intensity saves",
        config="180 jobs of 24 h of its N-body profile, 1 to 7 nodes, one every other day, deadline 48 h, "
        "California 2022, all known; `hpctwin_papers.carbonscaler.experiment.alone`",
        because="the region, the start times, the deadline and the mix of jobs behind the abstract's numbers "
        "are not given with them",
        experiment=Alone(),
    )
