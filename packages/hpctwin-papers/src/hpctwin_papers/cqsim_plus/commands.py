"""``hpctwin experiment``: the command of CQSim+."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin_papers.options import Count, given
from hpctwin_papers.output import run_and_show


def cqsim_plus(
    *,
    case: tuple[str, ...] = (),
    strategy: Annotated[tuple[str, ...], Parameter(name=["--strategy", "-s"])] = (),
    more: bool = False,
    seeds: Count = 3,
    figures: Path | None = None,
    json: bool = False,
) -> int:
    """CQSim+ (SIGSIM-PADS 2025): jobs on two clusters, compared with its tables 1 to 5.

    The published strategies run by CQSim+'s rule and by hpctwin's. There, SGS-T runs as published
    (it knows all runtimes: oracle), with walltimes (honest), and with recent runtimes of similar
    jobs (like-jobs). Traces come from the folder in HPCTWIN_TRACES.

    Args:
        case: Case: homogeneous, heterogeneous, theta-polaris; default all. Repeatable.
        strategy: Additional strategy with walltimes; see `hpctwin facility simulate --help`.
            Repeatable.
        more: Also run extensions of the paper: peer, sampled futures, trees, moving, ….
        seeds: Number of seeds 0, 1, … for strategies that draw clusters.
        figures: Write figures as the paper's 5 to 8, and of waits by bin, to this folder.
        json: Print one row per case, rule, strategy, knowledge and seed as JSON.
    """
    from hpctwin_papers.cqsim_plus.experiment import CqsimPlus

    experiment = CqsimPlus(further=strategy, more=more, seeds=seeds, **given(cases=case))
    return run_and_show(experiment, out=figures, json=json)
