"""The definitions of the functions in `containers.atomic`."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import int64, types
from numba.extending import intrinsic

__all__ = ["add", "breathe", "put", "read", "swap_if"]

_WORD = ir.IntType(64)
_ORDER = "seq_cst"
_ON_X86 = platform.machine().lower() in ("x86_64", "amd64")


def _intrinsic(function: Any) -> Any:
    """Wrap Numba's `intrinsic`, so that type checkers see the undecorated function."""
    return intrinsic(function)


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _WORD.as_pointer())


@_intrinsic
def read(typing: Any, address: Any) -> Any:
    """Return the word at an address."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args[0]), _ORDER, 8)

    return int64(int64), build


@_intrinsic
def put(typing: Any, address: Any, value: Any) -> Any:
    """Write the word at an address."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word(builder, args[0]), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(int64, int64), build


@_intrinsic
def add(typing: Any, address: Any, value: Any) -> Any:
    """Add to the word at an address; return its old value."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, args[0]), args[1], _ORDER)

    return int64(int64, int64), build


@_intrinsic
def swap_if(typing: Any, address: Any, expected: Any, value: Any) -> Any:
    """Write the word at an address if it has an expected value; return its old value.

    The write has happened if the old value equals ``expected``.
    """

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        found = builder.cmpxchg(_word(builder, args[0]), args[1], args[2], _ORDER, _ORDER)
        return builder.extract_value(found, 0)

    return int64(int64, int64, int64), build


@_intrinsic
def breathe(typing: Any) -> Any:
    """Signal the processor that this thread waits for a word to change."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _ON_X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), build
