"""CQSim+'s tables and figures with results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.cqsim_plus.cases import EXCHANGED
from hpctwin_papers.cqsim_plus.experiment import CqsimPlus
from hpctwin_papers.entry import NO_NUMBERS, Entry

_THETA = "Theta's year 2022"
_BOTH = "Polaris and Theta, September to December 2023"
_CHANCE = (
    "random and user(0.6) draw clusters, and drew others in the paper. SGS-T also draws if both clusters "
    "would end a job at the same time, which is frequent for equal clusters"
)


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    by_rule = partial(CqsimPlus, by_rule=True, ours="none", seeds=1)
    by_ours = partial(CqsimPlus, by_rule=False, ours="pair", seeds=1)
    for number, case, by in (
        (1, "homogeneous", "size"),
        (2, "homogeneous", "walltime"),
        (3, "heterogeneous", "size"),
        (4, "heterogeneous", "walltime"),
    ):
        yield entry(
            f"cqsim-plus-table-{number}",
            shows=f"waits by {by}, {case} clusters",
            config=f"{_THETA}, by CQSim+'s rule, seed 0",
            because=_CHANCE,
            experiment=by_rule(cases=(case,)),
            more=f"hpctwin experiment cqsim-plus --case {case}",
        )
    yield entry(
        "cqsim-plus-table-5",
        shows="waits by origin and destination of jobs",
        config=f"{_BOTH}, by CQSim+'s rule",
        because=EXCHANGED.rstrip("."),
        experiment=by_rule(cases=("theta-polaris",)),
        more="hpctwin experiment cqsim-plus --case theta-polaris",
    )
    for number, case in ((5, "homogeneous"), (6, "heterogeneous")):
        yield entry(
            f"cqsim-plus-figure-{number}",
            shows=f"utilization and jobs by week, {case} clusters",
            config=f"{_THETA}, seed 0, by hpctwin's rule",
            because=NO_NUMBERS,
            experiment=by_ours(cases=(case,)),
        )
    for number, shows in (
        (7, "waits and jobs by size on Polaris and Theta"),
        (8, "jobs of Polaris that ran on Theta"),
    ):
        yield entry(
            f"cqsim-plus-figure-{number}",
            shows=shows,
            config=f"{_BOTH}, by hpctwin's rule",
            because=NO_NUMBERS,
            experiment=by_ours(cases=("theta-polaris",)),
        )
