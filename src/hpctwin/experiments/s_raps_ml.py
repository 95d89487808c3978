"""Scheduling by prediction, as S-RAPS's figure 10 (Maiterth et al., SC25-W, §4.4), beside plain rivals.

The paper's Fugaku data with measured power cannot be had here. So a trace is foretold job by job, by each
method, and scheduled by what was foretold; the same schedules by walltime and by true runtimes are beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.learn.prediction import Known, Training, predict, ranked, with_predictions
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.simulation import simulate

__all__ = ["METHODS", "Schedule", "run"]

METHODS = ("recent", "like", "boosting", "clusters", "ensemble")
"""Whose predictions jobs are scheduled by; walltime and truth are beside them in any case."""
_OFTEN = Training(every=1000)
SCORED = "clusters"
"""The paper's own pipeline, whose predictions go into its score."""


@dataclass(frozen=True)
class Schedule:
    """What one way to schedule gave.

    Args:
        order: ``fcfs``, ``shortest`` (by the runtime expected) or ``score`` (S-RAPS's, of nodes and runtime).
        by: what runtimes are expected: a method, ``walltime`` or ``truth``.
        plan: what EASY plans by: ``walltime``, or ``same`` as the order.
        mean_wait_s, median_wait_s, p95_wait_s, mean_turnaround_s: seconds.
        mean_bounded_slowdown: with 10 s at least.
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
    """Schedule a trace by each method's predictions, all with EASY.

    Args:
        workload: the jobs; runtimes count as known when jobs ended in reality.
        cluster: the machine.
        methods: of `hpctwin.learn.prediction.METHODS`.
        training: of models.
        progress: told the share of the work that is done.
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
    """Order, by, plan; the jobs, the policy, and what is planned by."""
    for by, runtime_s in expected.items():
        told = with_predictions(workload, {"runtime_s": runtime_s})
        plans = (None,) if by == "walltime" else (None, runtime_s)
        for planned in plans:
            plan = "walltime" if planned is None else "same"
            if (
                planned is not None or by == "walltime"
            ):  # who comes first by submission is not foretold
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
