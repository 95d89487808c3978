"""Runtime quantiles for a live twin: trained here, and used there as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.learn.prediction.known import FEATURES, Known
from hpctwin.learn.prediction.models import QuantileBoosting
from hpctwin.model import MS_PER_S
from hpctwin.twin.forecast.learned_runtimes import Quantiles, QuantileTrees
from hpctwin.twin.forecast.submissions import FEATURES as LIVE
from hpctwin.twin.forecast.submissions import Submissions

__all__ = ["LEVELS", "as_trees", "runtime_quantiles"]

IntArray = npt.NDArray[np.int64]

LEVELS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
"""Quantiles to predict.

Between them the logarithm of a distribution is linear, from 1 s at 0 to the walltime at 1.
"""


def runtime_quantiles(known: Known, rows: IntArray, seed: int = 0) -> Quantiles:
    """Train runtime quantiles on what a live twin knows of a job.

    Args:
        known: The jobs.
        rows: Rows of the jobs to learn from.
        seed: Seed of random numbers.
    """
    features = known.features("runtime_s")[:, [FEATURES.index(name) for name in LIVE]]
    truth = np.log2(known.truth["runtime_s"])
    models = [
        QuantileBoosting(seed=seed, quantile=level).fit(features[rows], features[:0], truth[rows])
        for level in LEVELS
    ]
    ended = np.flatnonzero(~np.isnan(truth))
    return Quantiles(
        trees=as_trees(LEVELS, [model.trees for model in models]),
        history=_history(known),
        trained_on=known.workload.name,
        until_s=float(known.end_ms[ended].max()) / MS_PER_S,
    )


def as_trees(levels: Sequence[float], models: Sequence[Any]) -> QuantileTrees:
    """Return models of scikit-learn's ``HistGradientBoostingRegressor`` as arrays.

    Args:
        levels: Quantile of each model.
        models: Trained models, all with the same number of trees.
    """
    trees = [[tree.nodes for (tree,) in model._predictors] for model in models]
    sizes = np.array([[len(nodes) for nodes in row] for row in trees])
    # Nodes of all trees are in one array, so child indices are shifted by the first node of their
    # tree.
    roots = np.cumsum(sizes).reshape(sizes.shape) - sizes
    nodes = np.concatenate([nodes for row in trees for nodes in row])
    first = np.repeat(roots.ravel(), sizes.ravel())
    leaf = nodes["is_leaf"].astype(np.bool_)
    self_ = np.arange(len(nodes))
    return QuantileTrees(
        levels=np.array(levels),
        base=np.array([float(np.ravel(model._baseline_prediction)[0]) for model in models]),
        roots=roots.astype(np.int64),
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float64),
        unknown_left=nodes["missing_go_to_left"].astype(np.bool_),
        left=np.where(leaf, self_, first + nodes["left"]).astype(np.int64),
        right=np.where(leaf, self_, first + nodes["right"]).astype(np.int64),
        value=np.where(leaf, nodes["value"], 0.0).astype(np.float64),
    )


def _history(known: Known) -> dict[str, Any]:
    """Return the history of users' runtimes at the end of the trace."""
    jobs, found = known.workload, Submissions()
    truth = known.truth["runtime_s"]
    ended = np.flatnonzero(~np.isnan(truth))
    ended = ended[np.argsort(known.end_ms[ended], kind="stable")]
    names = ["", *jobs.user.labels]
    walltime_s = (jobs.walltime_ms / MS_PER_S).tolist()
    nodes, codes, ran = jobs.nodes.tolist(), jobs.user.codes.tolist(), truth.tolist()
    for row in ended.tolist():
        # The trace has another clock than the twin, so the end times are unknown.
        found.ended(names[codes[row] + 1], nodes[row], walltime_s[row], ran[row], None)
    return found.state()
