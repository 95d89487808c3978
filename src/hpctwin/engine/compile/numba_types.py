"""How kernels access the arrays: `sim.job[j].nodes` compiles to one load.

A kernel takes one pointer, to a table of descriptors (address, rows, columns) of all arrays in
`layout`. Rows are pointers into the arrays, so that fields are read and written in place. Numba's
own record arrays would work as well, but each is seven values that every call passes on, and that
dominates compile time.

Two facts let the compiler optimize:

- Descriptors do not change while a kernel runs.
- Each access names its record field, so a value read from one field stays valid after a write to
  another field.

Integers are int64 in kernels, however narrow they are stored.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any, get_type_hints

import numpy as np
from llvmlite import ir
from numba import float64, int64, types
from numba.core import cgutils
from numba.core.imputils import (
    lower_builtin,
    lower_getattr_generic,
    lower_setattr_generic,
)
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import intrinsic, models, register_model

from hpctwin.engine.compile.intrinsics import WORDS
from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.engine.state.layout import LAYOUT, record_type
from hpctwin.engine.state.records import Real

__all__ = [
    "KINDS",
    "SIM",
    "call",
    "call_with_job",
    "copy_row",
    "copy_table",
    "go_on",
    "leading_zeros",
    "move_rows",
    "numbers_at",
    "ranked_by",
    "record_at",
    "scored_by",
    "scored_with",
    "sim_at",
    "update_state",
    "view",
]

_PLACE = {name: number for number, name in enumerate(LAYOUT)}
_WORD, _BYTE = ir.IntType(64), ir.IntType(8)


class SimType(types.Type):
    """The type of all arrays: a pointer to the table of descriptors."""

    def __init__(self) -> None:
        super().__init__("Sim")


class RowType(types.Type):
    """The type of a row: a pointer to its first byte."""

    def __init__(self, record: type) -> None:
        self.dtype = record_type(record)
        self.record = record
        super().__init__(f"Row({record.__module__}.{record.__qualname__}, {self.dtype.descr})")


class TableType(types.Type):
    """The type of an array: a pointer to its descriptor."""

    def __init__(self, dtype: np.dtype[Any], record: type | None, dimensions: int) -> None:
        self.dtype = dtype
        self.row = RowType(record) if record else None
        self.dimensions = dimensions
        super().__init__(f"Table({self.row or dtype}, {dimensions})")


for _kind in (SimType, RowType, TableType):
    register_model(_kind)(models.OpaqueModel)

SIM = SimType()


@cache
def _state(names: str) -> RowType:
    """Return the type of a row of an ordering's state, given the names of its numbers."""
    return RowType(type("State", (), {"__annotations__": dict.fromkeys(names.split(), Real)}))


def _view(view: type) -> Any:
    """Return the type of a job or node as scores see it."""
    kinds = [int64 if kind is int else float64 for kind in get_type_hints(view).values()]
    return types.BaseTuple.from_types(kinds, view)


KINDS: dict[str, Any] = {
    **vars(types),
    "bool": types.boolean,
    "Sim": SIM,
    "Job": _view(JobView),
    "Node": _view(NodeView),
    "State": _state,
}
"""Types by their names in signatures."""


def _number(dtype: np.dtype[Any]) -> Any:
    """Return the type that a field has in kernels."""
    return float64 if dtype.kind == "f" else int64


def _stored(dtype: np.dtype[Any]) -> ir.Type:
    """Return the type that a field has in memory."""
    if dtype.kind == "f":
        return ir.FloatType() if dtype.itemsize == 4 else ir.DoubleType()
    return ir.IntType(8 * dtype.itemsize)


def _tell(builder: Any, access: Any, what: str | None) -> None:
    """Annotate an access with its field, for LLVM's type-based alias analysis.

    Two different fields never overlap in memory, and no field overlaps an array of numbers. Rows
    that `view` makes from numbers do overlap them, so their accesses have no annotation.

    Args:
        builder: LLVM builder.
        access: Load or store instruction.
        what: Name of the record and field, or "number"; None for no annotation.
    """
    if what is None:
        return
    add = builder.module.add_metadata
    kind = add([what, add(["hpctwin"]), _WORD(0)])
    access.set_metadata("tbaa", add([kind, kind, _WORD(0)]))


