"""Values of options: parsing of numbers, and shell completion of policies."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from cyclopts import CoercionError, Parameter, Token, convert, validators

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from hpctwin.policies.registry import Registry

__all__ = ["AT_LEAST_0", "AT_LEAST_1", "complete_part", "complete_policy", "read_value"]

_PARTS = {"+": "backfill", "@": "placement", "~": "power"}
"""Part of a policy that follows each sign."""


def complete_part(kind: str) -> Callable[[CompletionContext], dict[str, str]]:
    """Return the completer of a policy part: names and, after a colon, settings.

    Args:
        kind: ``order``, ``backfill``, ``placement`` or ``power``.
    """

    def complete(context: CompletionContext) -> dict[str, str]:
        return dict(_offered(kind, context.incomplete))

    return complete


def complete_policy(context: CompletionContext) -> dict[str, str]:
    """Complete a whole policy: the part at the end of the typed text."""
    text = context.incomplete
    at = max(text.rfind(sign) for sign in _PARTS)
    before, part = text[: at + 1], text[at + 1 :]
    kind = _PARTS[before[-1]] if before else "order"
    return {before + name: help for name, help in _offered(kind, part)}


def _offered(kind: str, typed: str) -> Iterator[tuple[str, str]]:
    from hpctwin.policies import REGISTRIES

    registry: Registry[Any] = REGISTRIES[kind]
    name, colon, settings = typed.partition(":")
    if not colon:
        for known in registry:
            yield known, registry.find(known).help
    elif name in registry:
        before = typed[: len(typed) - len(settings.rpartition(",")[2])]
        for one in registry.find(name).parameters:
            yield f"{before}{one.name}=", one.help


AT_LEAST_0 = Parameter(validator=validators.Number(gte=0))
AT_LEAST_1 = Parameter(validator=validators.Number(gte=1))
"""Validator of counts that must be at least 1."""

_LIMIT = 10**18  # fits into int64, so every component accepts it
_WHOLE = re.compile(r"[+-]?[0-9]+")


def read_value(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the value of a parameter as cyclopts does, but reject invalid numbers.

    cyclopts rounds 4.5 to 4 for a whole number, and accepts negative counts and NaN. No number of
    any command may be below 0.

    Raises:
        CoercionError: The text is not such a value.
    """
    kinds = _parts(kind)
    for token in tokens:
        try:
            number = float(token.value)
        except ValueError:
            continue  # cyclopts reports what it cannot parse
        name = token.keyword or "value"
        if int in kinds and not (_WHOLE.fullmatch(token.value) and 0 <= number < _LIMIT):
            raise CoercionError(
                msg=f"{name} is {token.value!r:.60}; it must be a whole number, 0 or more"
                + (f" and below {_LIMIT:,}" if number >= _LIMIT else "")
            )
        if float in kinds and not 0 <= number < math.inf:
            raise CoercionError(
                msg=f"{name} is {token.value!r:.60}; it must be a number, 0 or more"
            )
    return convert(kind, tokens)


def _parts(kind: Any) -> set[Any]:
    """Return the plain types in an optional type or a tuple of types."""
    if get_origin(kind) in (Union, types.UnionType, tuple):
        return set().union(*(_parts(part) for part in get_args(kind)))
    return {kind}
