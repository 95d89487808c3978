"""``hpctwin experiment``: commands of SPARS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin.cli.option_values import AT_LEAST_0
from hpctwin_papers.options import Count, Methods, given
from hpctwin_papers.output import run_and_show


def spars(
    *,
    method: Methods = (),
    timeout: Annotated[tuple[str, ...], Parameter(name=["--timeout", "-t"])] = (),
    more: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """SPARS (SoftwareX 34, 102693): six schedulers, twelve timeouts, published results.

    The FCFS schedulers also run by the published rule. The workload is the last fifth of the NASA
    iPSC/860 log, which must be in the folder of HPCTWIN_TRACES.

    Args:
        method: Scheduler: fcfs-psus, easy-psus, fcfs-auto, easy-auto, fcfs-ipm or easy-ipm; default
            all. Repeatable.
        timeout: Idle time before switch-off, such as 20m; default 5 to 60 minutes. Repeatable.
        more: Also show the effect of each published fault, overestimated walltimes, and wfp-ipm,
            which beats all six.
        out: Write figures and tables to this folder.
        json: Print one row per scheduler, timeout and rule as JSON.
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
    """Agents that switch nodes, on windows of the NASA log, with SPARS's timeouts.

    Agents are trained and selected on earlier jobs than those of the windows, with seeds 0, 1, ….
    Agents in --out are not trained again, so an interrupted run can be resumed.

    Args:
        seeds: Number of agents; 0 for timeouts only.
        steps: Number of training decisions of an agent, for each of four energy weights.
        out: Folder for agents.
        json: Print the rows of the table as JSON.
    """
    from hpctwin_papers.spars.nasa_agents import NasaAgents

    return run_and_show(NasaAgents(seeds=seeds, steps=steps, out=out), json=json)
