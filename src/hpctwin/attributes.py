"""Attributes computed on first access, or attached by a higher package."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["Attached", "attach", "kept"]

_MAKERS: dict[str, str] = {}


class Attached:
    """An attribute that a higher package creates on its first use."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        if self._name not in _MAKERS:
            raise AttributeError(f"nothing is attached as {self._name}")
        module, _, function = _MAKERS[self._name].partition(":")
        return getattr(importlib.import_module(module), function)(instance)


def attach(attribute: str, maker: str) -> None:
    """Register the function that creates an attribute.

    Args:
        attribute: Class and name, such as ``Result.plot``.
        maker: Function of the instance, as ``module:function``; imported on first use.
    """
    _MAKERS[attribute] = maker


T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801  a decorator, as `property`
    """A cached attribute without a lock across objects.

    `functools.cached_property` of Python 3.11 lets one thread compute it at a time. A slow
    computation for one object then delays access to any other. Here two threads may both compute it
    for one object; both get the result of the first.

    Args:
        find: Computes it from the object, which has a ``__dict__``.
    """

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self._name, self._find(instance))
        return found
