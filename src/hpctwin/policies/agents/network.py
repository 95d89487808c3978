"""Small networks of agents: read and written without pickle, computed in NumPy.

The format is that of safetensors. Its library checks neither that layers fit together nor that
numbers are finite.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import PolicyError
from hpctwin.model.files import cause, write_atomically

__all__ = ["Network"]

FloatArray = npt.NDArray[np.float32]
CARD = "hpctwin"
ROWLESS = "rowless"
MOST_BYTES = 64 << 20
"""Maximum size of a file; networks of agents have some kilobytes."""


@dataclass(frozen=True, eq=False)
class Network:
    """Layers ``tanh(W x + b)``; the last is linear and returns a score per choice.

    Args:
        layers: W [outputs, inputs] and b [outputs] of each layer.
        by_row: Whether each row of the observation is scored separately: one choice per row, and
            one output of the last layer.
        card: Description of the training, as plain values.
        rowless: Constant scores of choices after the rows, which belong to no row.
    """

    layers: tuple[tuple[FloatArray, FloatArray], ...]
    by_row: bool
    card: dict[str, Any] = field(default_factory=dict)
    rowless: FloatArray = field(default_factory=lambda: np.zeros(0, np.float32))

    def scores(self, seen: FloatArray) -> FloatArray:
        """Return the score of each choice; the highest is the best [choices].

        Args:
            seen: The observation.
        """
        found = seen if self.by_row else seen.reshape(-1)
        for number, (weight, bias) in enumerate(self.layers):
            found = found @ weight.T + bias
            if number < len(self.layers) - 1:
                found = np.tanh(found)
        scores: FloatArray = np.concatenate([found.reshape(-1), self.rowless])
        return scores

    def save(self, path: str | Path) -> None:
        """Write the network and its card as safetensors."""
        header: dict[str, Any] = {
            "__metadata__": {CARD: json.dumps({"by_row": self.by_row, **self.card})}
        }
        arrays = {
            f"{number}.{name}": array
            for number, layer in enumerate(self.layers)
            for name, array in zip(("weight", "bias"), layer, strict=True)
        }
        if len(self.rowless):
            arrays[ROWLESS] = self.rowless
        pieces, at = [], 0
        for name, array in arrays.items():
            piece = np.ascontiguousarray(array, "<f4").tobytes()
            header[name] = {
                "dtype": "F32",
                "shape": list(array.shape),
                "data_offsets": [at, at + len(piece)],
            }
            pieces.append(piece)
            at += len(piece)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with write_atomically(path) as file:
            file.write(len(text).to_bytes(8, "little") + text + b"".join(pieces))

    @classmethod
    def load(cls, path: str | Path) -> Network:
        """Read a network; nothing in the file is executed.

        Raises:
            PolicyError: The file does not exist, or is not a network.
        """
        path = Path(path)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise PolicyError(f"{path} is larger than an agent is ({MOST_BYTES >> 20} MB)")
            data = path.read_bytes()
        except OSError as error:
            raise PolicyError(
                f"{path}: {cause(error)}; an agent is made by hpctwin agent train"
            ) from error
        try:
            return cls._of(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PolicyError(
                f"{path} holds no agent ({error}); hpctwin agent train makes one"
            ) from error

    @classmethod
    def _of(cls, data: bytes) -> Network:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > len(data) - 8:
            raise ValueError("it is cut off")
        header = json.loads(data[8 : 8 + size])
        card = json.loads(header["__metadata__"][CARD])
        by_row = bool(card.pop("by_row"))
        layers: list[tuple[FloatArray, FloatArray]] = []
        while f"{len(layers)}.weight" in header:
            number = len(layers)
            pair = [_array(data[8 + size :], header[f"{number}.{k}"]) for k in ("weight", "bias")]
            weight, bias = pair
            inputs = weight.shape[1] if not layers else len(layers[-1][1])
            if weight.shape != (len(bias), inputs) or bias.ndim != 1:
                raise ValueError(f"layer {number} does not go with the one before")
            layers.append((weight, bias))
        if not layers or (by_row and len(layers[-1][1]) != 1):
            raise ValueError("its layers give no score")
        if ROWLESS not in header:
            return cls(tuple(layers), by_row, card)
        rowless = _array(data[8 + size :], header[ROWLESS])
        if rowless.ndim != 1 or not by_row:
            raise ValueError("scores beside those of rows are no list")
        return cls(tuple(layers), by_row, card, rowless)


def _array(data: bytes, about: dict[str, Any]) -> FloatArray:
    first, last = about["data_offsets"]
    shape = tuple(about["shape"])
    if about["dtype"] != "F32" or not 0 <= first <= last <= len(data):
        raise ValueError("its numbers are of another kind, or cut off")
    found = np.frombuffer(data[first:last], "<f4").astype(np.float32).reshape(shape)
    if not np.isfinite(found).all():
        raise ValueError("some of its numbers are not finite")
    found.flags.writeable = False
    return found