def _load(builder: Any, pointer: Any, dtype: np.dtype[Any], what: str | None) -> Any:
    stored = _stored(dtype)
    value = builder.load(builder.bitcast(pointer, stored.as_pointer()))
    _tell(builder, value, what)
    if dtype.itemsize == 8:
        return value
    return (
        builder.fpext(value, ir.DoubleType()) if dtype.kind == "f" else builder.sext(value, _WORD)
    )


def _store(
    context: Any,
    builder: Any,
    pointer: Any,
    dtype: np.dtype[Any],
    value: Any,
    of: Any,
    what: str | None,
) -> None:
    stored = _stored(dtype)
    value = context.cast(builder, value, of, _number(dtype))
    if dtype.itemsize < 8:
        narrow = builder.fptrunc if dtype.kind == "f" else builder.trunc
        value = narrow(value, stored)
    store = builder.store(value, builder.bitcast(pointer, stored.as_pointer()))
    _tell(builder, store, what)


def _described(builder: Any, table: Any, word: int) -> Any:
    """Load a word of a descriptor; it does not change while a kernel runs."""
    place = builder.gep(builder.bitcast(table, _WORD.as_pointer()), [_WORD(word)])
    value = builder.load(place)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _data(builder: Any, table: Any) -> Any:
    return builder.inttoptr(_described(builder, table, 0), _BYTE.as_pointer())


def _intrinsic(function: Any) -> Any:
    """Wrap Numba's `intrinsic`, so that type checkers see the undecorated function."""
    return intrinsic(function)


@cache
def _type_of(attr: str) -> Any:
    """Return the type of an array or record; None if there is none with this name."""
    if attr not in LAYOUT:
        return None
    dtype, record, dimensions = LAYOUT[attr]
    return TableType(dtype, record, dimensions) if dimensions else RowType(record)


@infer_getattr
class _SimAttributes(AttributeTemplate):
    key = SimType

    def generic_resolve(self, typ: SimType, attr: str) -> Any:  # type: ignore[override]
        return _type_of(attr)


@lower_getattr_generic(SimType)
def _sim_attribute(context: Any, builder: Any, typ: SimType, value: Any, attr: str) -> Any:
    words = builder.bitcast(value, _WORD.as_pointer())
    table = builder.gep(words, [_WORD(WORDS * _PLACE[attr])])
    table = builder.bitcast(table, _BYTE.as_pointer())
    return table if LAYOUT[attr][2] else _data(builder, table)


@infer_getattr
class _RowAttributes(AttributeTemplate):
    key = RowType

    def generic_resolve(self, typ: RowType, attr: str) -> Any:  # type: ignore[override]
        fields: Any = typ.dtype.fields
        return _number(fields[attr][0]) if attr in fields else None


_RECORDS = frozenset(record for _, record, _ in LAYOUT.values())


def _field(
    builder: Any, typ: RowType, row: Any, attr: str
) -> tuple[Any, np.dtype[Any], str | None]:
    dtype, offset = typ.dtype.fields[attr][:2]  # type: ignore[index]
    what = f"{typ.record.__name__}.{attr}" if typ.record in _RECORDS else None
    return builder.gep(row, [_WORD(offset)], inbounds=True), dtype, what


@lower_getattr_generic(RowType)
def _row_attribute(context: Any, builder: Any, typ: RowType, value: Any, attr: str) -> Any:
    return _load(builder, *_field(builder, typ, value, attr))


@lower_setattr_generic(RowType)
def _row_set_attribute(context: Any, builder: Any, sig: Any, args: Any, attr: str) -> None:
    pointer, dtype, what = _field(builder, sig.args[0], args[0], attr)
    _store(context, builder, pointer, dtype, args[1], sig.args[1], what)


@infer_getattr
class _TableAttributes(AttributeTemplate):
    key = TableType

    def generic_resolve(self, typ: TableType, attr: str) -> Any:  # type: ignore[override]
        return int64 if attr == "width" and typ.dimensions == 2 else None


@lower_getattr_generic(TableType)
def _table_width(context: Any, builder: Any, typ: TableType, value: Any, attr: str) -> Any:
    return _described(builder, value, 2)


