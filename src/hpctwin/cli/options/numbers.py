"""Numbers on the command line: whole where whole ones are asked for, never below 0, never NaN."""

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
"""For counts of which there must be one."""

_LIMIT = 10**18  # int64 holds it, and so it passes through everything
_WHOLE = re.compile(r"[+-]?[0-9]+")


def read_value(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert what was given for a parameter as cyclopts does, but for numbers that cannot be meant.

    By itself it rounds 4.5 to 4 for a whole number, and takes negative counts and NaN. No number that
    a command takes is below 0.

    Args:
        kind: the parameter's type.
        tokens: what was given.

    Raises:
        CoercionError: it is no such value.
    """
    kinds = _parts(kind)
    for token in tokens:
        try:
            number = float(token.value)
        except ValueError:
            continue  # cyclopts says itself what it cannot read
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
    """The plain types in an optional type or a tuple of them."""
    if get_origin(kind) in (Union, types.UnionType, tuple):
        return set().union(*(_parts(part) for part in get_args(kind)))
    return {kind}
