"""Python code that a configuration names.

Paths of Python files are relative to the configuration. Code that other users may write is
rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpctwin.model.trusted import check_module, check_trusted

__all__ = ["check_named_code", "kinds_of", "named_beside", "texts_of"]

# A path at the beginning, or after a separator in a policy; see `hpctwin.policies.parse_policy`.
_FILE = re.compile(r"((?:^|\+\s*easy(?::\d+)?/|[+@~])\s*)([^+@~]*?\.py)(?=[:+@~]|\s*$)")


def named_beside(text: str, folder: Path) -> str:
    """Return a policy or function with absolute paths of the Python files in it."""
    return _FILE.sub(lambda m: f"{m[1]}{(folder / m[2]).absolute()}", text)


def check_named_code(text: str) -> None:
    """Reject a policy or function ``module:name`` whose code other users may write.

    Missing code is ignored: loading it fails with its own message.

    Raises:
        ConfigError: Another user may write the code; see `hpctwin.model.trusted`.
    """
    files = [Path(m[2]) for m in _FILE.finditer(text)]
    for file in files:
        if file.is_file():
            check_trusted(file)
    module, colon, name = text.partition(":")
    if not files and colon and name.isidentifier() and re.fullmatch(r"\w+(\.\w+)*", module):
        check_module(module)


def texts_of(content: Any) -> list[tuple[dict[str, Any] | list[Any], Any]]:
    """Return container and key of each text in a configuration that may name code.

    Args:
        content: Plain values of the configuration, not validated yet.
    """
    if not isinstance(content, dict):
        return []
    core, places = content.get("core"), kinds_of([content])
    if not isinstance(core, dict):
        return places
    objective = core.get("objective")
    places.append((core, "own_policy"))
    lists = [core.get("pool")]
    if isinstance(objective, dict):
        places.append((objective, "function"))
        lists.append(objective.get("ties"))
    for values in lists:
        if isinstance(values, list):
            places += [(values, i) for i in range(len(values))]
    return [(where, key) for where, key in places if isinstance(_at(where, key), str)]


def kinds_of(sites: Iterable[Any]) -> list[tuple[dict[str, Any] | list[Any], Any]]:
    """Return container and key of each custom manager kind, ``module:name``.

    Args:
        sites: Plain values with a ``manager`` each, not validated yet.
    """
    managers = [site.get("manager") for site in sites if isinstance(site, dict)]
    return [
        (manager, "kind")
        for manager in managers
        if isinstance(manager, dict) and ":" in str(manager.get("kind"))
    ]


def _at(where: dict[str, Any] | list[Any], key: Any) -> Any:
    return where.get(key) if isinstance(where, dict) else where[key]
