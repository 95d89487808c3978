"""Experiments: their points, runs and results, and one runner for all."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

from hpctwin_papers.results import Results
from hpctwin_papers.traces import need_trace

SEEDS = 10
"""Number of seeds if a paper names none."""

P = TypeVar("P")
R = TypeVar("R")
Progress = Callable[[float], None]
"""Function called with the completed share of the work."""


class Experiment(ABC, Generic[P, R]):
    """A frozen dataclass of all inputs of the results: seeds, sizes, methods.

    Findings in `results` have the published values and the allowed deviations. The entries of
    `hpctwin_papers.catalog` have the reasons for differences.
    """

    title: ClassVar[str]
    """Text of the progress bar."""
    data: ClassVar[tuple[str, ...]] = ()
    """Required files in the folder of HPCTWIN_TRACES."""
    serial: ClassVar[bool] = False
    """Whether points run one after another: durations count, or most is Python."""

    @abstractmethod
    def points(self) -> Sequence[P]:
        """Return the points of the experiment, in the order of the rows."""

    @abstractmethod
    def run(self, point: P, progress: Progress) -> R:
        """Run one point; ``progress`` is called with the completed share."""

    @abstractmethod
    def results(self, found: Sequence[R]) -> Results:
        """Return the results of all points."""


def run(experiment: Experiment[Any, Any], progress: Progress | None = None) -> Results:
    """Run an experiment; its points run in threads, as in a sweep, unless it is serial.

    Raises:
        WorkloadError: A required trace is missing.
        HpctwinError: The configuration is not valid, or a simulation fails.
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
    from hpctwin.simulation.running.advance import run_all

    threads = os.cpu_count() or 1
    found = run_all(one, range(len(points)), threads=threads, stop=lambda: None)
    return experiment.results(found)


@lru_cache(maxsize=4)
def run_once(experiment: Experiment[Any, Any]) -> Results:
    """Run an experiment; recent results are reused."""
    return run(experiment)
