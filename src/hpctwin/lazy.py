"""Packages that import a name's module when the name is first used."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hpctwin.guesses import unknown

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``, which know names of its modules.

    Args:
        package: The package's name.
        modules: Names to offer by module, relative to the package.
    """
    home = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in home:
            if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
                raise AttributeError(f"module {package}.{name} is not imported; import it first")
            raise AttributeError(f"module {unknown(package, name, home)}")
        value = getattr(importlib.import_module(home[name]), name)
        # A function may share the name of its module or package, which an import would bind
        # instead.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names
