"""A simulation's arrays in memory, and the table by which kernels find them."""

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

_ROWS = 1 << 12  # rows written at once, so that a table is written in one sweep through memory


class _Record:
    """A single record of an array, whose fields are read and written in the array.

    It does the same as `numpy.recarray`, in a quarter of the time.
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
    """A policy's numbers, see `layout.Numbers`, and their rows of the table of arrays.

    The arrays must not be written. ``needs`` holds the numbers that determine the layout of scratch
    memory. ``facts`` says whether the policy uses job data that only some orderings need.
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
    """Scratch memory, and the part of it that outlives a pass."""

    piece: Piece
    memory: npt.NDArray[np.uint8]
    derived: npt.NDArray[np.uint8]


class _Needs(NamedTuple):
    """Numbers of a policy that determine the layout of scratch memory.

    Args:
        ranked: Whether nodes are scored.
        stands: Whether a plan is kept from pass to pass.
        powered: Whether nodes are switched.
        by_node: Maximum number of jobs that reserve particular nodes in a pass.
    """

    ranked: bool
    stands: bool
    powered: bool
    by_node: int


_FIRST_KNOWN = NUMBER[KNOWN[0]]
_KNOWN, _NUMBERED = (slice(NUMBER[names[0]], NUMBER[names[-1]] + 1) for names in (KNOWN, NUMBERS))


