"""Atomic operations on words in memory that several threads read and write."""

from __future__ import annotations

from functools import partial
from typing import Any

from hpctwin.engine.compile.intrinsics import Intrinsic

__all__ = ["add", "breathe", "put", "read", "swap_if"]

_declared: Any = partial(Intrinsic, module="atomics")

read = _declared("read")
"""``(address) -> word``: return the word at an address."""

put = _declared("put")
"""``(address, value) -> None``: write the word at an address."""

add = _declared("add")
"""``(address, value) -> word``: add to the word at an address; return its old value."""

swap_if = _declared("swap_if")
"""``(address, expected, value) -> word``: write a word if it has an expected value.

It returns the old value; the write has happened if that equals ``expected``.
"""

breathe = _declared("breathe")
"""``() -> None``: signal the processor that this thread waits for a word to change."""
