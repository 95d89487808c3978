"""S-RAPS's figures with results, with available data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.entry import NO_NUMBERS, Entry
from hpctwin_papers.s_raps import stand_ins

__all__ = ["entries"]

_OURS = "hpctwin experiment s-raps"
_DRAWN = "use of nodes drawn for each user, seed 0"
_NO_PRIORITIES = "the log has no priorities, so that priority-ffbf goes by submission"


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    entry = partial(entry, other_data=True)
    yield entry(
        "s-raps-figure-4",
        shows="17 h with a full queue under four schedules (paper: Marconi100)",
        config="Theta's log of 2023 from 2023-01-04T17:00 on, on as many nodes of Marconi100's kind, "
        f"{_DRAWN}; {_NO_PRIORITIES}",
        because="PM100 is not here; of it the paper says that with backfilling jobs draw 2 % and have 5 % "
        "fewer nodes, which is not to be held against another log",
        experiment=stand_ins.Busy(),
        more=f"{_OURS} FILE",
    )
    yield entry(
        "s-raps-figure-5",
        shows="15 days of a machine half in use under four schedules (paper: Adastra)",
        config="ThetaGPU's log of 2023, from its day 205 on, on as many nodes of Selene's kind (DGX A100, as "
        f"its own), {_DRAWN}; {_NO_PRIORITIES}",
        because=f"Adastra's jobs are not here, and {NO_NUMBERS}",
        experiment=stand_ins.Quiet(),
        more=f"{_OURS} FILE",
    )
    yield entry(
        "s-raps-figure-6",
        shows="a day with runs of the whole machine, with cooling (paper: Frontier)",
        config="Theta's log of 2023, 24 h from its hour 1,893 on, with five runs on 93 % of the nodes, all "
        f"jobs wider by Frontier's nodes over Theta's, {_DRAWN}; wet bulb at Frontier on 2024-04-07; "
        f"{_NO_PRIORITIES}",
        because=f"Frontier's telemetry is not public, and {NO_NUMBERS}",
        experiment=stand_ins.Full(),
        more=f"{_OURS} FOLDER",
    )
    yield entry(
        "s-raps-figure-7",
        shows="15 days of Frontier as Slurm would schedule them (paper: by FastSim)",
        config="5,324 generated jobs, seed 0, under fcfs+slurm, use of nodes drawn for each job; power every "
        "15 s",
        because="it is another program on another machine, and not the paper's trace, which is not public",
        experiment=stand_ins.Outside(),
        more=f"{_OURS}-schedulers",
    )
    yield entry(
        "s-raps-figure-8",
        shows="incentives by accounts, collected and redeemed by the same jobs",
        config="Four weeks of Theta's log of 2023 on as many of Frontier's nodes, " + _DRAWN,
        because=f"Frontier's telemetry is not public, and {NO_NUMBERS}",
        experiment=stand_ins.Redeeming(),
        more=f"{_OURS}-incentives --same",
    )
    yield entry(
        "s-raps-figure-10",
        shows="scheduling guided by learned prediction (paper: Fugaku)",
        config="Theta's log of 2023 by the paper's pipeline (clusters), by walltimes and by true runtimes; "
        "waits and slowdowns, no power",
        because=f"F-DATA, with measured power, is not here, and {NO_NUMBERS}",
        experiment=stand_ins.Foretold(),
        more=f"{_OURS}-ml",
    )
