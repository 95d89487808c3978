"""Quantiles by trees that were trained elsewhere: plain arrays, walked with NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

__all__ = ["QuantileTrees"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_AT_ONCE = 200
"""So many jobs are walked at once, so that memory is bounded."""


@dataclass(frozen=True, eq=False)
class QuantileTrees:
    """Gradient boosted trees for some quantiles (Q) of a logarithm, R for each.

    Args:
        levels: which quantiles, rising, above 0 and below 1 [Q].
        base: where each begins [Q].
        roots: the first node of each tree [Q, R].
        feature: by which a node divides [nodes].
        threshold: up to which one goes to the left [nodes].
        unknown_left: whether one goes there where the feature is not known [nodes].
        left, right: the nodes there; a leaf's are itself [nodes].
        value: what a leaf adds [nodes].
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
        """Of its arrays."""
        return [field.name for field in fields(cls)]

    def predict(self, features: FloatArray) -> FloatArray:
        """The quantiles, none below one of a lower level [jobs, Q].

        Args:
            features: of each job; NaN where one is not known [jobs, any].
        """
        parts = [
            self._of(features[row : row + _AT_ONCE]) for row in range(0, len(features), _AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.levels)))

    def _of(self, features: FloatArray) -> FloatArray:
        jobs, trees = len(features), self.roots.size
        node = np.tile(self.roots.ravel(), jobs)
        row = np.repeat(np.arange(jobs), trees)
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
