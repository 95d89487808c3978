"""Savings in CarbonFlex's abstract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.carbonflex.experiment import Shared
from hpctwin_papers.entry import Entry


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    yield entry(
        "carbonflex-savings",
        shows="savings from provisioning and scheduling learned from an oracle",
        config="A week of GAIA's Alibaba trace: jobs of 1 to 24 h on 1 to 7 nodes, half of the cluster in "
        "use, slack 24 h. California 2022, forecasts with 5 % error, learned from the three weeks before; "
        "`hpctwin_papers.carbonflex.experiment.shared`",
        because="the abstract gives its numbers without the workloads, the region and the slack; the "
        "oracle's savings here (27.6 %) are the limit",
        experiment=Shared(),
    )
