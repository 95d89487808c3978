"""Trained models in a file, and what they were trained on; reading runs no code."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin._version import __version__
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.prediction.known import FEATURES, Known
from hpctwin.learn.prediction.models import MODELS, Boosting, Clusters
from hpctwin.learn.prediction.online import bounded
from hpctwin.learn.prediction.quantiles import runtime_quantiles
from hpctwin.model import write_atomically
from hpctwin.model.files import other_format
from hpctwin.twin.forecast.learned_runtimes import Quantiles

__all__ = ["Predictor", "load_predictor", "train"]

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
            f"{known.workload.name}: fewer than {_LEAST} jobs ended; there is too little to learn from"
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
            f"{path}: there is no such file; hpctwin predictor train TRACE {path} makes it"
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
            f"{path} is no predictor, or not whole: hpctwin predictor train writes them"
        ) from error
    skops = _skops()
    import sklearn

    if features != list(FEATURES):
        raise ConfigError(
            f"{path} was written by hpctwin {writer}, whose jobs have other features; "
            "train it again"
        )
    if sklearn_version.split(".")[:2] != sklearn.__version__.split(".")[:2]:
        raise ConfigError(
            f"{path} was written with scikit-learn {sklearn_version}, here is {sklearn.__version__}; "
            "train it again"
        )
    if method not in MODELS:
        raise UnknownNameError(f"{path}: model", method, list(MODELS))
    strange = set(skops.get_untrusted_types(data=packed)) - _TRUSTED
    if strange:
        raise ConfigError(
            f"{path} holds {min(strange)}, which is no part of a predictor; it is not read"
        )
    parts = skops.load(io.BytesIO(packed), trusted=sorted(_TRUSTED))
    if set(parts) != set(targets):
        raise ConfigError(
            f"{path}: its models are of {', '.join(parts)}, it says {', '.join(targets)}"
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
