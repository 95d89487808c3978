"""Parts of a policy that are one module each: passes and kinds of power policies.

A module ``my_part.py`` in their folder defines the part under a fixed attribute name; policies name
it ``my-part``. The first line of its docstring is its help text. A class ``Numbers`` in it declares
the settings of a policy: names, units, defaults and, as comments, their meaning. No other file
needs a change. A part defined elsewhere is registered.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from hpctwin.engine.compile.compile_errors import syntax_tree
from hpctwin.engine.state import records

__all__ = ["About", "Modules", "Number"]

T = TypeVar("T")


@dataclass(frozen=True)
class Number:
    """A numeric setting of a policy.

    Args:
        name: Setting name.
        unit: ``number``, ``count`` (1 or more), ``limit`` (1 or more, 0 for any), ``ms``, ``step``
            (ms, 1 or more), or ``flag`` (0 or 1).
        default: Value if the policy does not set it.
        help: Meaning of the setting.
    """

    name: str
    unit: str
    default: int
    help: str = ""


@dataclass(frozen=True)
class About:
    """Help text and settings of a part.

    Args:
        help: One line of help.
        numbers: Settings of a policy.
        marks: Names in capital letters that the module sets to True.
    """

    help: str
    numbers: tuple[Number, ...]
    marks: frozenset[str] = frozenset()


class Modules(Generic[T]):
    """Registry of all parts of one kind.

    Args:
        package: Package that contains the modules.
        attribute: Name of the part in its module.
    """

    def __init__(self, package: str, attribute: str) -> None:
        self.package = package
        self.attribute = attribute
        self._registered: dict[str, T] = {}

    def register(self, name: str, found: T) -> T:
        """Register a part, so that policies can name it."""
        self._registered[name] = found
        return found

    def names(self) -> list[str]:
        """The names of all."""
        return sorted({*self.own(), *self._registered})

    def own(self) -> list[str]:
        """Return the names of the parts in the package folder."""
        path = sys.modules[self.package].__path__
        return [module.name.replace("_", "-") for module in pkgutil.iter_modules(path)]

    def find(self, name: str) -> T:
        """Return the part with a name; the name must exist."""
        if name not in self._registered:
            module = importlib.import_module(self._module(name))
            self.register(name, getattr(module, self.attribute))
        return self._registered[name]

    def about(self, name: str) -> About:
        """Return help and settings of a part; loads Numba only for registered parts.

        Raises:
            KeyError: There is no part with this name.
        """
        told = _about_module(self._module(name))
        if told is None and name in self._registered:
            found = self._registered[name]
            marks = {"TAKES_TIMEOUT"} if getattr(found, "timeouts", False) else set()
            told = _about_record(getattr(found, "numbers", None), frozenset(marks))
        if told is None:
            raise KeyError(name)
        return told

    def _module(self, name: str) -> str:
        if not name.replace("-", "").isalnum():
            return "-"
        return f"{self.package}.{name.replace('-', '_')}"


def _about_record(record: type | None, marks: frozenset[str]) -> About:
    hints = {} if record is None else get_type_hints(record, include_extras=True)
    return About(
        (record.__doc__ or "" if record else "").partition("\n")[0] or "of one's own",
        tuple(Number(f, _unit(h), getattr(record, f, 0)) for f, h in hints.items()),
        marks,
    )


@lru_cache(maxsize=64)
def _about_module(module: str) -> About | None:
    """Read help and settings from a module's source; None if there is no source."""
    spec = importlib.util.find_spec(module)
    source = None if spec is None else getattr(spec.loader, "get_source")(spec.name)  # noqa: B009
    if source is None:
        return None
    tree = syntax_tree(source)
    assert isinstance(tree, ast.Module)
    help, _, _ = (ast.get_docstring(tree) or "").partition("\n")
    marks = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    return About(help, tuple(_numbers(tree, source.splitlines())), frozenset(marks))


def _numbers(tree: ast.Module, lines: list[str]) -> Iterator[Number]:
    """Yield the fields of the class ``Numbers``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Numbers":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    default = 0 if field.value is None else ast.literal_eval(field.value)
                    hint = getattr(records, ast.unparse(field.annotation))
                    told = lines[field.lineno - 1].partition("#")[2].strip()
                    yield Number(field.target.id, _unit(hint), default, told)


def _unit(hint: Any) -> str:
    return str((*get_args(hint), "number")[2])
