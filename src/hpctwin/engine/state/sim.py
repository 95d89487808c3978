"""A simulation's arrays in memory, and what kernels need to find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.array_allocation import (
    COUNTED,
    DERIVED_END,
    NUMBER,
    Piece,
    Shapes,
    address_of,
    address_of_own,
    copied,
    in_bytes,
    piece_of,
    scratch_piece,
)
from hpctwin.engine.state.layout import ALL_RESERVE, KNOWN, LAYOUT, NUMBERS, STATE

__all__ = ["Decided", "Sim", "records", "single"]

IntArray = npt.NDArray[np.int64]
_Widths = tuple[int, tuple[int, ...], int, int]

_ROWS = 1 << 12  # written at once, so that a table is gone through in memory once


class _Record:
    """A single record of an array: its fields are read and written in the array.

    As of `numpy.recarray`, in a quarter of the time.
    """

    __slots__ = ("_row",)
    _row: Any

    def __init__(self, array: npt.NDArray[Any]) -> None:
        object.__setattr__(self, "_row", array[0])

    def __getattr__(self, field: str) -> Any:
        try:
            return self._row[field]
        except ValueError:
            raise AttributeError(f"there is no field {field!r}") from None

    def __setattr__(self, field: str, value: Any) -> None:
        self._row[field] = value


class Decided(dict[str, npt.NDArray[Any]]):
    """A policy's numbers, see `layout.Numbers`, and their rows of the table by which kernels find arrays.

    Nobody may write them. ``needs`` is what of them the layout of scratch memory depends on; ``facts`` is
    whether they ask of jobs what only some orderings do.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__({name: arrays[name] for name in NUMBERS})
        self.rows = np.array([_row_of(array) for array in self.values()], np.int64)
        rules = self["rules"][0]
        self.needs = _Needs(
            ranked=bool(self["hooks"]["place"][0]),
            stands=bool(rules["others"] == ALL_RESERVE),
            powered=bool(rules["depths"]),
            by_node=int(rules["by_node"]),
        )
        self.facts = bool(rules["facts"])


class _Scratch(NamedTuple):
    """Scratch memory, and of that what holds something from pass to pass."""

    piece: Piece
    memory: npt.NDArray[np.uint8]
    derived: npt.NDArray[np.uint8]


class _Needs(NamedTuple):
    """Whether nodes are ranked, a plan is kept, nodes are switched; how many jobs reserve sets of nodes."""

    ranked: bool
    stands: bool
    powered: bool
    by_node: int


_FIRST_KNOWN = NUMBER[KNOWN[0]]
_KNOWN, _NUMBERED = (slice(NUMBER[names[0]], NUMBER[names[-1]] + 1) for names in (KNOWN, NUMBERS))


