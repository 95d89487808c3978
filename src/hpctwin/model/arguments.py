"""Arguments of public functions: checked in one way, and named if invalid."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ArgumentError, in_brief, near
from hpctwin.guesses import ATTRIBUTES

P = ParamSpec("P")
R = TypeVar("R")

FloatArray = npt.NDArray[np.float64]
_WORDS = {
    "NoneType": "None", "int": "a whole number", "float": "a finite number", "bool": "True or False",
    "str": "text", "Path": "a path", "PathLike": "a path", "Sequence": "a list", "Iterable": "a list",
    "Mapping": "a dict", "Callable": "a function", "DataFrame": "a DataFrame of Polars",
}  # fmt: skip


def check_arguments(*skipped: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks a function's arguments against its annotations.

    Args:
        skipped: Names of arguments that the function itself checks.

    Returns:
        The decorator. The function then raises `ArgumentError` with argument, value and valid form.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.cache
        def hints() -> dict[str, Any]:
            return {
                name: _resolved(one.annotation, function)
                for name, one in signature.parameters.items()
                if name not in skipped and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
            }

        open_ended = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not open_ended and (unknown := kwargs.keys() - signature.parameters.keys()):
                raise ArgumentError(_unknown_argument(function, min(unknown), signature.parameters))
            given = signature.bind(*args, **kwargs).arguments
            for name, value in given.items():
                hint = hints().get(name, Any)
                if not _fits(value, hint):
                    raise ArgumentError(f"{name} is {in_brief(value)}; it must be {_form(hint)}")
            try:
                return function(*args, **kwargs)
            except Exception as error:
                lacking = _without_column(error, given)
                if lacking is None:
                    raise
                raise ArgumentError(lacking) from error

        return checked

    return decorate


def _without_column(error: Exception, given: collections.abc.Mapping[str, Any]) -> str | None:
    """Return the message for tables without a needed column; None for any other error."""
    if type(error).__name__ != "ColumnNotFoundError":
        return None
    import polars as pl

    said = str(error)
    name = said.split('"')[1] if '"' in said else said
    tables = [
        argument
        for argument, value in given.items()
        for table in (value.values() if isinstance(value, collections.abc.Mapping) else [value])
        if isinstance(table, pl.DataFrame) and name not in table.columns
    ]
    if not tables:
        return None
    return (
        f"column {name!r} is missing in {' or '.join(dict.fromkeys(tables))}; give the table that "
        "hpctwin has made, with all its columns"
    )


def _unknown_argument(function: Callable[..., Any], name: str, known: Iterable[str]) -> str:
    """Return the message for an argument that a function does not have."""
    owner, _, method = function.__qualname__.rpartition(".")
    if right := ATTRIBUTES.get(owner, {}).get(f"{method}({name})"):
        return f"argument {name!r} does not exist; use {right}"
    names = [one for one in known if one not in ("self", "cls")]
    return f"argument {name!r} does not exist.{near(name, names)} Known: {', '.join(names)}"


def column(name: str, values: object, each: str = "job") -> FloatArray:
    """Return a column of numbers, one per job; durations become seconds.

    Args:
        name: Name of the argument, for messages.
        values: A list, an array, a column of a table, or any other iterable of numbers.
        each: What has one number, for messages.
    """
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iufb":
        return np.asarray(values, np.float64)
    expected = f"it must be a list or array of numbers, one per {each}"
    if isinstance(values, (str, bytes, collections.abc.Mapping, collections.abc.Set)):
        raise ArgumentError(f"{name} is {in_brief(values)}; {expected}")
    if isinstance(values, collections.abc.Iterator):
        values = list(values)
    try:
        made = np.asarray(values)
        if made.dtype.kind == "m":
            return made / np.timedelta64(1, "s")
        if made.dtype.kind in "MSV":
            raise TypeError("dates and bytes are not numbers")
        found = made.astype(np.float64) if made.dtype.kind != "c" else None
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not isinstance(found, np.ndarray):
        raise ArgumentError(f"{name} is {in_brief(values)}; {expected}")
    if found.ndim != 1:
        raise ArgumentError(
            f"{name} is {in_brief(values)}, of shape {found.shape}; {expected}, of one dimension"
        )
    return found


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return the annotated type; Any if only type checkers know its names."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, inspect.unwrap(function).__globals__)
    except NameError:
        return Any


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the annotated type, or works like it."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if hint is npt.ArrayLike or hint is Any or isinstance(hint, (TypeVar, str)):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in within)
    if origin is typing.Literal:
        return isinstance(value, str)  # the function reports the valid words
    if origin is typing.Annotated:
        return _fits(value, within[0])
    kind = origin or hint
    if hint is None or kind is type(None):
        return value is None
    if kind is bool:
        return isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1))
    if kind is int:
        return is_whole(value)
    if kind is float:
        return is_number(value)
    if kind is collections.abc.Callable:
        return callable(value)
    if kind in (collections.abc.Sequence, collections.abc.Iterable):
        single = isinstance(value, (str, bytes, collections.abc.Mapping))
        return hasattr(value, "__iter__") and not single and getattr(value, "ndim", 1) > 0
    if kind is Path:
        kind = os.PathLike
    try:
        return not isinstance(kind, type) or isinstance(value, kind)
    except TypeError:  # a protocol
        return True


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return False
    try:
        return -(2**63) <= int(value.__index__()) < 2**64
    except TypeError:  # an array of several
        return False


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _form(hint: Any) -> str:
    """Return the form that an annotation requires, in words."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_form(one) for one in within))
    if origin is typing.Literal:
        return " or ".join(map(repr, within))
    name = getattr(origin or hint, "__name__", str(hint))
    return _WORDS.get(name, f"a {name}")
