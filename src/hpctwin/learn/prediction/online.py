"""Predictions as they would have been made: for each job from jobs that had ended.

A model is trained at some submissions on the last jobs that had ended by then. It predicts the jobs
submitted until the next training. The history in their features is that of each job's own
submission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.prediction.known import Known
from hpctwin.learn.prediction.mixing import ensemble, hedge
from hpctwin.learn.prediction.models import MODELS, Model
from hpctwin.model import Workload
from hpctwin.model.workload.jobs import NODE_W, Usage

__all__ = [
    "METHODS",
    "RIVALS",
    "Training",
    "drawing_as_predicted",
    "learned",
    "predict",
    "with_predictions",
]

FloatArray = npt.NDArray[np.float64]

RIVALS = ("walltime", "recent")
"""Simple baselines: the walltime, and the mean of the user's last two jobs."""
_MIXED = {"ensemble": ensemble, "hedge": hedge}
METHODS = (*RIVALS, "like", *MODELS, *_MIXED)
"""Names of all prediction methods; see `predict`."""

_LEAST = 50
"""Number of ended jobs from which a model learns."""


@dataclass(frozen=True)
class Training:
    """Schedule and data of model training.

    Args:
        every: Number of submissions between trainings; at first, at each doubling from ``first``
            on.
        first: Number of submissions before the first training.
        window: Number of last ended jobs to train on.
        seed: Seed of random numbers.
    """

    every: int = 2000
    first: int = 100
    window: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("every", "first", "window"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")

    def batches(self, jobs: int) -> list[tuple[int, int]]:
        """Return the first job and the job after the last that each model predicts."""
        marks = [self.first]
        while marks[-1] < jobs:
            marks.append(min(2 * marks[-1], marks[-1] + self.every))
        marks[-1] = jobs
        return list(pairwise(marks))


def predict(
    known: Known,
    target: str = "runtime_s",
    methods: Sequence[str] = METHODS,
    training: Training = Training(),
    progress: Callable[[float], None] | None = None,
) -> dict[str, FloatArray]:
    """Predict each job by each method from what was known at its submission.

    - ``walltime``: it runs to its limit (runtimes only).
    - ``recent``: the mean of its user's last two jobs.
    - ``like``: the last job of the same user, nodes and walltime.
    - ``boosting``, ``clusters``: `models`; ``like`` until the first training.
    - ``ensemble``: the median of all others, weighted by exp(-20 e). The error e is the mean
      `inaccuracy` of each in the user's ended jobs, where the mean over all jobs counts as 30 more
      jobs.
    - ``hedge``: their weighted mean with the least error of the logarithm; see `mixing.hedge`.

    Args:
        known: The jobs, and when they end.
        target: ``runtime_s``, ``node_w`` or ``memory_gb``.
        methods: Names of `METHODS`.
        training: Schedule of model training.
        progress: Function called with the share of work done.

    Returns:
        Predictions by method: at least 1 s and at most the walltime, or W, or GB; NaN if nothing is
            known [jobs].

    Raises:
        UnknownNameError: There is no such method or target.
        ConfigError: scikit-learn is not installed.
    """
    for name in methods:
        if name not in METHODS:
            raise UnknownNameError("method of prediction", name, METHODS)
    if target not in known.truth:
        raise UnknownNameError(
            f"target that {known.workload.name} records", target, list(known.truth)
        )
    wanted = METHODS if _MIXED.keys() & set(methods) else tuple(methods)
    found: dict[str, FloatArray] = {}
    if target == "runtime_s" and "walltime" in wanted:
        found["walltime"] = known.walltime_s
    if "recent" in wanted:
        found["recent"] = known.recent(target)
    if "like" in wanted:
        found["like"] = known.like(target)
    makers = {name: partial(model, seed=training.seed) for name, model in MODELS.items()}
    makers = {name: maker for name, maker in makers.items() if name in wanted}
    if makers:
        found |= learned(known, target, makers, training, progress)
    mixed = {name: mix(known, target, found) for name, mix in _MIXED.items() if name in methods}
    found |= {name: bounded(one, target, known.walltime_s) for name, one in mixed.items()}
    return {name: found[name] for name in methods if name in found}


def with_predictions(workload: Workload, predicted: Mapping[str, FloatArray]) -> Workload:
    """Return the jobs with predictions, for orderings and for planning.

    Args:
        workload: The jobs.
        predicted: Predictions by target; NaN for none [jobs].
    """
    return workload.replace(predicted={**workload.predicted, **predicted})


def drawing_as_predicted(workload: Workload) -> Workload:
    """Return the jobs with predicted instead of measured power of their nodes.

    The energy of a simulation is then what could have been stated before the jobs ran. Without a
    prediction, a job's nodes draw the power of their components.

    Raises:
        ConfigError: No power is predicted.
    """
    if NODE_W not in workload.predicted:
        raise ConfigError(
            f"{workload.name} has no predicted_{NODE_W}; add it with hpctwin predictor "
            "apply if the trace has measured power"
        )
    return workload.replace(usage={NODE_W: Usage.averages(workload.predicted[NODE_W])})


def learned(
    known: Known,
    target: str,
    makers: Mapping[str, Callable[[], Model]],
    training: Training,
    progress: Callable[[float], None] | None,
) -> dict[str, FloatArray]:
    """Return predictions of models trained as jobs end.

    Until the first training they are those of `like`.

    Args:
        known: As for `predict`.
        target: As for `predict`.
        makers: Function that makes each model, by name.
        training: As for `predict`.
        progress: As for `predict`.
    """
    jobs = known.workload
    truth = np.log2(known.truth[target])
    features, behaviour = known.features(target), known.behaviour
    found = {name: known.like(target) for name in makers}
    usable = np.flatnonzero(~np.isnan(truth))
    by_end = usable[np.argsort(known.end_ms[usable], kind="stable")]
    ends = known.end_ms[by_end]
    for first, last in training.batches(len(jobs)):
        upto = int(np.searchsorted(ends, jobs.submit_ms[first], "right"))
        rows = by_end[max(0, upto - training.window) : upto]
        if len(rows) < _LEAST:
            continue
        for name, make in makers.items():
            model = make().fit(features[rows], behaviour[rows], truth[rows])
            foretold = np.exp2(model.predict(features[first:last]))
            found[name][first:last] = bounded(foretold, target, known.walltime_s[first:last])
        if progress is not None:
            progress(last / len(jobs))
    return found


def bounded(foretold: FloatArray, target: str, walltime_s: FloatArray) -> FloatArray:
    """Limit runtimes to 1 s at least and the walltime at most [jobs]."""
    return np.clip(foretold, 1.0, walltime_s) if target == "runtime_s" else foretold
