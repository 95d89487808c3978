"""Backfills: which jobs may overtake the first; each is a pass of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from hpctwin.engine.compile.policy_modules import Modules, Number
from hpctwin.engine.passes import PASSES, Pass, made_of
from hpctwin.errors import PolicyError
from hpctwin.model.text import MS_PER_S, to_ms
from hpctwin.policies.registry import Entry, Parameter, Registry, is_file, load_function, split_file

__all__ = [
    "BACKFILLS",
    "CANDIDATES",
    "OUTSIDE",
    "Entries",
    "engine_numbers",
    "find_backfill",
    "parameter_of",
]

T = TypeVar("T")

CANDIDATES = "easy"
"""The backfill that may have a separate ordering of candidates."""

OUTSIDE = "outside"
"""The backfill that starts only jobs that are named from outside the engine."""

_KIND = {
    "count": "whole",
    "number": "whole",
    "limit": "limit",
    "ms": "duration",
    "step": "duration",
    "flag": "flag",
}


def parameter_of(one: Number) -> Parameter:
    """Return a number of the engine as a parameter of a policy."""
    kind = _KIND[one.unit]
    least = {"count": 1.0, "limit": 1.0, "step": 1 / MS_PER_S}.get(one.unit, 0.0)
    default: Any = one.default
    if kind == "duration":
        default = one.default / MS_PER_S
    if kind == "limit" and one.default == 0:
        default = None
    if kind == "flag":
        default = bool(one.default)
    return Parameter(one.name, kind, default, least, help=one.help)


@lru_cache(maxsize=64)
def _entry(name: str) -> Entry[dict[str, Any]]:
    told = PASSES.about(name)
    parameters = tuple(parameter_of(one) for one in told.numbers)
    only = parameters[0].name if len(parameters) == 1 else ""
    return Entry(name, told.help, dict, parameters, only)


class Entries(Mapping[str, Entry[T]]):
    """Entries that are made on access, because that reads the source of a module.

    Args:
        modules: Modules of the entries.
        made: Function that returns the entry of a name.
    """

    def __init__(self, modules: Modules[Any], made: Callable[[str], Entry[T]]) -> None:
        self._modules = modules
        self._made = made

    def __getitem__(self, name: str) -> Entry[T]:
        return self._made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules.names())

    def __len__(self) -> int:
        return len(self._modules.names())


BACKFILLS: Registry[dict[str, Any]] = Registry("backfill", partial(Entries, PASSES, _entry))
"""Backfills by name; making one returns its settings."""


def find_backfill(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a backfill, and its settings.

    Args:
        text: A name with its settings, as in ``pack:patience=12h``; or a function or pass in a
            file, as in ``my.py:my_pass``.

    Raises:
        UnknownNameError, ConfigError, PolicyError: There is no such backfill.
    """
    text = text.strip()
    if is_file(text):
        found, details = _own_pass(text), split_file(text)[2]
    else:
        found, _, details = text.partition(":")
    entry = BACKFILLS.find(found)
    return entry.name, entry.read(details)


def _own_pass(text: str) -> str:
    """Register the `Pass` or function ``(sim) -> None`` of a file; return its name."""
    name, found = load_function(text, Pass, "backfill", default="PASS")
    if not isinstance(found, Pass):
        if not callable(found):
            raise PolicyError(f"{name} is {type(found).__name__}, not a function or a Pass")
        found = made_of(found)
    PASSES.register(name, found)
    return name


def engine_numbers(entry: Entry[Any], settings: Mapping[str, Any]) -> dict[str, int]:
    """Return settings in the engine's form: ms, 0 for any and for no, 1 for yes."""
    numbers = {}
    for one in entry.parameters:
        value = settings.get(one.name, one.default)
        if one.kind == "duration":
            value = to_ms(value)
        if one.kind in ("duration", "whole", "limit", "flag"):
            numbers[one.name] = 0 if value is None else int(value)
    return numbers
