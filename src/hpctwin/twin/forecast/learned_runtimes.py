"""Runtimes drawn from a trained predictor's quantiles, corrected by past errors.

The quantiles are predicted at a job's arrival. A drawn runtime has a place in the predicted
distribution, 0 to 1. Places are drawn from those of earlier jobs of similar size. With right
quantiles these places would be uniform; if they are not, the draws correct the error.

Source:
    Vovk et al. 2020, *Conformal calibrators*; Kuleshov, Fenner, Ermon 2018, *Accurate Uncertainties for Deep
    Learning Using Calibrated Regression*, §3.

Quantiles from trained trees, stored as arrays and evaluated with NumPy alone.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import zipfile
from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.forecast.submissions import FEATURES, Submissions

__all__ = ["LearnedRuntimes", "QuantileTrees", "Quantiles", "read_quantiles"]

FloatArray = npt.NDArray[np.float64]

IntArray = npt.NDArray[np.int64]

_AT_ONCE = 200
"""Number of jobs evaluated at once, to bound memory."""


@dataclass(frozen=True, eq=False)
class QuantileTrees:
    """Gradient-boosted trees for Q quantiles of a logarithm, R trees per quantile.

    Args:
        levels: Levels of the quantiles, rising, above 0 and below 1 [Q].
        base: Initial value of each quantile [Q].
        roots: Index of the root node of each tree [Q, R].
        feature: Index of the feature that a node splits by [nodes].
        threshold: Largest value of the feature that goes to the left [nodes].
        unknown_left: Whether an unknown feature goes to the left [nodes].
        left, right: Indices of the child nodes; a leaf's children are the leaf itself [nodes].
        value: Value that a leaf adds [nodes].
    """

    levels: FloatArray
    base: FloatArray
    roots: IntArray
    feature: IntArray
    threshold: FloatArray
    unknown_left: npt.NDArray[np.bool_]
    left: IntArray
    right: IntArray
    value: FloatArray

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the arrays."""
        return [field.name for field in fields(cls)]

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the quantiles of each job, sorted so that they rise [jobs, Q].

        Args:
            features: Features of each job; NaN if unknown [jobs, features].
        """
        parts = [
            self._of(features[row : row + _AT_ONCE]) for row in range(0, len(features), _AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.levels)))

    def _of(self, features: FloatArray) -> FloatArray:
        jobs, trees = len(features), self.roots.size
        node = np.tile(self.roots.ravel(), jobs)
        row = np.repeat(np.arange(jobs), trees)
        # Walk all trees for all jobs at once, one level per turn. A walk ends at a leaf.
        walks = np.arange(len(node))
        while len(walks):
            here = node[walks]
            known = features[row[walks], self.feature[here]]
            with np.errstate(invalid="ignore"):
                to_left = known <= self.threshold[here]
            to_left |= np.isnan(known) & self.unknown_left[here]
            there = np.where(to_left, self.left[here], self.right[here])
            node[walks] = there
            walks = walks[self.left[there] != there]
        added = self.value[node].reshape(jobs, *self.roots.shape)
        found: FloatArray = np.sort(self.base + added.sum(axis=2), axis=1)
        return found


_ABOUT, _TREES, _HISTORY = "quantiles.json", "quantiles.npz", "history.json"
PLACES, ENOUGH = 500, 20
"""Places remembered per size class; with fewer than `ENOUGH`, all sizes count."""
_ALL = -1


@dataclass(frozen=True, eq=False)
class Quantiles:
    """Content of a predictor's file that a twin uses.

    Args:
        trees: Trees that predict quantiles of the runtime's logarithm from `FEATURES`.
        history: History of the training jobs, from `Submissions.state`.
        trained_on: Name of the training workload.
        until_s: End of the last training job by the workload's clock, in seconds.
        digest: Digest that identifies the trees.
    """

    trees: QuantileTrees
    history: dict[str, Any]
    trained_on: str
    until_s: float
    digest: str = ""

    def write(self, archive: zipfile.ZipFile) -> None:
        """Write the content to a predictor's file."""
        about = {
            "features": list(FEATURES), "trained_on": self.trained_on, "until_s": self.until_s,
        }  # fmt: skip
        packed = io.BytesIO()
        np.savez(packed, **{name: getattr(self.trees, name) for name in QuantileTrees.names()})
        archive.writestr(_ABOUT, json.dumps(about, indent=1))
        archive.writestr(_TREES, packed.getvalue())
        archive.writestr(_HISTORY, json.dumps(self.history), zipfile.ZIP_DEFLATED)


