"""Parsing of Python source to a syntax tree, in a process with several threads."""

from __future__ import annotations

import ast
from typing import Literal

__all__ = ["syntax_tree"]


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
