"""Numba's reason why a function cannot be compiled, in one line."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["why_not_compiled"]

_NO_REASON = (
    "Failed in",
    "During",
    "File",
    "^",
    "Raised from",
    ">>>",
    "Invalid use",
    "- Resolution",
)
_RETURNED = re.compile(r"No conversion from (.+) to float64 for '\$\w*return_(?:value|const)")


def why_not_compiled(error: Exception, function: Any) -> tuple[str, str]:
    """Return the location of a compilation error and Numba's reason, in one line each.

    Args:
        error: Exception that Numba raised.
        function: Python function that was compiled.

    Returns:
        File and line of the error, and the reason.
    """
    code = function.__code__
    text = str(error)
    returned = _RETURNED.search(text)
    name = re.escape(code.co_filename.rpartition("/")[2])
    found = re.findall(rf"{name}\"?(?:, line | \()(\d+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(_NO_REASON)]
    reason = (told or lines or [type(error).__name__])[0].partition(" Raised from")[0].rstrip(".")
    if returned is not None:
        reason = f"it returns {returned[1]}, not a number"
    line = found[0] if found else code.co_firstlineno
    return f"{code.co_filename}, line {line}", reason