@infer_global(len)
class _Length(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(int64, args[0]) if isinstance(args[0], TableType) else None


@lower_builtin(len, TableType)
def _length(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _described(builder, args[0], 1)


def _places(table: TableType, index: Any) -> Any:
    """Return the types of the numbers in an index; None if the index is not supported."""
    if table.dimensions == 1:
        return int64 if isinstance(index, types.Integer) else None
    if isinstance(index, types.BaseTuple) and len(index) == 2:
        return types.UniTuple(int64, 2)
    return None


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if not isinstance(args[0], TableType) or (index := _places(*args)) is None:
            return None
        return signature(args[0].row or _number(args[0].dtype), args[0], index)


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        table, index, _ = args
        if (
            not isinstance(table, TableType)
            or table.row
            or (index := _places(table, index)) is None
        ):
            return None
        return signature(types.void, table, index, _number(table.dtype))


def _element(context: Any, builder: Any, typ: TableType, table: Any, index: Any) -> Any:
    """Return the address of a row or number."""
    places = [index] if typ.dimensions == 1 else cgutils.unpack_tuple(builder, index, 2)
    if context.enable_boundscheck:
        for word, place in enumerate(places, 1):
            beyond = builder.icmp_unsigned(">=", place, _described(builder, table, word))
            with cgutils.if_unlikely(builder, beyond):
                context.call_conv.return_user_exc(
                    builder, IndexError, (f"index out of bounds of {typ}",)
                )
    place = places[0]
    if typ.dimensions == 2:
        place = builder.add(builder.mul(place, _described(builder, table, 2)), places[1])
    offset = builder.mul(place, _WORD(typ.dtype.itemsize))
    return builder.gep(_data(builder, table), [offset], inbounds=True)


@lower_builtin(operator.getitem, TableType, types.Any)
def _get_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    typ = sig.args[0]
    pointer = _element(context, builder, typ, *args)
    return pointer if typ.row else _load(builder, pointer, typ.dtype, "number")


@lower_builtin(operator.setitem, TableType, types.Any, types.Any)
def _set_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    typ = sig.args[0]
    pointer = _element(context, builder, typ, *args[:2])
    _store(context, builder, pointer, typ.dtype, args[2], sig.args[2], "number")
    return context.get_dummy_value()


@_intrinsic
def sim_at(typing: Any, address: Any) -> Any:
    """Return the arrays whose table of descriptors is at an address."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _BYTE.as_pointer())

    return SIM(int64), build


def _call(context: Any, builder: Any, address: Any, sig: Any, args: Any) -> Any:
    """Call a compiled function at an address; its exceptions propagate to the caller."""
    convention = context.call_conv
    kind = convention.get_function_type(sig.return_type, sig.args)
    function = builder.inttoptr(address, kind.as_pointer())
    status, value = convention.call_function(builder, function, sig.return_type, sig.args, args)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return value


@_intrinsic
def call(typing: Any, address: Any, sim: Any) -> Any:
    """Call a hook ``(sim) -> None``."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _call(context, builder, args[0], types.void(SIM), args[1:])
        return context.get_dummy_value()

    return types.void(int64, SIM), build


@_intrinsic
def call_with_job(typing: Any, address: Any, j: Any, sim: Any) -> Any:
    """Call a hook ``(j, sim) -> None``."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _call(context, builder, args[0], types.void(int64, SIM), args[1:])
        return context.get_dummy_value()

    return types.void(int64, int64, SIM), build


@_intrinsic
def go_on(typing: Any, address: Any, sim: Any, until: Any, instants: Any) -> Any:
    """Call `event_loop.advance`, which is compiled separately."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(context, builder, args[0], int64(SIM, int64, int64), args[1:])

    return int64(int64, SIM, int64, int64), build


@_intrinsic
def scored_by(typing: Any, address: Any, now: Any, view: Any) -> Any:
    """Call an ordering; return its score."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(context, builder, args[0], float64(float64, view), args[1:])

    return float64(int64, float64, view), build


def _call_with_state(result: Any) -> Any:
    """Return how to compile a call of a function of time, job, and a row of an ordering's state."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, now, view, table, row = args
        place = builder.mul(_row_of_grid(builder, table, row), _WORD(8))
        state = builder.gep(_data(builder, table), [place])
        called = result(float64, sig.args[2], types.voidptr)
        return _call(context, builder, address, called, (now, view, state))

    return build


@_intrinsic
def scored_with(typing: Any, address: Any, now: Any, view: Any, table: Any, row: Any) -> Any:
    """Call an ordering with a row of its state; return its score."""
    return float64(int64, float64, view, table, int64), _call_with_state(float64)


@_intrinsic
def update_state(typing: Any, address: Any, now: Any, view: Any, table: Any, row: Any) -> Any:
    """Call a function that changes a row of an ordering's state."""
    return types.void(int64, float64, view, table, int64), _call_with_state(types.void)


@_intrinsic
def ranked_by(typing: Any, address: Any, now: Any, job: Any, node: Any) -> Any:
    """Call a placement; return its score."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(context, builder, args[0], float64(float64, job, node), args[1:])

    return float64(int64, float64, job, node), build


@_intrinsic
def leading_zeros(typing: Any, value: Any) -> Any:
    """Return how many of the highest bits of a positive integer are 0."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(1))

    return int64(int64), build


@_intrinsic
def copy_row(typing: Any, target: Any, source: Any, row: Any) -> Any:
    """Copy one row of a table to the same row of another table of the same form."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = args[2] if source.dimensions == 1 else _row_of_grid(builder, args[1], args[2])
        size = _WORD(source.dtype.itemsize)
        offset = builder.mul(place, size)
        if source.dimensions == 2:
            size = builder.mul(size, _described(builder, args[1], 2))
        to, of = (builder.gep(_data(builder, table), [offset]) for table in args[:2])
        cgutils.raw_memcpy(builder, to, of, size, 1)
        return context.get_dummy_value()

    return types.void(target, source, int64), build


@_intrinsic
def move_rows(typing: Any, table: Any, to: Any, first: Any, last: Any) -> Any:
    """Move rows ``first`` to ``last`` (not included) to ``to``, within a table.

    A two-dimensional array counts as one sequence of numbers.
    """

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = _WORD(table.dtype.itemsize)
        target, source = (
            builder.gep(_data(builder, args[0]), [builder.mul(row, size)]) for row in args[1:3]
        )
        cgutils.raw_memmove(builder, target, source, builder.sub(args[3], args[2]), size)
        return context.get_dummy_value()

    return types.void(table, int64, int64, int64), build


def _row_of_grid(builder: Any, table: Any, row: Any) -> Any:
    return builder.mul(row, _described(builder, table, 2))


@_intrinsic
def copy_table(typing: Any, target: Any, source: Any) -> Any:
    """Copy a whole table, or single record, into another of the same form."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = _WORD(source.dtype.itemsize)
        to, of = args
        if isinstance(source, TableType):
            for word in range(1, source.dimensions + 1):
                size = builder.mul(size, _described(builder, args[1], word))
            to, of = (_data(builder, table) for table in args)
        cgutils.raw_memcpy(builder, to, of, size, 1)
        return context.get_dummy_value()

    return types.void(target, source), build


def view(record: type) -> Any:
    """Make a function by which kernels see rows of 8-byte numbers as records.

    Args:
        record: Record class; its fields are ``Int`` or ``Real``, one for each column.
    """
    rows = TableType(record_type(record), record, 1)

    @_intrinsic
    def viewed(typing: Any, table: Any) -> Any:
        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return args[0]

        return rows(table), build

    return viewed


def record_at(record: type) -> Any:
    """Make a function by which kernels see the record at an address.

    Args:
        record: Record class.
    """
    row = RowType(record)

    @_intrinsic
    def found(typing: Any, address: Any) -> Any:
        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], _BYTE.as_pointer())

        return row(int64), build

    return found


def numbers_at(dtype: np.dtype[Any]) -> Any:
    """Make a function by which kernels see an array, given its descriptor's address.

    Args:
        dtype: Element type of the array, which has one dimension.
    """
    table = TableType(dtype, None, 1)

    @_intrinsic
    def found(typing: Any, address: Any) -> Any:
        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], _BYTE.as_pointer())

        return table(int64), build

    return found
