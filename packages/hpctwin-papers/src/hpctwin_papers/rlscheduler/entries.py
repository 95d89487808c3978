"""RLScheduler's table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.entry import Entry
from hpctwin_papers.rlscheduler.experiment import RLScheduler


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    config = (
        "Ten sequences of 1,024 jobs, drawn with the paper's seed; "
        "the scheduler waits for the selected job"
    )
    of_table = partial(entry, more="hpctwin experiment rlscheduler --seeds 5")
    lublin = ("Lublin-1", "Lublin-2")
    yield of_table(
        "rlscheduler-table-5",
        shows="mean bounded slowdown without backfilling, Lublin's model",
        config=f"{config}. WFP3 and UNICEP as in RLScheduler's code: waits are computed from a start of −1",
        experiment=RLScheduler(lublin, passing=(False,)),
    )
    yield of_table(
        "rlscheduler-table-5-backfilling",
        shows="mean bounded slowdown with backfilling, Lublin's model",
        config=config,
        because="hpctwin applies all events of one time before a pass, RLScheduler each event alone",
        experiment=RLScheduler(lublin, passing=(True,)),
    )
    yield of_table(
        "rlscheduler-table-5-hpc2n",
        shows="mean bounded slowdown without and with backfilling, HPC2N",
        config=config,
        because="the available copy of the log has only completed jobs, so the sequences have other jobs",
        experiment=RLScheduler(("HPC2N",)),
    )
