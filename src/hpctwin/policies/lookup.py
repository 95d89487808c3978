"""Lookup of orderings by a user's text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import metadata
from typing import Any

from hpctwin.engine.compile.policy_views import JobView
from hpctwin.errors import PolicyError, UnknownNameError, in_brief
from hpctwin.policies.code.files import is_file, is_network, load_function
from hpctwin.policies.orderings.adaptive import adaptive, pas, pfm
from hpctwin.policies.orderings.built_in import BUILT_IN
from hpctwin.policies.orderings.formula import formula, is_formula
from hpctwin.policies.orderings.multifactor import multifactor
from hpctwin.policies.orderings.ordering import Ordering, ordering
from hpctwin.policies.registry import Entry, Parameter, Registry

__all__ = ["ENTRY_POINTS", "ORDERINGS", "OrderingLike", "find_ordering"]

ENTRY_POINTS = "hpctwin.orderings"
"""Entry-point group for orderings of installed packages."""

OrderingLike = str | Ordering | Callable[[float, JobView], float]


def _plugins() -> Mapping[str, Entry[Ordering]]:
    """Return the orderings of installed packages."""
    return {
        point.name: Entry(point.name, f"plug-in: {point.value}", partial(_plugin, point))
        for point in metadata.entry_points(group=ENTRY_POINTS)
    }


ORDERINGS: Registry[Ordering] = Registry("ordering", _plugins)
"""Orderings by name."""


def _parameters(maker: Callable[..., Ordering]) -> tuple[Parameter, ...]:
    """Return the parameters of a function that makes orderings: its keywords."""
    return tuple(
        Parameter(name, _KINDS.get(type(value), "number"), value)
        for name, value in (inspect.unwrap(maker).__kwdefaults__ or {}).items()
    )


_KINDS: dict[type, str] = {bool: "flag", str: "text"}

for _made in BUILT_IN.values():
    ORDERINGS.register(Entry(_made.name, _made.summary, partial(BUILT_IN.get, _made.name)))  # type: ignore[arg-type]
for _maker in (adaptive, multifactor, pas, pfm):
    _help = (inspect.getdoc(_maker) or "").partition("\n")[0]
    ORDERINGS.register(Entry(_maker.__name__, _help, _maker, _parameters(_maker)))


def find_ordering(what: OrderingLike) -> Ordering:
    """Return the ordering that a user asks for.

    Args:
        what: An `Ordering`; a Python function ``(now, job) -> score``; or a text. Texts are a name
            such as ``wfp``; ``multifactor:age=1000,size=500`` or ``adaptive:chain=0``; a formula
            such as ``-(wait/walltime)**3*nodes``; a function in a file, ``my.py:my_order``; or the
            name of an installed plug-in.

    Raises:
        UnknownNameError: No ordering has that name; the message lists the known names.
        PolicyError: The formula, file or function cannot be used.
    """
    if isinstance(what, Ordering):
        return _checked(what)
    if callable(what):
        made: Ordering = ordering(what)
        return made
    if not isinstance(what, str):
        raise PolicyError(
            f"an ordering is {in_brief(what)}; it must be a name, a formula, a function or an Ordering"
        )
    text = what.strip()
    name, _, details = text.partition(":")
    if ORDERINGS.has_own(name):
        return _named(name, details)
    if is_file(text):
        whole, found = load_function(text, Ordering, "ordering")
        return _usable(found, whole)
    if is_network(text):
        from hpctwin.policies.agents.agents import agent_ordering

        return agent_ordering(text)
    if is_formula(text):
        return formula(text)
    if text in ORDERINGS:
        return ORDERINGS.find(text).make()
    if text in JobView._fields:
        return formula(text)
    raise UnknownNameError("ordering", text, list(ORDERINGS))


@lru_cache(maxsize=256)
def _named(name: str, details: str) -> Ordering:
    """Return an ordering with options; equal ones are compiled once."""
    entry = ORDERINGS.find(name)
    return entry.make(**entry.read(details, "option"))


def _checked(made: Ordering) -> Ordering:
    """Check an existing ordering again: its file may have changed a global since."""
    if not made.kept:
        made.check()
    return made


def _plugin(point: metadata.EntryPoint) -> Ordering:
    try:
        found: Any = point.load()
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"plug-in {point.name!r} ({point.value}) fails when it is loaded: {error!r}"
        ) from error
    return _usable(found, point.name)


def _usable(what: Any, name: str) -> Ordering:
    if isinstance(what, Ordering):
        return _checked(what)
    if callable(what):
        made: Ordering = ordering(what, name=name)
        return made
    raise PolicyError(f"{name} is {type(what).__name__}, not a function or an ordering")
