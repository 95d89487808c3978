"""Platforms and profiles as text and arrays, in which files of simulations keep them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.network import platform, profiles, rank_tasks, topologies, zones
from hpctwin.network.patterns import Pattern

__all__ = ["pack", "unpack"]

_CLASSES: dict[str, type[Any]] = {
    name: found
    for module in (platform, profiles, rank_tasks, topologies, zones)
    for name, found in vars(module).items()
    if isinstance(found, type) and (is_dataclass(found) or hasattr(found, "_fields"))
}


def pack(value: Any) -> dict[str, npt.NDArray[Any]]:
    """Return platforms, profiles, and tuples of them as arrays by name.

    An object that occurs more than once is stored once.
    """
    writer = _Writer()
    top = writer.plain(value)
    text = json.dumps({"objects": writer.objects, "top": top}).encode()
    joined = {name: np.concatenate(parts) for name, parts in writer.parts.items()}
    return {"text": np.frombuffer(text, np.uint8), **joined}


def unpack(arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return what `pack` has made arrays of.

    Raises:
        ValueError, LookupError, TypeError: The arrays are not of this version.
    """
    stored = json.loads(arrays["text"].tobytes())
    made: list[Any] = []
    for name, values in stored["objects"]:
        given = {key: _value(one, made, arrays) for key, one in values.items()}
        made.append(_CLASSES[name](**given))
        if isinstance(made[-1], zones.Zone):
            made[-1].finish()
    return _value(stored["top"], made, arrays)


class _Writer:
    """Makes plain values: of numbers, text, lists, and dictionaries with one key."""

    def __init__(self) -> None:
        self.objects: list[tuple[str, dict[str, Any]]] = []
        self.parts: dict[str, list[npt.NDArray[Any]]] = {}
        self._sizes: Counter[str] = Counter()
        self._seen: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        """Return a value without objects and arrays, which are stored apart."""
        if isinstance(value, Pattern):
            return {"pattern": value.value}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return {"array": self._array(value)}
        if isinstance(value, Mapping):
            return {"map": [[self.plain(key), self.plain(one)] for key, one in value.items()]}
        if isinstance(value, (tuple, list)):
            kind = type(value).__name__
            several = [self.plain(one) for one in value]
            return several if kind == "tuple" else {kind: several}
        if id(value) not in self._seen:
            own = {one.name: self.plain(getattr(value, one.name)) for one in fields(value)}
            self._seen[id(value)] = len(self.objects)
            self.objects.append((type(value).__name__, own))
        return {"object": self._seen[id(value)]}

    def _array(self, array: npt.NDArray[Any]) -> tuple[str, int, tuple[int, ...]]:
        name = array.dtype.name
        self.parts.setdefault(name, []).append(array.ravel())
        self._sizes[name] += array.size
        return name, self._sizes[name] - array.size, array.shape


def _value(plain: Any, made: list[Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(one, made, arrays) for one in plain)
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "object":
        return made[content]
    if kind == "pattern":
        return Pattern(content)
    if kind == "array":
        name, at, shape = content
        return arrays[name][at : at + int(np.prod(shape))].reshape(shape)
    if kind == "map":
        return {_value(key, made, arrays): _value(one, made, arrays) for key, one in content}
    several = [_value(one, made, arrays) for one in content]
    return several if kind == "list" else _CLASSES[kind](*several)
