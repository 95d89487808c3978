"""Texts with places for parameters: ``{name}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["fill", "names_in"]

_PLACE = re.compile(r"\{(\w+)\}")


def names_in(text: str) -> list[str]:
    """The parameters that a text has places for."""
    return _PLACE.findall(text)


def fill(given: Any, values: Mapping[str, Any]) -> Any:
    """A text with the values put in; one that is nothing but a place becomes the value itself.

    Args:
        given: a text; anything else stays as it is.
        values: by name.
    """
    if not isinstance(given, str):
        return given
    alone = _PLACE.fullmatch(given)
    if alone is not None:
        return values[alone[1]]
    return _PLACE.sub(lambda place: _text(values[place[1]]), given)


def _text(value: Any) -> str:
    return f"{value!r}" if isinstance(value, float) else str(value)
