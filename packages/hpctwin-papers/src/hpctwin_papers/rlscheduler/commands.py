"""``hpctwin experiment``: the command of RLScheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hpctwin.cli.option_values import AT_LEAST_0
from hpctwin_papers.options import Count
from hpctwin_papers.output import run_and_show


def rlscheduler(
    *traces: str,
    seeds: Annotated[int, AT_LEAST_0] = 0,
    steps: Count = 12_000_000,
    out: Path = Path("out/rlscheduler"),
    json: bool = False,
) -> int:
    """RLScheduler (SC20): mean bounded slowdown of heuristics and agents, with its table.

    Agents are trained on windows of 1,024 jobs with seeds 0, 1, …; no trained job is tested. Agents
    in --out are not trained again, so an interrupted run can be resumed.

    Args:
        traces: Traces: Lublin-1, Lublin-2, HPC2N; default all.
        seeds: Number of agents in each row; 0 for heuristics only.
        steps: Number of training decisions of an agent.
        out: Folder for agents.
        json: Print the rows of the table as JSON.
    """
    from hpctwin_papers.rlscheduler.experiment import RLScheduler

    return run_and_show(RLScheduler(traces, seeds=seeds, steps=steps, out=out), json=json)
