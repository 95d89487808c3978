"""PAS's table and figure with results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hpctwin_papers.entry import Entry
from hpctwin_papers.experiment import SEEDS
from hpctwin_papers.pas import experiment as pas

_OPEN = (
    "the paper gives no distributions, runtimes or seed; they are chosen here so that FCFS agrees. PAS as "
    "published takes longer, and every method here respects dependencies"
)


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    same = partial(
        entry,
        config=f"5,000 jobs, seeds 0 to {SEEDS - 1}, means",
        because=_OPEN,
        experiment=pas.Pas(methods=tuple(pas.PUBLISHED)),
    )
    yield same(
        "pas-table-1",
        shows="makespan, mean wait and violations of four schedulers",
        more="hpctwin experiment pas",
    )
    yield same("pas-figure-2", shows="the numbers of table 1 as bars")
