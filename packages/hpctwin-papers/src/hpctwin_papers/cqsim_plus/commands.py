"""``hpctwin experiment``: the command of CQSim+."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hpctwin_papers.options import Count, given
from hpctwin_papers.output import run_and_show

__all__ = ["cqsim_plus"]


def cqsim_plus(
    *,
    case: tuple[str, ...] = (),
    strategy: Annotated[tuple[str, ...], Parameter(name=["--strategy", "-s"])] = (),
    more: bool = False,
    seeds: Count = 3,
    figures: Path | None = None,
    json: bool = False,
) -> int:
    """CQSim+ (SIGSIM-PADS 2025): jobs among two clusters, beside its tables 1 to 5.

    The published strategies are run by CQSim+'s own rule, and by ours: SGS-T as published (it knows all
    runtimes: oracle), with walltimes (honest), and with what like jobs ran lately (like-jobs). Traces come
    from the folder in HPCTWIN_TRACES.

    Args:
        case: homogeneous, heterogeneous, theta-polaris; all if left out.
        strategy: further strategies, with walltimes; see `hpctwin facility simulate --help`.
        more: all that goes beyond the paper too: peer, sampled futures, trees, moving, ….
        seeds: for strategies that draw clusters, with seeds 0, 1, ….
        figures: folder for figures like the paper's 5 to 8, and of the waits by bin.
        json: print one row per case, rule, strategy, knowledge and seed as JSON.
    """
    from hpctwin_papers.cqsim_plus.experiment import CqsimPlus

    experiment = CqsimPlus(further=strategy, more=more, seeds=seeds, **given(cases=case))
    return run_and_show(experiment, out=figures, json=json)
