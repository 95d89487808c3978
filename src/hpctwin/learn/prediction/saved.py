"""Trained models in a file, and what they were trained on; reading runs no code.

Runtime quantiles for a live twin are trained here, and used there as plain arrays.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin._version import __version__
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.prediction.known import FEATURES, Known
from hpctwin.learn.prediction.models import MODELS, Boosting, Clusters, QuantileBoosting
from hpctwin.learn.prediction.online import bounded
from hpctwin.model import MS_PER_S, write_atomically
from hpctwin.model.files import other_format
from hpctwin.twin.forecast.learned_runtimes import Quantiles, QuantileTrees
from hpctwin.twin.forecast.submissions import FEATURES as LIVE
from hpctwin.twin.forecast.submissions import Submissions

__all__ = ["LEVELS", "Predictor", "as_trees", "load_predictor", "runtime_quantiles", "train"]

IntArray = npt.NDArray[np.int64]

LEVELS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
"""Quantiles to predict.

Between them the logarithm of a distribution is linear, from 1 s at 0 to the walltime at 1.
"""


def runtime_quantiles(known: Known, rows: IntArray, seed: int = 0) -> Quantiles:
    """Train runtime quantiles on what a live twin knows of a job."""
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
    """Return models of scikit-learn's ``HistGradientBoostingRegressor`` as arrays."""
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


FloatArray = npt.NDArray[np.float64]

_FORMAT = 1
_LEAST = 50
_TRUSTED = frozenset(
    {
        "numpy.dtype",
        "sklearn._loss.link.IdentityLink",
        "sklearn._loss.link.Interval",
        "sklearn._loss.loss.AbsoluteError",
        "sklearn._loss._loss.CyAbsoluteError",
        "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.tree._tree.Tree",
    }
)
"""Types in models that skops does not trust by default."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """Trained models.

    Args:
        method: Name in `MODELS`.
        models: Model of each target.
        trained_on: Name of the workload.
        jobs: Number of ended jobs in the training.
        quantiles: Runtime quantiles for live twins; they are written, and only read by a twin.
        notes: Assumptions about these jobs, one sentence each.
    """

    method: str
    models: Mapping[str, Boosting | Clusters]
    trained_on: str
    jobs: int
    quantiles: Quantiles | None = None
    notes: tuple[str, ...] = ()

    def predict(self, known: Known) -> dict[str, FloatArray]:
        """Return predictions by target, as in `Workload.predicted` [jobs].

        Args:
            known: The jobs; the history is that of this workload.
        """
        found = {}
        for target, model in self.models.items():
            # A target that is not measured has no history.
            told = target if target in known.truth else None
            foretold = np.exp2(model.predict(known.features(told)))
            found[target] = bounded(foretold, target, known.walltime_s)
        return found

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the models to a file for `load_predictor`.

        Raises:
            ConfigError: skops is not installed.
            OutputError: The file cannot be written.
        """
        import sklearn

        about = {
            "format": _FORMAT, "hpctwin": __version__, "sklearn": sklearn.__version__, "method": self.method,
            "targets": list(self.models), "features": list(FEATURES), "trained_on": self.trained_on,
            "jobs": self.jobs, "assumptions": self.notes,
        }  # fmt: skip
        parts = {target: dict(vars(model)) for target, model in self.models.items()}
        with write_atomically(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("about.json", json.dumps(about, indent=1))
            archive.writestr("models.skops", _skops().dumps(parts))
            if self.quantiles is not None:
                self.quantiles.write(archive)


def train(
    known: Known, method: str = "boosting", *, window: int = 100_000, seed: int = 0
) -> Predictor:
    """Train models on all ended jobs.

    Args:
        known: The jobs.
        method: Name in `MODELS`.
        window: Largest number of last ended jobs to train on.
        seed: Seed of random numbers.

    Raises:
        UnknownNameError: There is no such method.
        ConfigError: Fewer than 50 jobs ended.
    """
    if method not in MODELS:
        raise UnknownNameError("model", method, list(MODELS))
    models, most, quantiles = {}, 0, None
    by_end = np.argsort(known.end_ms, kind="stable")
    for target, values in known.truth.items():
        rows = by_end[~np.isnan(values[by_end])][-window:]
        if len(rows) < _LEAST:
            continue
        model = MODELS[method](seed=seed)
        model.fit(known.features(target)[rows], known.behaviour[rows], np.log2(values[rows]))
        models[target], most = model, max(most, len(rows))
        if target == "runtime_s":
            quantiles = runtime_quantiles(known, rows, seed)
    if not models:
        raise ConfigError(
            f"{known.workload.name}: fewer than {_LEAST} jobs ended, too few to learn from"
        )
    return Predictor(method, models, known.workload.name, most, quantiles, known.notes)


def load_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Read a file written by `Predictor.write`.

    Raises:
        ConfigError: There is no such file, it holds something else, or was written with another
            version of hpctwin's features or of scikit-learn.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(
            f"{path}: file does not exist; make it with hpctwin predictor train TRACE {path}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read("about.json"))
            packed = archive.read("models.skops")
        found, writer = about["format"], about["hpctwin"]
        if found != _FORMAT:
            raise ConfigError(other_format(path, found, _FORMAT, writer))
        method, targets = about["method"], list(about["targets"])
        trained_on, jobs = str(about["trained_on"]), int(about["jobs"])
        sklearn_version, features = about["sklearn"], about["features"]
        notes = tuple(map(str, about.get("assumptions", ())))
    except ConfigError:
        raise
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path} is not a predictor, or is truncated; make one with hpctwin predictor train"
        ) from error
    skops = _skops()
    import sklearn

    if features != list(FEATURES):
        raise ConfigError(
            f"{path} was written by hpctwin {writer}, which uses other job features; train it again"
        )
    if sklearn_version.split(".")[:2] != sklearn.__version__.split(".")[:2]:
        raise ConfigError(
            f"{path} was written with scikit-learn {sklearn_version}, but "
            f"{sklearn.__version__} is installed; train it again"
        )
    if method not in MODELS:
        raise UnknownNameError(f"{path}: model", method, list(MODELS))
    strange = set(skops.get_untrusted_types(data=packed)) - _TRUSTED
    if strange:
        raise ConfigError(
            f"{path} contains {min(strange)}, which is not part of a predictor; it is not read"
        )
    parts = skops.load(io.BytesIO(packed), trusted=sorted(_TRUSTED))
    if set(parts) != set(targets):
        raise ConfigError(
            f"{path}: models are of {', '.join(parts)}, but the file lists {', '.join(targets)}"
        )
    models = {name: MODELS[method](**part) for name, part in parts.items()}
    return Predictor(method, models, trained_on, jobs, notes=notes)


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ConfigError(
            "predictors in files need skops; install it with pip install 'hpctwin[learn]'"
        ) from error
    return skops.io
