"""An experiment: its points, the run of each point, the results of all; one runner for all experiments."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

from hpctwin_papers.results import Results
from hpctwin_papers.traces import need_trace

__all__ = ["SEEDS", "Experiment", "Progress", "run", "run_once"]

SEEDS = 10
"""So many of them where a paper names none."""

P = TypeVar("P")
R = TypeVar("R")
Progress = Callable[[float], None]
"""Takes the share of the work that is done."""


class Experiment(ABC, Generic[P, R]):
    """A frozen dataclass whose fields are all that its results depend on: seeds, sizes, methods.

    What was published, and by how much a number may be off and still agree, stands in the findings of
    `results`; why one differs, in the entries of `hpctwin_papers.catalog`.
    """

    title: ClassVar[str]
    """While it runs."""
    data: ClassVar[tuple[str, ...]] = ()
    """Files that it cannot do without, of the folder that HPCTWIN_TRACES names."""
    serial: ClassVar[bool] = False
    """Whether its points are run one after the other: how long they take is told, or they are Python for the
    most part."""

    @abstractmethod
    def points(self) -> Sequence[P]:
        """What is varied, in the order of the rows.

        Raises:
            HpctwinError: the configuration cannot be right.
        """

    @abstractmethod
    def run(self, point: P, progress: Progress) -> R:
        """What one point gives; ``progress`` takes the share that is done."""

    @abstractmethod
    def results(self, found: Sequence[R]) -> Results:
        """What is told of all points."""


def run(experiment: Experiment[Any, Any], progress: Progress | None = None) -> Results:
    """Run an experiment: its points in threads, as those of a sweep, unless it is serial.

    Args:
        experiment: what to run.
        progress: told the share of the work that is done.

    Raises:
        WorkloadError: a trace that it reads is not there.
        HpctwinError: its configuration is not right, or a simulation fails.
    """
    for name in experiment.data:
        need_trace(name)
    points = experiment.points()
    shares = [0.0] * len(points)

    def one(number: int) -> Any:
        def report(share: float) -> None:
            shares[number] = share
            if progress is not None:
                progress(sum(shares) / len(shares))

        found = experiment.run(points[number], report)
        report(1.0)
        return found

    if experiment.serial:
        return experiment.results([one(number) for number in range(len(points))])
    from hpctwin.simulation.running.interruptible import run_all

    threads = os.cpu_count() or 1
    found = run_all(one, range(len(points)), threads=threads, stop=lambda: None)
    return experiment.results(found)


@lru_cache(maxsize=4)
def run_once(experiment: Experiment[Any, Any]) -> Results:
    """The same; what was run of late is not run again."""
    return run(experiment)