def read_quantiles(path: Path) -> Quantiles:
    """Read quantiles from a file that ``hpctwin predictor train`` wrote.

    Neither scikit-learn nor skops is needed.

    Raises:
        ConfigError: The file does not exist, has another content, or uses other features.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise ConfigError(
            f"{path}: file does not exist; make it with hpctwin predictor train TRACE {path}"
        ) from error
    return _read(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, _size: int) -> Quantiles:
    try:
        with zipfile.ZipFile(path) as archive:
            if "about.json" in archive.namelist() and _ABOUT not in archive.namelist():
                raise ConfigError(
                    f"{path} contains no runtime quantiles; train it again with this "
                    "version on a trace that has runtimes: hpctwin predictor train TRACE"
                )
            about = json.loads(archive.read(_ABOUT))
            packed, history = archive.read(_TREES), json.loads(archive.read(_HISTORY))
        if about["features"] != list(FEATURES):
            raise ConfigError(
                f"{path} was trained with job features that differ from those of this "
                f"version ({_differing(about['features'])}); train it again: hpctwin "
                "predictor train TRACE"
            )
        trees = _trees(io.BytesIO(packed))
        Submissions().restore(history)
        return Quantiles(
            trees, history, str(about["trained_on"]), float(about["until_s"]),
            hashlib.sha256(packed).hexdigest()[:16],
        )  # fmt: skip
    except ConfigError:
        raise
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path} is not a predictor, or is truncated; make one with hpctwin predictor train"
        ) from error


def _trees(packed: IO[bytes]) -> QuantileTrees:
    with np.load(packed, allow_pickle=False) as arrays:
        trees = QuantileTrees(**{name: arrays[name] for name in QuantileTrees.names()})
    # The whole file is checked once, so that no evaluation can fail or loop for ever.
    size = len(trees.value)
    for nodes in (trees.roots, trees.left, trees.right):
        if nodes.min() < 0 or nodes.max() >= size:
            raise ValueError("a missing node")
    # A child's index is above its parent's, so that every walk ends at a leaf.
    beyond = np.arange(size)
    if not (
        ((trees.left == beyond) & (trees.right == beyond))
        | (np.minimum(trees.left, trees.right) > beyond)
    ).all():
        raise ValueError("a cycle of nodes")
    if trees.feature.min() < 0 or trees.feature.max() >= len(FEATURES):
        raise ValueError("a missing feature")
    if len(trees.roots) != len(trees.levels) or (np.diff([0, *trees.levels, 1]) <= 0).any():
        raise ValueError("levels that do not increase from 0 to 1")
    return trees


def _differing(features: Sequence[str]) -> str:
    other = sorted(set(features) ^ set(FEATURES))
    return ", ".join(other[:3]) if other else "features in another order"


class LearnedRuntimes:
    """Quantiles predicted at each present job's arrival, and places of ended jobs."""

    def __init__(self, quantiles: Quantiles) -> None:
        self._quantiles = quantiles
        self._levels = np.concatenate([[0.0], quantiles.trees.levels, [1.0]])
        self._known = Submissions()
        self._known.restore(quantiles.history)
        self._arrived: dict[str, tuple[list[float], float]] = {}
        self._foretold: dict[str, FloatArray] = {}
        self._places: dict[int, deque[float]] = {}

    def copy(self) -> LearnedRuntimes:
        """Return a copy that draws the same runtimes after later changes of this one; it cannot learn."""
        other = copy.copy(self)
        other._arrived, other._foretold = self._arrived.copy(), self._foretold.copy()
        other._places = {group: places.copy() for group, places in self._places.items()}
        return other

    def __contains__(self, job_id: object) -> bool:
        """Return whether a job has arrived."""
        return job_id in self._foretold or job_id in self._arrived

    def saw_submission(self, spec: JobSpec) -> None:
        """Record a submission with the job's present features, if the job is new."""
        if spec.id not in self:
            self._arrived[spec.id] = self._known.submitted(spec), max(spec.walltime_s, 1.0)

    def saw_end(self, spec: JobSpec, runtime_s: float, end_s: float) -> None:
        """Learn from a job that ran to its own end or to its walltime."""
        if spec.id in self:
            self._foretell()
            table = self._foretold.pop(spec.id)[None]
            place = float(self._place(table, np.array([max(runtime_s, 1.0)]))[0])
            for group in (_size(spec), _ALL):
                self._places.setdefault(group, deque(maxlen=PLACES)).append(place)
        self._known.ended(spec.user, spec.nodes, spec.walltime_s, runtime_s, end_s)

    def keep(self, jobs: Container[str]) -> None:
        """Drop all jobs but the given ones."""
        self._arrived = {i: one for i, one in self._arrived.items() if i in jobs}
        self._foretold = {i: one for i, one in self._foretold.items() if i in jobs}

    def runtimes(self, jobs: Sequence[JobSpec], so_far: FloatArray, draw: FloatArray) -> FloatArray:
        """Draw runtimes above the time already run, in seconds [samples, jobs].

        Args:
            jobs: Jobs that have arrived.
            so_far: Time that each has run, in seconds [jobs].
            draw: Random numbers in [0, 1) [samples, jobs].
        """
        self._foretell()
        table = np.array([self._foretold[job.id] for job in jobs])
        reached = np.where(so_far > 1.0, self._place(table, np.maximum(so_far, 1.0)), 0.0)
        size = np.array(list(map(_size, jobs)))
        place = np.empty(draw.shape)
        for one in np.unique(size).tolist():
            here = size == one
            place[:, here] = self._drawn(one, reached[here], draw[:, here])
        return self._runtime_s(table, place)

    def state(self) -> dict[str, Any]:
        """Return everything that was learned, as plain values."""
        return {
            "digest": self._quantiles.digest,
            "known": self._known.state(),
            "arrived": {i: list(one) for i, one in self._arrived.items()},
            "foretold": {i: one.tolist() for i, one in self._foretold.items()},
            "places": [[size, list(places)] for size, places in sorted(self._places.items())],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`; with another predictor, places are learned from scratch."""
        self._known.restore(state["known"])
        if state["digest"] != self._quantiles.digest:
            return
        self._arrived = {i: (features, limit) for i, (features, limit) in state["arrived"].items()}
        self._foretold = {i: np.array(one) for i, one in state["foretold"].items()}
        self._places = {size: deque(places, maxlen=PLACES) for size, places in state["places"]}

    def _foretell(self) -> None:
        """Predict the quantiles of all jobs that arrived since the last call at once."""
        if not self._arrived:
            return
        features = np.array([features for features, _ in self._arrived.values()])
        limit = np.log2([limit for _, limit in self._arrived.values()])
        inner = np.clip(self._quantiles.trees.predict(features), 0.0, limit[:, None])
        table = np.column_stack([np.zeros(len(limit)), inner, limit])
        self._foretold.update(zip(self._arrived, table, strict=True))
        self._arrived = {}

    def _drawn(self, size: int, reached: FloatArray, draw: FloatArray) -> FloatArray:
        """Draw places above the reached ones, from those of past jobs of a size class.

        With too few in that class, those of all sizes count; with too few again, places are
        uniform. The place 1, the walltime, is always possible.
        """
        places = self._places.get(size, ())
        if len(places) < ENOUGH:
            places = self._places.get(_ALL, ())
        if len(places) < ENOUGH:
            return reached + draw * (1.0 - reached)
        seen = np.sort(np.array([*places, 1.0]))
        first = np.minimum(np.searchsorted(seen, reached, "right"), len(seen) - 1)
        drawn: FloatArray = seen[(first + draw * (len(seen) - first)).astype(np.int64)]
        return drawn

    def _place(self, table: FloatArray, runtime_s: FloatArray) -> FloatArray:
        """Return the place of each runtime in its distribution; 1 at the walltime [jobs]."""
        value = np.log2(runtime_s)
        left = np.clip((table <= value[:, None]).sum(axis=1) - 1, 0, table.shape[1] - 2)
        rows = np.arange(len(table))
        low, high = table[rows, left], table[rows, left + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(high > low, np.clip((value - low) / (high - low), 0.0, 1.0), 1.0)
        levels = self._levels
        place = levels[left] + share * (levels[left + 1] - levels[left])
        return np.where(value >= table[:, -1], 1.0, place)

    def _runtime_s(self, table: FloatArray, place: FloatArray) -> FloatArray:
        """Return the runtime at each place, in seconds [samples, jobs]."""
        levels = self._levels
        left = np.clip(np.searchsorted(levels, place, "right") - 1, 0, len(levels) - 2)
        share = (place - levels[left]) / (levels[left + 1] - levels[left])
        jobs = np.arange(len(table))[None]
        low, high = table[jobs, left], table[jobs, left + 1]
        runtime_s: FloatArray = np.exp2(low + share * (high - low))
        return runtime_s


def _size(spec: JobSpec) -> int:
    return (spec.nodes - 1).bit_length()
