"""S-RAPS's figures with results, with available data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.entry import NO_NUMBERS, Entry
from hpctwin_papers.s_raps import stand_ins

_OURS = "hpctwin experiment s-raps"
_DRAWN = "The utilization of nodes is drawn for each user, seed 0"
_NO_PRIORITIES = "The log has no priorities, so priority-ffbf orders jobs by submit time"


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    entry = partial(entry, other_data=True)
    yield entry(
        "s-raps-figure-4",
        shows="17 h with a full queue under four schedules (paper: Marconi100)",
        config="Theta's log of 2023 from 2023-01-04T17:00, on the same number of Marconi100's nodes. "
        f"{_DRAWN}. {_NO_PRIORITIES}",
        because="PM100 is not available. The paper reports for it that jobs with backfilling draw 2 % less "
        "power and have 5 % fewer nodes, which cannot be compared with another log",
        experiment=stand_ins.Busy(),
        more=f"{_OURS} FILE",
    )
    yield entry(
        "s-raps-figure-5",
        shows="15 days of a cluster half in use under four schedules (paper: Adastra)",
        config="ThetaGPU's log of 2023 from its day 205, on the same number of Selene's nodes (DGX A100, as "
        f"ThetaGPU's). {_DRAWN}. {_NO_PRIORITIES}",
        because=f"Adastra's jobs are not available, and {NO_NUMBERS}",
        experiment=stand_ins.Quiet(),
        more=f"{_OURS} FILE",
    )
    yield entry(
        "s-raps-figure-6",
        shows="a day with runs on the whole cluster, with cooling (paper: Frontier)",
        config="24 h of Theta's log of 2023 from its hour 1,893, with five runs on 93 % of the nodes. The "
        "nodes of each job are multiplied by Frontier's nodes divided by Theta's. "
        f"{_DRAWN}. The wet-bulb temperature is Frontier's of 2024-04-07. {_NO_PRIORITIES}",
        because=f"Frontier's telemetry is not public, and {NO_NUMBERS}",
        experiment=stand_ins.Full(),
        more=f"{_OURS} FOLDER",
    )
    yield entry(
        "s-raps-figure-7",
        shows="15 days of Frontier as Slurm would schedule them (paper: by FastSim)",
        config="5,324 generated jobs, seed 0, under fcfs+slurm. The utilization of nodes is drawn for each "
        "job; power every 15 s",
        because="the paper measured another program on another computer, with a trace that is not public",
        experiment=stand_ins.Outside(),
        more=f"{_OURS}-schedulers",
    )
    yield entry(
        "s-raps-figure-8",
        shows="incentives by accounts, collected and redeemed by the same jobs",
        config=f"Four weeks of Theta's log of 2023, on the same number of Frontier's nodes. {_DRAWN}",
        because=f"Frontier's telemetry is not public, and {NO_NUMBERS}",
        experiment=stand_ins.Redeeming(),
        more=f"{_OURS}-incentives --same",
    )
    yield entry(
        "s-raps-figure-10",
        shows="scheduling guided by learned prediction (paper: Fugaku)",
        config="Theta's log of 2023, scheduled by the paper's pipeline (clusters), by walltimes and by true "
        "runtimes. Waits and slowdowns, no power",
        because=f"F-DATA, with measured power, is not available, and {NO_NUMBERS}",
        experiment=stand_ins.Foretold(),
        more=f"{_OURS}-ml",
    )
