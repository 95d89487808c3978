"""Scheduling by prediction, as in S-RAPS's figure 10 (Maiterth et al., SC25-W, §4.4).

The paper's Fugaku data with measured power are not available here. So a trace is predicted job by
job with each method, and scheduled by the predictions. Schedules by walltime and by true runtimes
are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpctwin.learn.prediction import Known, Training, predict, ranked, with_predictions
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.report.columns import Table
from hpctwin.simulation import simulate
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("recent", "like", "boosting", "clusters", "ensemble", "hedge")
"""Methods of the predictions for schedules; walltime and truth are always added."""
_OFTEN = Training(every=1000)
SCORED = "clusters"
"""The paper's pipeline; its score uses these predictions."""


@dataclass(frozen=True)
class Schedule:
    """Result of one way to schedule.

    Args:
        order: ``fcfs``, ``shortest`` (by expected runtime) or ``score`` (S-RAPS's, of nodes and
            runtime).
        by: Source of expected runtimes: a method, ``walltime`` or ``truth``.
        plan: Runtimes that EASY plans by: ``walltime``, or ``same`` as the order.
        mean_wait_s, median_wait_s, p95_wait_s, mean_turnaround_s: Times in seconds.
        mean_bounded_slowdown: Mean slowdown with a bound of 10 s.
    """

    order: str
    by: str
    plan: str
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    mean_turnaround_s: float
    mean_bounded_slowdown: float


def run(
    workload: Workload,
    cluster: Cluster,
    *,
    methods: Sequence[str] = METHODS,
    training: Training = _OFTEN,
    progress: Callable[[float], None] | None = None,
) -> list[Schedule]:
    """Schedule a trace by each method's predictions, always with EASY.

    Args:
        workload: The jobs; a runtime counts as known once the job ended in reality.
        methods: Some of `hpctwin.learn.prediction.METHODS`.
        progress: Function called with the completed share.
    """
    known = Known.of(workload)
    foretold = predict(known, "runtime_s", list(methods), training, _part(progress, 0.0, 0.5))
    truth = np.clip(workload.runtime_ms / MS_PER_S, 0.001, workload.walltime_ms / MS_PER_S)
    expected = {"walltime": workload.walltime_ms / MS_PER_S, **foretold, "truth": truth}
    tried = list(_tried(workload, expected))
    found = []
    for number, (order, by, plan, jobs, policy, planned) in enumerate(tried):
        figures = simulate(jobs, cluster, policy, expected_s=planned).summary()
        found.append(Schedule(order, by, plan, **{name: figures[name] for name in _FIGURES}))
        if progress is not None:
            progress(0.5 + 0.5 * (number + 1) / len(tried))
    return found


_FIGURES = (
    "mean_wait_s", "median_wait_s", "p95_wait_s", "mean_turnaround_s", "mean_bounded_slowdown",
)  # fmt: skip
FloatArray = npt.NDArray[np.float64]
Tried = tuple[str, str, str, Workload, str, FloatArray | None]


def _tried(workload: Workload, expected: dict[str, FloatArray]) -> Iterator[Tried]:
    """Yield order, source, plan, jobs, policy, and the runtimes to plan by."""
    for by, runtime_s in expected.items():
        told = with_predictions(workload, {"runtime_s": runtime_s})
        plans = (None,) if by == "walltime" else (None, runtime_s)
        for planned in plans:
            plan = "walltime" if planned is None else "same"
            if (
                planned is not None or by == "walltime"
            ):  # the order of submissions needs no prediction
                yield "fcfs", by, plan, told, "fcfs+easy", planned
            yield "shortest", by, plan, told, "spf+easy", planned
        if by == SCORED:
            scored = ranked(told, {"nodes": 1.0, "runtime_s": 1.0})
            yield "score", by, "walltime", scored, "priority+easy", None


def _part(
    progress: Callable[[float], None] | None, begin: float, share: float
) -> Callable[[float], None] | None:
    if progress is None:
        return None
    return lambda done: progress(begin + share * done)


@dataclass(frozen=True, eq=False)
class SRapsMl(Experiment[None, list[Schedule]]):
    """A trace scheduled by each method's predictions; see `run`.

    Args:
        workload, cluster: The trace and its cluster.
        methods: Some of `hpctwin.learn.prediction.METHODS`.
        training: Training of the models.
    """

    workload: Workload
    cluster: Cluster
    methods: tuple[str, ...] = METHODS
    training: Training = _OFTEN
    title = "a trace foretold and scheduled"

    def points(self) -> Sequence[None]:
        """See `Experiment`; one point, because all methods learn from the same past."""
        return [None]

    def run(self, point: None, progress: Progress) -> list[Schedule]:
        """See `Experiment`."""
        return run(
            self.workload,
            self.cluster,
            methods=self.methods,
            training=self.training,
            progress=progress,
        )

    def results(self, found: Sequence[list[Schedule]]) -> Results:
        """See `Experiment`."""
        schedules = found[0]
        title = f"{self.workload.name} on {self.cluster.node_count:,} nodes"
        return Results(
            figures={"s-raps-ml": partial(_drawn, schedules, title)},
            tables=[_table(schedules)],
            rows=[asdict(one) for one in schedules],
        )


def _table(schedules: Sequence[Schedule]) -> Table:
    heads = [
        "first",
        "by",
        "EASY plans by",
        "mean wait, h",
        "median, min",
        "p95, h",
        "turnaround, h",
    ]
    rows = [
        [
            one.order,
            one.by,
            "walltime" if one.plan == "walltime" else one.by,
            f"{one.mean_wait_s / 3600:.2f}",
            f"{one.median_wait_s / 60:.1f}",
            f"{one.p95_wait_s / 3600:.2f}",
            f"{one.mean_turnaround_s / 3600:.2f}",
            f"{one.mean_bounded_slowdown:.2f}",
        ]
        for one in schedules
    ]
    return Table([*heads, "slowdown"], rows, words=3)


def _drawn(found: Sequence[Schedule], title: str) -> Figure:
    """Draw mean waits and slowdowns as bars, by source of expected runtimes."""
    from matplotlib.figure import Figure

    names = [
        f"{one.order} by {one.by}" + ("" if one.plan == "walltime" else ", planned by it")
        for one in found
    ]
    figure = Figure(figsize=(9.0, 1.2 + 0.24 * len(found)), layout="constrained")
    waits, slowdowns = figure.subplots(1, 2, sharey=True)
    colours = ["tab:gray" if one.by in ("walltime", "truth") else "tab:blue" for one in found]
    waits.barh(names, [one.mean_wait_s / 3600 for one in found], color=colours)
    waits.set_xlabel("mean wait, h")
    waits.invert_yaxis()
    slowdowns.barh(names, [one.mean_bounded_slowdown for one in found], color=colours)
    slowdowns.set_xlabel("mean bounded slowdown")
    figure.suptitle(title)
    return figure
