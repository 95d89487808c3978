"""Parts of a policy that are a module each: passes, and kinds of power policies.

A module ``my_part.py`` in their folder holds the part under a certain name; policies name it ``my-part``. The
first line of its text tells what it does, and a class ``Numbers`` in it what a policy may set: names, units,
defaults and, as comments, what they mean. Nothing else need be touched. One from elsewhere is registered.
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

from hpctwin.engine.compile.syntax import syntax_tree
from hpctwin.engine.state import records

__all__ = ["About", "Modules", "Number"]

T = TypeVar("T")


@dataclass(frozen=True)
class Number:
    """A number that a policy may set.

    Args:
        name: what it is called.
        unit: ``number``, ``count`` (1 or more), ``limit`` (1 or more, 0 for any), ``ms``, ``step`` (ms, 1
            or more), or ``flag`` (0 or 1).
        default: its value if it is not set.
        help: what it means.
    """

    name: str
    unit: str
    default: int
    help: str = ""


@dataclass(frozen=True)
class About:
    """What can be told of a part.

    Args:
        help: a line.
        numbers: what a policy may set.
        marks: names of capital letters that the module sets to true.
    """

    help: str
    numbers: tuple[Number, ...]
    marks: frozenset[str] = frozenset()


class Modules(Generic[T]):
    """All parts of one kind.

    Args:
        package: the folder's package.
        attribute: what the part is called in its module.
    """

    def __init__(self, package: str, attribute: str) -> None:
        self.package = package
        self.attribute = attribute
        self._registered: dict[str, T] = {}

    def register(self, name: str, found: T) -> T:
        """Let policies name a part."""
        self._registered[name] = found
        return found

    def names(self) -> list[str]:
        """The names of all."""
        return sorted({*self.own(), *self._registered})

    def own(self) -> list[str]:
        """The names of those in the folder."""
        path = sys.modules[self.package].__path__
        return [module.name.replace("_", "-") for module in pkgutil.iter_modules(path)]

    def find(self, name: str) -> T:
        """The part of a name, which is there."""
        if name not in self._registered:
            module = importlib.import_module(self._module(name))
            self.register(name, getattr(module, self.attribute))
        return self._registered[name]

    def about(self, name: str) -> About:
        """What can be told of one; unless it was registered, Numba is not loaded for it.

        Raises:
            KeyError: there is none such.
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
    """Read off its source."""
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
    """The fields of the class ``Numbers``."""
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
