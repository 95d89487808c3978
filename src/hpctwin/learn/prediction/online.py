"""Predictions as they would have been made: of each job at its submission, by what had ended before.

A model is trained at some submissions on the last jobs that had ended by then, and foretells those submitted
until the next training; the history among their features is that of each one's own submission.
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
from hpctwin.model.workload.usage import NODE_W, Usage

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
"""What anybody can do: the walltime, and the mean of the user's last two."""
_MIXED = {"ensemble": ensemble, "hedge": hedge}
METHODS = (*RIVALS, "like", *MODELS, *_MIXED)
"""All ways to predict; see `predict`."""

_LEAST = 50
"""From so many jobs a model learns."""


@dataclass(frozen=True)
class Training:
    """When models are trained, and on what.

    Args:
        every: after so many submissions; sooner at the beginning, at each doubling from ``first`` on.
        first: after so many submissions for the first time.
        window: on so many jobs that ended last.
        seed: of what is drawn.
    """

    every: int = 2000
    first: int = 100
    window: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("every", "first", "window"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be 1 or more")

    def batches(self, jobs: int) -> list[tuple[int, int]]:
        """From which job to before which each model foretells."""
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
    """Foretell each job by each method, by nothing but what was known at its submission.

    ``walltime``: it runs to its limit (of runtimes only). ``recent``: as the mean of its user's last two.
    ``like``: as the last job of the same user, nodes and walltime. ``boosting``, ``clusters``: `models`;
    until the first training as ``like``. ``ensemble``: the median of all others, weighted by
    exp(-20 e): e is what `inaccuracy` each has had in the user's jobs that have ended, and in all jobs as if
    in 30 more. ``hedge``: their mean with weights for the least error of the logarithm; see `mixing.hedge`.

    Args:
        known: the jobs, and when they end.
        target: ``runtime_s``, ``node_w`` or ``memory_gb``.
        methods: names of `METHODS`.
        training: of models.
        progress: told the share of the work that is done.

    Returns:
        Of each method asked for what it foretells: at least 1 s and at most the walltime, or W, or GB; NaN
        where nothing is known at all [jobs].

    Raises:
        UnknownNameError: there is no such method or target.
        ConfigError: scikit-learn is not installed.
    """
    for name in methods:
        if name not in METHODS:
            raise UnknownNameError("method of prediction", name, METHODS)
    if target not in known.truth:
        raise UnknownNameError(
            f"target that {known.workload.name} tells of", target, list(known.truth)
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
    """The jobs with what is foretold of them, for orderings and for planning.

    Args:
        workload: the jobs.
        predicted: of each target what is foretold; NaN where nothing is [jobs].
    """
    return workload.replace(predicted={**workload.predicted, **predicted})


def drawing_as_predicted(workload: Workload) -> Workload:
    """The jobs with the power that is foretold of their nodes in the place of what was measured.

    What a simulation then says of energy is what could have been said before the jobs ran. Of a job of which
    nothing is foretold its nodes draw what their machine's components say.

    Args:
        workload: the jobs, with predictions.

    Raises:
        ConfigError: no power is predicted.
    """
    if NODE_W not in workload.predicted:
        raise ConfigError(
            f"{workload.name} has no predicted_{NODE_W}; hpctwin predictor apply writes it where power was "
            "measured"
        )
    return workload.replace(usage={NODE_W: Usage.averages(workload.predicted[NODE_W])})


def learned(
    known: Known,
    target: str,
    makers: Mapping[str, Callable[[], Model]],
    training: Training,
    progress: Callable[[float], None] | None,
) -> dict[str, FloatArray]:
    """What models foretell that are trained as jobs end, and as `like` until the first training.

    Args:
        known: see `predict`.
        target: see `predict`.
        makers: of each model by its name.
        training: see `predict`.
        progress: see `predict`.
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
    """A runtime is 1 s at least and the walltime at most [jobs]."""
    return np.clip(foretold, 1.0, walltime_s) if target == "runtime_s" else foretold
