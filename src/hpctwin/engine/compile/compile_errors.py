"""Python source of users: its syntax tree, and why Numba cannot compile it, in one line."""

from __future__ import annotations

import ast
import re
from typing import Any, Literal

__all__ = ["syntax_tree", "why_not_compiled"]


def syntax_tree(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """Do the same as `ast.parse`, also while other threads parse.

    In Python 3.11 (3.11.7; not 3.12.1) all threads share one counter for the depth of their trees.
    If two threads parse at the same time, one of them gets a SystemError, and trying again is
    enough (https://github.com/python/cpython/issues/106905).

    Raises:
        SyntaxError: As raised by `ast.parse`.
    """
    while True:
        try:
            return ast.parse(source, mode=mode)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise


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
_NO_OPERATION = re.compile(r"found for signature:\s+>>> (.+)")
_FLOAT_INDEX = re.compile(r"getitem\(.*, float\d+\)$")
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
    if (operation := _NO_OPERATION.search(text)) is not None:
        reason = f"Numba does not know {operation[1].strip()}"
        if _FLOAT_INDEX.search(reason):
            reason = "an index is not a whole number: write int(…) around it"
    if returned is not None:
        reason = f"it returns {returned[1]}, not a number"
    line = found[0] if found else code.co_firstlineno
    return f"{code.co_filename}, line {line}", reason
