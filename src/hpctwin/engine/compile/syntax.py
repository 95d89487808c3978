"""Reading Python source as a syntax tree, in a process with several threads."""

from __future__ import annotations

import ast
from typing import Literal

__all__ = ["syntax_tree"]


def syntax_tree(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """`ast.parse`, also while other threads do the same.

    In Python 3.11 (3.11.7; not 3.12.1) all threads count the depth of their trees in one place: where
    one comes in between, the other's is refused with a SystemError, and another try is all that it takes
    (https://github.com/python/cpython/issues/106905).

    Raises:
        SyntaxError: as of `ast.parse`.
    """
    while True:
        try:
            return ast.parse(source, mode=mode)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
