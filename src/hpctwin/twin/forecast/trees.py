"""Quantiles from trained trees, stored as arrays and evaluated with NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

__all__ = ["QuantileTrees"]

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
