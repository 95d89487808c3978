"""RLScheduler's table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.entry import Entry
from hpctwin_papers.rlscheduler.experiment import RLScheduler

__all__ = ["entries"]


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    config = "Ten sequences of 1,024 jobs, drawn by its seed; what is selected is waited for"
    of_table = partial(entry, more="hpctwin experiment rlscheduler --seeds 5")
    lublin = ("Lublin-1", "Lublin-2")
    yield of_table(
        "rlscheduler-table-5",
        shows="mean bounded slowdown without backfilling, Lublin's model",
        config=f"{config}. WFP3 and UNICEP as they are there: waits are taken from a start of -1",
        experiment=RLScheduler(lublin, passing=(False,)),
    )
    yield of_table(
        "rlscheduler-table-5-backfilling",
        shows="the same with backfilling",
        config=config,
        because="here all that happens at one time comes before a pass, there each event by itself",
        experiment=RLScheduler(lublin, passing=(True,)),
    )
    yield of_table(
        "rlscheduler-table-5-hpc2n",
        shows="the same, HPC2N",
        config=config,
        because="our copy of the log has only jobs that were completed, so the sequences are of other jobs",
        experiment=RLScheduler(("HPC2N",)),
    )
