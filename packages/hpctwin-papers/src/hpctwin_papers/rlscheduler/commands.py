"""``hpctwin experiment``: the command of RLScheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hpctwin.cli.options.numbers import AT_LEAST_0
from hpctwin_papers.options import Count
from hpctwin_papers.output import run_and_show

__all__ = ["rlscheduler"]


def rlscheduler(
    *traces: str,
    seeds: Annotated[int, AT_LEAST_0] = 0,
    steps: Count = 12_000_000,
    out: Path = Path("out/rlscheduler"),
    json: bool = False,
) -> int:
    """RLScheduler (SC20): mean bounded slowdown of heuristics and agents, beside its table.

    Agents are trained on windows of 1,024 jobs none of which is tested, with seeds 0, 1, …; those that --out
    holds already are not trained again, so that it can be interrupted.

    Args:
        traces: Lublin-1, Lublin-2, HPC2N; all if left out.
        seeds: agents of each row; 0 for heuristics alone.
        steps: decisions that each is trained on.
        out: folder for agents.
        json: print a row of the table as one of JSON.
    """
    from hpctwin_papers.rlscheduler.experiment import RLScheduler

    return run_and_show(RLScheduler(traces, seeds=seeds, steps=steps, out=out), json=json)
