"""Savings in CarbonScaler's abstract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.carbonscaler.experiment import Alone
from hpctwin_papers.entry import Entry


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    yield entry(
        "carbonscaler-savings",
        shows="savings from scaling a job by the carbon intensity",
        config="180 jobs of 24 h with the paper's N-body profile on 1 to 7 nodes, one every other day, "
        "deadline 48 h. California 2022, with perfect forecasts; "
        "`hpctwin_papers.carbonscaler.experiment.alone`",
        because="the abstract gives its numbers without the region, the start times, the deadline and the "
        "mix of jobs",
        experiment=Alone(),
    )