class Sim:
    """All arrays of a simulation: known data that forks share, its state, the policy.

    Arrays are read by name, ``sim["state"]["start"]``; only the engine writes them.

    Args:
        known: Data of jobs and cluster, see `layout.Known`; they must not be written any more.
        shapes: Shapes of the state's arrays, which are initially zero.
        like: Another simulation that shares many of the arrays.
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
        """Return an array by its name in `layout`; a single record as an array of one."""
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
        """The running jobs by planned end, as records of `records.Run`."""
        clock = self["clock"]
        run = self["run"][clock["run_first"][0] : clock["run_end"][0]]
        return run[run["job"] >= 0]

    @property
    def jobs(self) -> int:
        """Number of jobs, whether submitted or not."""
        return len(self._known["job"])

    @property
    def pools(self) -> int:
        """Number of pools of nodes."""
        return len(self._known["pool"])

    @property
    def resources(self) -> int:
        """Number of cluster-wide resources."""
        asked: int = self._known["asks"].shape[1]
        return asked

    @property
    def limited(self) -> bool:
        """Whether the running jobs of users are counted."""
        return self._piece.shapes["user_running"][1] > 0

    @property
    def partitions(self) -> int:
        """Number of partitions; each may limit the running jobs of users."""
        return len(self._known["user_limit"])

    @property
    def address(self) -> int:
        """Address at which kernels find the arrays; valid until an array is replaced."""
        if self._scratch is None:
            self.make_room()
        return self._found_at

    @property
    def bare_address(self) -> int:
        """The same as `address`, for kernels that need no scratch memory."""
        return self._found_at

    def fork(self) -> Self:
        """Return a copy that shares no writable data with this simulation."""
        self._widths()  # computed once: forks share them
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

    def copy_from(self, other: Sim) -> None:
        """Take over the state of another simulation, which stays unchanged.

        The address of this simulation stays the same.
        """
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
        """Reset this simulation to an initial state with other jobs; its address stays.

        Args:
            start: Simulation in the initial state with as many jobs. Only the tables of jobs and
                facts may depend on which jobs they are.
            jobs: Records of the jobs, by submit time; they are copied. The first is submitted at
                time 0.
            facts: Facts of the jobs; they must not be written any more.
        """
        if "job" not in self._owned or self._piece is not start._piece:
            self.copy_from(start)
            self.own("job")
        else:
            self._memory[:] = start._memory
            self._forget_derived()
        job = self._known["job"]
        in_bytes(job)[...] = in_bytes(jobs)
        job["submit"] -= jobs["submit"][0]
        self._put("fact", facts)

    def own(self, *names: str) -> None:
        """Copy known arrays, so that this simulation owns them and may write them."""
        self._known = dict(self._known)
        for name in names:
            self._put(name, copied(self._known[name]))
        self._owned |= set(names)

    def _own_again(self) -> None:
        """Copy arrays that another simulation owns and this one was given."""
        if self._owned:
            self.own(*self._owned)

    def know(self, **arrays: npt.NDArray[Any]) -> None:
        """Replace known arrays; forks made before keep the old ones."""
        self._known = dict(self._known)
        for name, array in arrays.items():
            self._put(name, _as_laid_out(name, array))
            self._known[name].flags.writeable = name in self._owned
        self._forget_derived()

    def forget(self, name: str) -> None:
        """Drop a known array that no computation needs any more.

        Forks keep it.
        """
        self._known = dict(self._known)
        self._put(name, np.zeros(0, LAYOUT[name][0]))
        self._given = _Given(self._known, None)
        self._forget_derived()

    def reshape(self, **arrays: npt.NDArray[Any]) -> None:
        """Replace arrays of the state, which may have other lengths."""
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
        """Allocate scratch memory for a plan of twice as many rows as needed at present.

        Args:
            rows: Minimum number of rows.
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
        # Number of spans of a plan of particular nodes: with twice as many pending jobs as now, and
        # after all running jobs have been requeued.
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
        """Return the number of rows of an array of the state."""
        return self._piece.shapes[name][0]

    def _room_needed(self) -> tuple[Any, ...]:
        """Return what determines the layout of scratch memory, besides the rows of a plan."""
        users = self._piece.shapes["user_running"][1]
        return self.jobs, users, self._widths(), self._policy.needs

    def _widths(self) -> _Widths:
        """Return the known data that determine scratch memory, see `scratch_piece`."""
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
        """Return the same as `_widths` for other known arrays; None if it may differ."""
        own = self._known
        return self._known_widths if all(known[n] is own[n] for n in COUNTED) else None

    def _forget_derived(self) -> None:
        """Reset scratch data that outlive a pass: they were derived from an older state."""
        if self._scratch is not None:
            self._scratch.derived.fill(0)

    @property
    def plan_rows(self) -> int:
        """Number of rows of a plan for which there is memory."""
        return 0 if self._scratch is None else self._scratch.piece.shapes["plan_time"][0]

    def known(self) -> dict[str, npt.NDArray[Any]]:
        """Return all known arrays of jobs and cluster; they must not be written."""
        return {name: self._known[name] for name in KNOWN}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays of the state, to be written to a file."""
        return {name: self[name] for name in STATE}

    def put_state(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from arrays that `state` returned.

        Raises:
            ValueError: Their types or shapes are not those of the engine.
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
    """Known arrays that a simulation was given, with their descriptors.

    Only arrays that differ from the earlier ones are processed.

    Args:
        known: Arrays by name.
        before: Arrays given to another simulation, or None.
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
    """Return the numbers of no policy."""
    return Decided({name: np.zeros(1, LAYOUT[name][0]) for name in NUMBERS})


def _row_of(array: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Return address, length and width of an array."""
    return address_of(array), len(array), array.shape[1] if array.ndim > 1 else 1


def _as_laid_out(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in the engine's form; a copy if necessary."""
    dtype = LAYOUT[name][0]
    if array.dtype is dtype and array.flags.c_contiguous:
        return array.view()
    return np.require(array, dtype, "C").view()


def records(name: str, size: int, **columns: Any) -> npt.NDArray[Any]:
    """Make a table of `layout` with some of its columns; the other columns are 0.

    Args:
        name: Name of the table.
        size: Number of rows.
        columns: Columns by field.
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
    """Make a single record of `layout`, as an array of one."""
    dtype = LAYOUT[name][0]
    given = dict(values)
    row = tuple([given.pop(field, 0) for field in dtype.names or ()])
    assert not given, given
    return np.array([row], dtype)
