"""Source is read rightly while other threads read theirs."""

from __future__ import annotations

import ast
import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hpctwin.engine.compile.compile_errors import syntax_tree

FORMULA = "a + b * (c - d) ** (e / f) + min(1, 2, max(a, b * c))"


class _Yields:
    """Gives way to other threads in the midst of what collects it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


def _read(times: int) -> set[str]:
    found = set()
    for _ in range(times):
        found.add(ast.dump(syntax_tree(FORMULA, "eval")))
        _Yields()
    return found


def test_threads_that_read_source_at_once_do_not_disturb_one_another() -> None:
    """`ast.parse` in its place fails here some 30 times in Python 3.11.7."""
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(_read, [4000] * 3))
    finally:
        sys.setswitchinterval(before[0])
        gc.set_threshold(*before[1])
    assert found == [{ast.dump(ast.parse(FORMULA, mode="eval"))}] * 3


def test_code_that_is_no_valid_source_is_reported_as_by_python() -> None:
    with pytest.raises(SyntaxError):
        syntax_tree("1 +", "eval")
