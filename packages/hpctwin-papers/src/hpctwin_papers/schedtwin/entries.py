"""SchedTwin's figures and table with results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.entry import NO_NUMBERS, Entry
from hpctwin_papers.experiment import SEEDS
from hpctwin_papers.schedtwin import experiment


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    four_phases = partial(
        entry,
        config=f"Four-phase workload, 150 jobs, 32 nodes, seeds 0 to {SEEDS - 1}, means",
        experiment=experiment.SchedTwin(),
    )
    yield entry(
        "schedtwin-figure-1",
        shows="jobs of Polaris by size and time",
        config="Jobs of Polaris in 2023",
        because=f"the paper's data, two months of 2024, are not available, and {NO_NUMBERS}",
        other_data=True,
        experiment=experiment.Polaris(),
    )
    yield four_phases(
        "schedtwin-figure-3",
        shows="area of four methods in a Kiviat chart",
        because="the paper does not state the runtimes of jobs or how it normalizes axes; the twin has the "
        "largest area in both",
        more="hpctwin experiment schedtwin --seeds 20",
    )
    yield four_phases(
        "schedtwin-table-1",
        shows="share of jobs started under each policy",
        because="the runtimes are not published; the order of the shares is the same",
    )
