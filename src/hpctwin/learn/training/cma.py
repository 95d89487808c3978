"""Covariance matrix adaptation (CMA-ES) with candidates in opposite pairs.

Source: Hansen 2016, arXiv 1604.00772.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Adaptation"]

FloatArray = npt.NDArray[np.float64]


class Adaptation:
    """Normal distribution that moves to where costs are low, in the paper's notation.

    Args:
        mean: Initial mean.
        spread: Initial standard deviation of each number.
        candidates: Number of candidates in a round, even.
        rng: Random number generator.
    """

    def __init__(
        self, mean: FloatArray, spread: float, candidates: int, rng: np.random.Generator
    ) -> None:
        n = len(mean)
        self.mean, self.sigma, self.candidates, self._rng = mean, spread, candidates, rng
        ranks = np.arange(1, candidates // 2 + 1)
        self.weights = np.log(ranks[-1] + 0.5) - np.log(ranks)
        self.weights /= self.weights.sum()
        mu = self.mu = float(1 / (self.weights**2).sum())
        self.cc = (4 + mu / n) / (n + 4 + 2 * mu / n)
        self.cs = (mu + 2) / (n + mu + 5)
        self.c1 = 2 / ((n + 1.3) ** 2 + mu)
        self.cmu = min(1 - self.c1, 2 * (mu - 2 + 1 / mu) / ((n + 2) ** 2 + mu))
        self.damping = 1 + 2 * max(0.0, np.sqrt((mu - 1) / (n + 1)) - 1) + self.cs
        self.expected = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self.covariance, self.pc, self.ps = np.eye(n), np.zeros(n), np.zeros(n)
        self.rounds = 0

    def ask(self) -> FloatArray:
        """Return candidates [candidates, numbers]."""
        values, self._axes = np.linalg.eigh(self.covariance)
        self._lengths = np.sqrt(np.maximum(values, 1e-20))
        half = self._rng.standard_normal((self.candidates // 2, len(self.mean)))
        self._away = (np.concatenate([half, -half]) * self._lengths) @ self._axes.T
        found: FloatArray = self.mean + self.sigma * self._away
        return found

    def tell(self, costs: FloatArray) -> None:
        """Adapt to the costs of the last candidates [candidates]."""
        self.rounds += 1
        best = self._away[np.argsort(costs, kind="stable")[: len(self.weights)]]
        step = self.weights @ best
        self.mean = self.mean + self.sigma * step
        white = self._axes @ (self._axes.T @ step / self._lengths)
        self.ps = (1 - self.cs) * self.ps + np.sqrt(self.cs * (2 - self.cs) * self.mu) * white
        length = float(np.linalg.norm(self.ps))
        settled = np.sqrt(1 - (1 - self.cs) ** (2 * self.rounds))
        goes_on = length / settled < (1.4 + 2 / (len(self.mean) + 1)) * self.expected
        self.pc = (1 - self.cc) * self.pc
        if goes_on:
            self.pc += np.sqrt(self.cc * (2 - self.cc) * self.mu) * step
        self.covariance = (
            (1 - self.c1 - self.cmu) * self.covariance
            + self.c1 * np.outer(self.pc, self.pc)
            + self.cmu * (best.T * self.weights) @ best
        )
        self.sigma *= float(np.exp(self.cs / self.damping * (length / self.expected - 1)))
