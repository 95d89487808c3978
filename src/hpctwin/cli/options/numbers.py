"""Parsing of numbers on the command line: never below 0, never NaN."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

from cyclopts import CoercionError, Parameter, Token, convert, validators

__all__ = ["AT_LEAST_0", "AT_LEAST_1", "read_value"]

AT_LEAST_0 = Parameter(validator=validators.Number(gte=0))
AT_LEAST_1 = Parameter(validator=validators.Number(gte=1))
"""Validator of counts that must be at least 1."""

_LIMIT = 10**18  # fits into int64, so every component accepts it
_WHOLE = re.compile(r"[+-]?[0-9]+")


def read_value(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the value of a parameter as cyclopts does, but reject invalid numbers.

    cyclopts rounds 4.5 to 4 for a whole number, and accepts negative counts and NaN. No number of
    any command may be below 0.

    Args:
        kind: The parameter's type.
        tokens: The given text.

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
                msg=f"{name} is {token.value!r:.60}, it must be a whole number, 0 or more"
                + (f" and below {_LIMIT:,}" if number >= _LIMIT else "")
            )
        if float in kinds and not 0 <= number < math.inf:
            raise CoercionError(
                msg=f"{name} is {token.value!r:.60}, it must be a number, 0 or more"
            )
    return convert(kind, tokens)


def _parts(kind: Any) -> set[Any]:
    """Return the plain types in an optional type or a tuple of types."""
    if get_origin(kind) in (Union, types.UnionType, tuple):
        return set().union(*(_parts(part) for part in get_args(kind)))
    return {kind}
