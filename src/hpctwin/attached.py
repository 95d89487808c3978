"""Attributes of a class from a higher package, such as ``result.plot``."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Attached", "attach"]

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
