"""``hpctwin experiment``: commands of SPARS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.options.numbers import AT_LEAST_0
from hpctwin_papers.options import Count, Methods, given
from hpctwin_papers.output import run_and_show

__all__ = ["nasa_agents", "spars"]


def spars(
    *,
    method: Methods = (),
    timeout: Annotated[tuple[str, ...], Parameter(name=["--timeout", "-t"])] = (),
    more: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """SPARS (SoftwareX 34, 102693): six schedulers, twelve timeouts, beside its published results.

    The FCFS forms are run by the published rule too. The workload is the last fifth of the NASA iPSC/860
    log, which the folder in HPCTWIN_TRACES must have.

    Args:
        method: some of fcfs-psus, easy-psus, fcfs-auto, easy-auto, fcfs-ipm, easy-ipm; all if left out.
        timeout: idle so long, a node is switched off, such as 20m; 5 to 60 minutes if left out.
        more: also what each published fault alone moves, overestimated walltimes, and wfp-ipm, which is
            ahead of all six.
        out: folder for figures and tables.
        json: print one row per scheduler, timeout and rule as JSON.
    """
    from hpctwin.model import parse_duration_s
    from hpctwin_papers.spars.experiment import OURS, Spars, SparsFaults, SparsKnowledge

    timeouts = given(timeouts_s=tuple(parse_duration_s(text) for text in timeout))
    chosen = method or (OURS if more or out is not None else ())
    experiment = Spars(**given(schedulers=chosen), **timeouts)
    run_and_show(experiment, out=out, json=json)
    if more and not json:
        run_and_show(SparsFaults(**timeouts))
        middle = experiment.timeouts_s[len(experiment.timeouts_s) // 3]
        run_and_show(SparsKnowledge(middle))
    return 0


def nasa_agents(
    *,
    seeds: Annotated[int, AT_LEAST_0] = 5,
    steps: Count = 6_000_000,
    out: Path = Path("out/nasa-agents"),
    json: bool = False,
) -> int:
    """Agents that switch nodes, on held-out windows of the NASA log, beside SPARS's timeouts.

    Agents are trained and chosen on the jobs before, with seeds 0, 1, …; those that --out holds already are
    not trained again, so that it can be interrupted.

    Args:
        seeds: agents; 0 for timeouts alone.
        steps: decisions that each is trained on, with each of four weights of energy.
        out: folder for agents.
        json: print a row of the table as one of JSON.
    """
    from hpctwin_papers.spars.nasa_agents import NasaAgents

    return run_and_show(NasaAgents(seeds=seeds, steps=steps, out=out), json=json)
