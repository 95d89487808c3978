"""Columns of numbers as bytes, for typed arrays in a browser.

Four bytes with the length of a JSON head, the head, then the columns, each from a multiple of eight bytes
on, all little-endian. The head's ``columns`` says of each its name, type (``u1``, ``i4``, ``f8``), length
and place after the head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

__all__ = ["MEDIA_TYPE", "packed"]

MEDIA_TYPE = "application/octet-stream"
_ALIGNED = 8
_TYPES = ("u1", "i4", "f8")


def packed(head: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A head and its columns as bytes.

    Args:
        head: what is told besides; JSON.
        columns: arrays of one of the three types.
    """
    told, parts, place = [], [], 0
    for name, values in columns.items():
        kind = values.dtype.str[1:]
        assert kind in _TYPES, kind
        content = values.astype(f"<{kind}", copy=False).tobytes()
        told.append({"name": name, "type": kind, "length": len(values), "at": place})
        content += bytes(-len(content) % _ALIGNED)
        parts.append(content)
        place += len(content)
    text = json.dumps({**head, "columns": told}, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    return b"".join([len(text).to_bytes(4, "little"), text, *parts])
