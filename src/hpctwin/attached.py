"""What rooms above give to rooms below, which know nothing of it: ``result.plot``, parts of policies."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["Attached", "attach", "offer", "offered"]

_MAKERS: dict[str, str] = {}
_OFFERS: dict[str, dict[str, str]] = {}


class Attached:
    """An attribute that a room above makes, when it is first asked for."""

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
    """Say what makes an attribute.

    Args:
        attribute: class and name, such as ``Result.plot``.
        maker: what is called with the instance, as ``module:function``; imported when it is needed.
    """
    _MAKERS[attribute] = maker


def offer(package: str, name: str, module: str) -> None:
    """Let a module of a room above be found as one of a package's.

    Args:
        package: such as ``hpctwin.engine.powers``.
        name: what policies call it.
        module: where it is; imported when it is needed.
    """
    _OFFERS.setdefault(package, {})[name] = module


def offered(package: str) -> Mapping[str, str]:
    """The modules that rooms above offer to a package, by name."""
    return _OFFERS.get(package, {})
