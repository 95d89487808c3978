"""Attributes that are found when they are first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["kept"]

T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801  a decorator, as `property`
    """As `functools.cached_property`, of which that of Python 3.11 lets one thread find it at a time.

    There what takes long for one object is waited for by whoever asks it of any other. Here two threads that
    ask it of one object may both look for it; both get what the first has found.

    Args:
        find: finds it, given the object, which has a ``__dict__``.
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
