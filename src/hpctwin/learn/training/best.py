"""The best network so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Best", "Learnt"]


class Learnt(NamedTuple):
    """Network that chooses.

    Args:
        layers: Weights and biases.
        rowless: Scores of choices that are not rows; see `Network.rowless`.
    """

    layers: list[tuple[Any, Any]]
    rowless: Any


class Best:
    """The best network tried so far, with its reward."""

    def __init__(self) -> None:
        self.earned = -np.inf
        self.learnt: Learnt | None = None

    def offer(self, earned: float, learnt: Learnt) -> None:
        """Keep a network if it is better."""
        if earned > self.earned:
            self.earned, self.learnt = earned, learnt

    def arrays(self) -> dict[str, Any]:
        """Return the arrays to save."""
        found = {"best": np.array(self.earned)}
        if self.learnt is not None:
            flat = [array for layer in self.learnt.layers for array in layer]
            found |= {f"layer{number}": array for number, array in enumerate(flat)}
            found["rowless"] = self.learnt.rowless
        return found

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore the best network from saved arrays."""
        self.earned = float(kept["best"])
        flat = [kept[f"layer{number}"] for number in range(sum("layer" in name for name in kept))]
        if flat:
            self.learnt = Learnt(list(zip(flat[::2], flat[1::2], strict=True)), kept["rowless"])
