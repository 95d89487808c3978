"""Models that learn from ended jobs to predict submitted ones, with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError

__all__ = ["MODELS", "Boosting", "Clusters", "Model", "QuantileBoosting"]

FloatArray = npt.NDArray[np.float64]


class Model(Protocol):
    """Trainable model."""

    def fit(self, features: FloatArray, behaviour: FloatArray, target: FloatArray) -> Self:
        """Learn from ended jobs.

        Args:
            features: Features of each job [jobs, `known.FEATURES`].
            behaviour: Results of each job; see `known.Known.behaviour` [jobs, any].
            target: Target to predict, as logarithm to base 2 [jobs].
        """
        ...

    def predict(self, features: FloatArray) -> FloatArray:
        """Return logarithms of the target [jobs].

        Args:
            features: Features of each job [jobs, `known.FEATURES`].
        """
        ...


@dataclass
class Boosting:
    """Gradient boosting on histograms, for the least mean error of the logarithm."""

    rounds: int = 50
    seed: int = 0
    trees: Any = None

    def fit(self, features: FloatArray, behaviour: FloatArray, target: FloatArray) -> Self:
        """See `Model.fit`."""
        ensemble = self._untrained()
        # scikit-learn fails on a column without known values; a constant column is never split.
        unknown = np.isnan(features).all(axis=0)
        with _one_thread():
            self.trees = ensemble.fit(np.where(unknown, 0.0, features), target)
        return self

    def predict(self, features: FloatArray) -> FloatArray:
        """See `Model.predict`."""
        with _one_thread():
            found: FloatArray = self.trees.predict(features)
        return found

    def _untrained(self, **loss: Any) -> Any:
        return _sklearn().HistGradientBoostingRegressor(
            **(loss or {"loss": "absolute_error"}),
            max_iter=self.rounds,
            early_stopping=False,
            random_state=self.seed,
        )


@dataclass
class QuantileBoosting(Boosting):
    """Gradient boosting for a quantile of the logarithm."""

    quantile: float = 0.5

    def _untrained(self, **loss: Any) -> Any:
        return super()._untrained(loss="quantile", quantile=self.quantile)


@dataclass
class Clusters:
    """S-RAPS's pipeline (Maiterth et al., SC25-W, §4.4).

    K-means divides ended jobs by what they asked and how they went. A random forest learns to
    choose a job's cluster from what is known at its submission. Each cluster has its own regressor.

    Args:
        clusters: Largest number of clusters.
        trees: Number of trees in each forest.
        seed: Seed of random numbers.
    """

    clusters: int = 8
    trees: int = 20
    seed: int = 0
    chooser: Any = None
    regressors: dict[str, Any] = field(default_factory=dict)

    def fit(self, features: FloatArray, behaviour: FloatArray, target: FloatArray) -> Self:
        """See `Model.fit`."""
        from sklearn.cluster import KMeans
        from sklearn.preprocessing import StandardScaler

        learning = _sklearn()
        features = _filled(features)
        seen = np.where(np.isnan(behaviour), _column_means(behaviour), behaviour)
        seen = StandardScaler().fit_transform(seen)
        distinct = len(np.unique(seen, axis=0))
        common = {"n_estimators": self.trees, "random_state": self.seed, "max_features": 1 / 3}
        with _one_thread():
            divided = KMeans(min(self.clusters, distinct), n_init=1, random_state=self.seed)
            cluster = divided.fit_predict(seen)
            chooser = learning.RandomForestClassifier(min_samples_leaf=2, **common)
            self.chooser = chooser.fit(features, cluster)
            self.regressors = {}
            for number in np.unique(cluster).tolist():
                forest = learning.RandomForestRegressor(min_samples_leaf=3, **common)
                rows = cluster == number
                self.regressors[str(number)] = forest.fit(features[rows], target[rows])
        return self

    def predict(self, features: FloatArray) -> FloatArray:
        """See `Model.predict`."""
        features = _filled(features)
        with _one_thread():
            cluster = self.chooser.predict(features)
            found = np.zeros(len(features))
            for number in np.unique(cluster).tolist():
                rows = cluster == number
                found[rows] = self.regressors[str(number)].predict(features[rows])
        return found


MODELS: Mapping[str, type[Boosting] | type[Clusters]] = {"boosting": Boosting, "clusters": Clusters}
"""Models by name."""


def _filled(features: FloatArray) -> FloatArray:
    """Return features without gaps, for forests; unknown is below all known values."""
    return np.nan_to_num(features, nan=-100.0)


def _column_means(values: FloatArray) -> FloatArray:
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=0)
    means: FloatArray = sums / np.maximum(known.sum(axis=0), 1)
    return means


def _sklearn() -> Any:
    try:
        import sklearn.ensemble
    except ImportError as error:
        raise ConfigError(
            "learned prediction needs scikit-learn; install it with pip install 'hpctwin[learn]'"
        ) from error
    return sklearn.ensemble


def _one_thread() -> Any:
    """Return a context that limits libraries to one thread.

    Sums of floats then have the same order on every computer: same input, same output.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
