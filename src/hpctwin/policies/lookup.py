"""Finding policies by what a user writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hpctwin.engine.abi import JobView
from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
from hpctwin.model.user_functions import functions_in, load_module, named_in
from hpctwin.policies.adaptive import adaptive, pas, pfm
from hpctwin.policies.formula import formula, is_formula
from hpctwin.policies.multifactor import multifactor
from hpctwin.policies.ordering import Ordering, ordering
from hpctwin.policies.orderings import BUILT_IN

__all__ = ["ENTRY_POINTS", "MAKERS", "find_ordering", "ordering_names"]

ENTRY_POINTS = "hpctwin.orderings"
"""Entry-point group under which installed packages offer orderings."""

MAKERS: dict[str, Callable[..., Ordering]] = {
    "adaptive": adaptive,
    "multifactor": multifactor,
    "pas": pas,
    "pfm": pfm,
}
"""Orderings that take options, by name."""

OrderingLike = str | Ordering | Callable[[float, JobView], float]


def find_ordering(what: OrderingLike) -> Ordering:
    """The ordering a user means.

    Args:
        what: an `Ordering`; a Python function ``(now, job) -> score``; or text: a name such as ``wfp``;
            ``multifactor:age=1000,size=500`` or ``adaptive:chain=0``; a formula such as
            ``-(wait/walltime)**3*nodes``; a function in a file, ``my.py:my_order``; or the name of an
            installed plug-in.

    Raises:
        UnknownNameError: no ordering has that name; the message lists those there are.
        PolicyError: the formula, file or function cannot be used.
    """
    if isinstance(what, Ordering):
        return _checked(what)
    if callable(what):
        made: Ordering = ordering(what)
        return made
    if not isinstance(what, str):
        raise PolicyError(
            f"an ordering is {what!r}; it must be a name, a formula, a function or an Ordering"
        )
    text = what.strip()
    if text in BUILT_IN:
        return BUILT_IN[text]
    name, _, options = text.partition(":")
    if name in MAKERS:
        return _made(name, options)
    if name.endswith(".py"):
        return _from_file(name, options)
    if is_formula(text):
        return formula(text)
    plugins = {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}
    if text in plugins:
        return _usable(_loaded(plugins[text]), text)
    if text in JobView._fields:
        return formula(text)
    raise UnknownNameError("ordering", text, [*ordering_names(), *plugins])


def ordering_names() -> list[str]:
    """The names of the orderings that come with hpctwin."""
    return sorted([*BUILT_IN, *MAKERS])


@lru_cache(maxsize=256)
def _made(name: str, options: str) -> Ordering:
    """An ordering that takes options, from ``key=value,key=value``; the same again is not compiled again."""
    maker = MAKERS[name]
    known = maker.__kwdefaults__ or {}
    given: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, _, value = (part.strip() for part in option.partition("="))
        if key not in known:
            raise UnknownNameError(f"option of {name}", key, known)
        if isinstance(known[key], str):
            given[key] = value
        elif isinstance(known[key], bool):
            given[key] = value.lower() in ("1", "true", "yes")
        else:
            try:
                given[key] = float(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {key}={value!r} is not a number") from error
    return maker(**given)


def _from_file(path: str, name: str) -> Ordering:
    module = load_module(path)
    found = {k: v for k, v in vars(module).items() if isinstance(v, Ordering)}
    if name:
        return _usable(named_in(module, name, path, found), f"{Path(path).name}:{name}")
    if len(found) != 1:
        there = sorted({*found, *functions_in(module)})
        raise PolicyError(
            f"{path}: name the ordering, as in {path}:NAME; it has {', '.join(there) or 'none'}"
        )
    return _checked(next(iter(found.values())))


def _checked(made: Ordering) -> Ordering:
    """An ordering that was made before: its file may have changed a global since."""
    if not made.kept:
        made.check()
    return made


def _loaded(plugin: metadata.EntryPoint) -> Any:
    try:
        return plugin.load()
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"plug-in {plugin.name!r} ({plugin.value}) fails when it is loaded: {error!r}"
        ) from error


def _usable(what: Any, name: str) -> Ordering:
    if isinstance(what, Ordering):
        return _checked(what)
    if callable(what):
        made: Ordering = ordering(what, name=name)
        return made
    raise PolicyError(f"{name} is {type(what).__name__}, not a function or an ordering")