class Sim:
    """All arrays of one simulation: what is known, which forks share; its state; the policy.

    Arrays are read by name, ``sim["state"]["start"]``; only the engine writes them.

    Args:
        known: the jobs and the machine, see `layout.Known`; nobody may write them any more.
        shapes: of the state's arrays; all zeros at first.
        like: another, which was given many of the same arrays.
    """

    def __init__(
        self,
        known: Mapping[str, npt.NDArray[Any]],
        shapes: Shapes,
        like: Sim | None = None,
    ) -> None:
        self._given: _Given = _Given(known, None if like is None else like._given)
        self._known = self._given.views
        self._owned: frozenset[str] = frozenset()
        self._piece = piece_of(tuple(shapes.values()))
        self._memory = np.zeros(self._piece.size, np.uint8)
        self._policy = _undecided()
        self._scratch: _Scratch | None = None
        self._known_widths = None if like is None else like._widths_of(self._known)
        self._table: IntArray = np.zeros((len(LAYOUT), 3), np.int64)
        self._found_at = address_of_own(self._table)
        self._views: dict[str, Any] = {}
        self._describe_all()

    def __getitem__(self, name: str) -> Any:
        """An array, by its name in `layout`; a single record as an array of one."""
        found = self._views.get(name)
        if found is not None:
            return found
        if name in self._piece.offsets:
            found = self._views[name] = self._piece.seen(self._memory, name)
            return found
        return self._known[name] if name in self._known else self._policy[name]

    @property
    def clock(self) -> Any:
        """The single numbers, as a record that can be read and written."""
        found = self._views.get("clock record")
        if found is None:
            found = self._views["clock record"] = _Record(self["clock"])
        return found

    @property
    def running(self) -> Any:
        """The running jobs, records of `records.Run` by planned end."""
        clock = self["clock"]
        run = self["run"][clock["run_first"][0] : clock["run_end"][0]]
        return run[run["job"] >= 0]

    @property
    def jobs(self) -> int:
        """How many jobs there are, whether submitted or not."""
        return len(self._known["job"])

    @property
    def pools(self) -> int:
        """How many pools of nodes."""
        return len(self._known["pool"])

    @property
    def resources(self) -> int:
        """How many resources of the whole machine."""
        asked: int = self._known["asks"].shape[1]
        return asked

    @property
    def limited(self) -> bool:
        """Whether the running jobs of users are counted."""
        return self._piece.shapes["user_running"][1] > 0

    @property
    def partitions(self) -> int:
        """How many partitions, each of which may limit the running jobs of users."""
        return len(self._known["user_limit"])

    @property
    def address(self) -> int:
        """Where kernels find the arrays, until one is replaced."""
        if self._scratch is None:
            self.make_room()
        return self._found_at

    @property
    def bare_address(self) -> int:
        """As `address`, for kernels that need no scratch memory."""
        return self._found_at

    def fork(self) -> Self:
        """A copy that shares nothing with this one that anyone may write."""
        self._widths()  # forks share them
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._memory = self._memory.copy()
        twin._views = {}
        twin._scratch = None
        twin._table = self._table.copy()
        twin._found_at = address_of_own(twin._table)
        twin._piece.moved(self._memory, twin._memory, twin._table)
        twin._own_again()
        return twin

    def become(self, other: Sim) -> None:
        """Stand where another simulation stands, which nothing changes; its address stays as it is."""
        room_before = self._room_needed()
        if other._piece is self._piece:
            self._memory[:] = other._memory
        else:
            self._piece, self._memory = other._piece, other._memory.copy()
            self._views = {}
            self._piece.describe(self._memory, self._table)
        self._given, self._known, self._owned = other._given, other._known, other._owned
        self._known_widths = other._widths()
        self._policy = other._policy
        for rows in (_KNOWN, _NUMBERED):
            self._table[rows] = other._table[rows]
        self._own_again()
        if self._room_needed() != room_before:
            self._scratch = None
        self._forget_derived()

    def begin_with(self, start: Sim, jobs: npt.NDArray[Any], facts: npt.NDArray[Any]) -> None:
        """Stand where nothing has happened yet, with other jobs; the address stays as it is.

        Args:
            start: a simulation that stands there, of as many jobs, in which nothing but these tables
                depends on which.
            jobs: their records, by submit time; they are copied. The first is submitted at time zero.
            facts: of them; nobody may write these.
        """
        if "job" not in self._owned or self._piece is not start._piece:
            self.become(start)
            self.own("job")
        else:
            self._memory[:] = start._memory
            self._forget_derived()
        job = self._known["job"]
        in_bytes(job)[...] = in_bytes(jobs)
        job["submit"] -= jobs["submit"][0]
        self._put("fact", facts)

    def own(self, *names: str) -> None:
        """Make what is known of some things this simulation's own, so that it may be written."""
        self._known = dict(self._known)
        for name in names:
            self._put(name, copied(self._known[name]))
        self._owned |= set(names)

    def _own_again(self) -> None:
        """Copy what is another's own, which this one was given."""
        if self._owned:
            self.own(*self._owned)

    def know(self, **arrays: npt.NDArray[Any]) -> None:
        """Replace some of what is known; forks made before keep what they have."""
        self._known = dict(self._known)
        for name, array in arrays.items():
            self._put(name, _as_laid_out(name, array))
            self._known[name].flags.writeable = name in self._owned
        self._forget_derived()

    def forget(self, name: str) -> None:
        """Drop something known, when nothing will be computed any more; forks keep what they have."""
        self._known = dict(self._known)
        self._put(name, np.zeros(0, LAYOUT[name][0]))
        self._given = _Given(self._known, None)
        self._forget_derived()

    def reshape(self, **arrays: npt.NDArray[Any]) -> None:
        """Replace arrays of the state by others, maybe of other lengths."""
        before = self._piece, self._memory
        shapes = {**before[0].shapes, **{name: array.shape for name, array in arrays.items()}}
        if shapes == before[0].shapes:
            for name, array in arrays.items():
                self[name][...] = array
            return
        self._piece = piece_of(tuple(shapes.values()))
        self._memory = np.zeros(self._piece.size, np.uint8)
        self._views = {}
        for name in shapes:
            old = arrays.get(name)
            kept = before[0].seen(before[1], name) if old is None else _as_laid_out(name, old)
            in_bytes(self[name])[...] = in_bytes(kept)
        self._piece.describe(self._memory, self._table)

    def decide(self, policy: Decided) -> None:
        """Replace the numbers of the policy."""
        before = self._policy
        self._policy = policy
        if self._scratch is not None and before.needs != policy.needs:
            self._scratch = None
        self._forget_derived()
        self._table[_NUMBERED] = policy.rows

    def make_room(self, rows: int = 0) -> None:
        """Scratch memory with room for a plan of twice as many rows as are needed at present.

        Args:
            rows: or so many, if these are more.
        """
        clock, needs = self["clock"], self._policy.needs
        queued = int(clock["queued"][0])
        nodes = self.size("node")
        rows = max(
            rows,
            8 * (int(clock["running"][0]) + queued)
            + 2 * len(self._known["window"])
            + (2 * nodes if needs.powered else 0)
            + 256,
        )
        # How many spans a plan of particular nodes may come to have, twice as many waiting as at present, and
        # all who run sent back.
        promised = min(2 * queued + int(clock["running"][0]) + 64, needs.by_node)
        piece = scratch_piece(
            rows,
            self.jobs,
            self._piece.shapes["user_running"][1],
            *self._widths(),
            ranked=needs.ranked,
            stands=needs.stands,
            planned=nodes if needs.by_node else 0,
            spans=2 * promised + 2 if needs.by_node else 0,
        )
        memory = np.empty(piece.size, np.uint8)
        self._scratch = _Scratch(piece, memory, memory[: piece.offsets[DERIVED_END]])
        piece.describe(memory, self._table)
        self._forget_derived()

    def size(self, name: str) -> int:
        """How many rows an array of the state has."""
        return self._piece.shapes[name][0]

    def _room_needed(self) -> tuple[Any, ...]:
        """What the layout of scratch memory depends on, besides the rows of a plan."""
        users = self._piece.shapes["user_running"][1]
        return self.jobs, users, self._widths(), self._policy.needs

    def _widths(self) -> _Widths:
        """What the layout of scratch memory depends on of what is known; see `scratch_piece`."""
        if self._known_widths is None:
            known = self._known
            whole, parts = known["whole"], known["shape"]["parts"]
            self._known_widths = (
                int(whole[:, 0].max(initial=0)) // 1000,
                tuple([len(known[name]) for name in COUNTED]),
                whole.shape[1],
                int(parts.max(initial=0)),
            )
        return self._known_widths

    def _widths_of(self, known: Mapping[str, npt.NDArray[Any]]) -> _Widths | None:
        """As `_widths`, of what is known to another; None where they may be others."""
        own = self._known
        return self._known_widths if all(known[n] is own[n] for n in COUNTED) else None

    def _forget_derived(self) -> None:
        """What scratch memory holds from pass to pass is of things as they were."""
        if self._scratch is not None:
            self._scratch.derived.fill(0)

    @property
    def plan_rows(self) -> int:
        """How many rows of a plan there is room for."""
        return 0 if self._scratch is None else self._scratch.piece.shapes["plan_time"][0]

    def known(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays of the jobs and the machine; nobody may write them."""
        return {name: self._known[name] for name in KNOWN}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays that change, to be written to a file."""
        return {name: self[name] for name in STATE}

    def put_state(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from arrays that `state` gave.

        Raises:
            ValueError: their types or shapes are not those of the engine.
        """
        for name in STATE:
            if arrays[name].dtype != LAYOUT[name][0]:
                raise ValueError(f"array {name!r} is of another form")
        self.reshape(**{name: arrays[name] for name in STATE})
        self._forget_derived()

    def _put(self, name: str, array: npt.NDArray[Any]) -> None:
        self._known[name] = array
        if name in COUNTED:
            self._known_widths = None
        self._describe(name, array)

    def _describe(self, name: str, array: npt.NDArray[Any]) -> None:
        self._table[NUMBER[name]] = _row_of(array)

    def _describe_all(self) -> None:
        self._table[_KNOWN] = self._given.rows
        self._table[_NUMBERED] = self._policy.rows
        self._piece.describe(self._memory, self._table)


class _Given:
    """What was given to be known, and how it lies in memory; what was given before is not looked at again.

    Args:
        known: the arrays.
        before: what was given to another simulation.
    """

    def __init__(self, known: Mapping[str, npt.NDArray[Any]], before: _Given | None) -> None:
        if before is None:
            self.rows: IntArray = np.zeros((len(KNOWN), 3), np.int64)
            self.arrays: dict[str, npt.NDArray[Any]] = {}
            self.views: dict[str, npt.NDArray[Any]] = {}
            changed = list(KNOWN)
        else:
            self.rows = before.rows.copy()
            self.arrays, self.views = arrays, views = before.arrays.copy(), before.views.copy()
            changed = [n for n in KNOWN if known[n] is not arrays[n] and known[n] is not views[n]]
        for name in changed:
            self.arrays[name] = array = known[name]
            self.views[name] = view = _as_laid_out(name, array)
            self.rows[NUMBER[name] - _FIRST_KNOWN] = _row_of(view)
            view.flags.writeable = False


@cache
def _undecided() -> Decided:
    """No policy yet."""
    return Decided({name: np.zeros(1, LAYOUT[name][0]) for name in NUMBERS})


def _row_of(array: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Where an array lies, and how long and how wide it is."""
    return address_of(array), len(array), array.shape[1] if array.ndim > 1 else 1


def _as_laid_out(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array in the engine's form; a copy if it must be."""
    dtype = LAYOUT[name][0]
    if array.dtype is dtype and array.flags.c_contiguous:
        return array.view()
    return np.require(array, dtype, "C").view()


def records(name: str, size: int, **columns: Any) -> npt.NDArray[Any]:
    """A table of `layout` with some of its columns; the others are 0.

    Args:
        name: of the table.
        size: how many rows.
        columns: by field.
    """
    table = np.zeros(size, LAYOUT[name][0])
    if size <= _ROWS:
        for field, column in columns.items():
            table[field] = column
        return table
    whole = {field: np.broadcast_to(column, size) for field, column in columns.items()}
    for first in range(0, size, _ROWS):
        rows = slice(first, first + _ROWS)
        for field, column in whole.items():
            table[field][rows] = column[rows]
    return table


def single(name: str, values: Iterable[tuple[str, Any]]) -> npt.NDArray[Any]:
    """A single record of `layout`, as an array of one."""
    dtype = LAYOUT[name][0]
    given = dict(values)
    row = tuple([given.pop(field, 0) for field in dtype.names or ()])
    assert not given, given
    return np.array([row], dtype)
