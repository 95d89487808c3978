"""Calls of compiled functions from Python.

A compiled function returns a status. Its first two arguments are where it puts its result and its
exception; an array is five numbers, its shape and its strides.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from typing import Any, get_type_hints

import numpy as np

from hpctwin.engine.compile.policy_modules import JobView, NodeView

__all__ = ["Call"]

_RETURNED = (0, -2)
"""Statuses of a function that has returned; -2 is for None."""
_SCALARS: dict[str, Any] = {
    "int64": ctypes.c_int64,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
    "Sim": ctypes.c_void_p,
}
_VIEWS: dict[str, list[type[int | float]]] = {
    "Job": list(get_type_hints(JobView).values()),
    "Node": list(get_type_hints(NodeView).values()),
}


class _Raised(ctypes.Structure):
    """An exception as compiled code describes it: class, arguments and place are pickled."""

    _fields_ = (("pickled", ctypes.c_void_p), ("size", ctypes.c_int32))


class Call:
    """A compiled function as Python calls it; other threads of Python run meanwhile.

    Args:
        address: Address of the function.
        signature: Types of result and arguments, see `jit.Compiled`.
    """

    def __init__(self, address: int, signature: str) -> None:
        result, _, given = signature.removesuffix(")").partition("(")
        self._result = _SCALARS.get(result, ctypes.c_void_p)
        kinds = given.split(", ")
        self._arrays = {at: _array(kind) for at, kind in enumerate(kinds) if kind.endswith("]")}
        self._arrays |= {at: _view(kind) for at, kind in enumerate(kinds) if kind in _VIEWS}
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        types: list[Any] = [pointer, pointer]
        for at, kind in enumerate(kinds):
            shape = [number] * (2 * kind.count(",") + 2)
            array = [pointer, pointer, number, number, pointer, *shape]
            if kind in _VIEWS:
                types += [number if one is int else ctypes.c_double for one in _VIEWS[kind]]
            elif at in self._arrays:
                types += array
            else:
                types.append(pointer if kind.startswith("State") else _SCALARS[kind])
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function.

        Raises:
            TypeError: An argument is not of the declared type.
        """
        found, raised = self._result(), ctypes.c_void_p()
        places = ctypes.addressof(found), ctypes.addressof(raised)
        words = arguments if not self._arrays else self._words(arguments)
        status = self._function(*places, *words)
        if status not in _RETURNED:
            assert raised.value is not None
            what = _Raised.from_address(raised.value)
            kind, given, _ = pickle.loads(ctypes.string_at(what.pickled, what.size))
            raise kind(*given or ())
        return found.value

    def _words(self, arguments: tuple[Any, ...]) -> list[Any]:
        words: list[Any] = []
        for at, one in enumerate(arguments):
            words += self._arrays[at](one) if at in self._arrays else (one,)
        return words


def _view(kind: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the words by which a job or node is passed."""
    types = _VIEWS[kind]
    return lambda view: tuple(made(one) for made, one in zip(types, view, strict=True))


def _array(kind: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the words by which an array of a kind is passed."""
    element, _, places = kind.partition("[")
    dtype, dimensions = np.dtype(element), places.count(",") + 1

    def flat(array: Any) -> tuple[Any, ...]:
        if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
            raise TypeError(f"{array.dtype} array [{array.shape}] given, {kind} needed")
        owners = None, None
        return *owners, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides

    return flat
