"""Savings in CarbonFlex's abstract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.carbonflex.experiment import Shared
from hpctwin_papers.entry import Entry

__all__ = ["entries"]


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    yield entry(
        "carbonflex-savings",
        shows="what provisioning and scheduling learnt from an oracle saves",
        config="A week of GAIA's Alibaba trace, jobs of 1 to 24 h on 1 to 7 nodes, half the machine in use, "
        "slack 24 h, California 2022, forecast with 5 % error, learnt of the three weeks before; "
        "`hpctwin_papers.carbonflex.experiment.shared`",
        because="the workloads, the region and the slack behind the abstract's numbers are not given with "
        "them; what the oracle saves here (27.6 %) sets the limit",
        experiment=Shared(),
    )
