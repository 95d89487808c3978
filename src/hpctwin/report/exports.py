"""Exports of runs: OpenMetrics, and Perfetto (ui.perfetto.dev).

In Perfetto, tracks are nodes and slices jobs. The file is protobuf with the field numbers of its
``trace_packet.proto``, ``track_event.proto`` and ``track_descriptor.proto``. All packets of a kind
have the same length, because varints may be padded. So packets are rows of a table of bytes, and
ten million of them take seconds.

OpenMetrics is written as text with a time at each sample, because the optional prometheus-client
writes only one time.
"""

from __future__ import annotations

import heapq
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.model.columns import ms_of

__all__ = [
    "Slices",
    "slices_of",
    "write_openmetrics",
    "write_perfetto",
]


def write_openmetrics(file: BinaryIO, series: pl.DataFrame) -> int:
    """Write queue and cluster over time as OpenMetrics text, for a time-series database.

    There is a sample at each change, with its time. Names are ``hpctwin_`` and the column's name.

    Returns:
        Number of samples written.
    """
    written = 0
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
    time_s = np.round(series["time_s"].to_numpy(), 3)
    # One sample per time: the last value at that time.
    kept = np.append(time_s[1:] != time_s[:-1], True) if len(time_s) else np.zeros(0, bool)
    for name in series.columns:
        if name == "time_s" or not series[name].dtype.is_numeric():
            continue
        metric = f"hpctwin_{name}"
        text.write(f"# TYPE {metric} gauge\n")
        rows = pl.DataFrame({"time": time_s[kept], "value": series[name].fill_null(0).filter(kept)})
        lines = rows.select(pl.format(f"{metric} {{}} {{}}", "value", "time")).to_series()
        text.write("".join(f"{line}\n" for line in lines))
        written += len(rows)
    text.write("# EOF\n")
    text.detach()
    return written


IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NS_PER_MS = 1_000_000
AT_ONCE = 1_000_000
"""Number of packets that are built at a time."""

_SEQUENCE = 1
_BEGIN, _END, _COUNTER = 1, 2, 4
_TIME_BYTES, _TRACK_BYTES = 9, 5


@dataclass(frozen=True)
class Slices:
    """Jobs on nodes (S slices).

    Args:
        job: Ids of jobs, 0 or more [S].
        node: Numbers of nodes [S].
        start_ms, end_ms: Times from the beginning of the trace, in ms; the start is before the end
            [S].
    """

    job: IntArray
    node: IntArray
    start_ms: IntArray
    end_ms: IntArray


def slices_of(held: pl.DataFrame) -> Slices:
    """Return the slices of a run's ``node_map`` or ``placements``, by job and node.

    Args:
        held: Columns ``job_id``, ``start_s``, ``end_s``, and ``node``, or ``first_node`` and
            ``count``. Rows without an end or of length zero are ignored.
    """
    held = held.filter(pl.col("start_s") < pl.col("end_s"))
    columns = {name: held[name].to_numpy() for name in ("job_id", "start_s", "end_s")}
    if "node" in held.columns:
        node, rows = held["node"].to_numpy(), np.arange(len(held))
    else:
        count = held["count"].to_numpy()
        rows = np.repeat(np.arange(len(held)), count)
        first = np.cumsum(count) - count
        node = held["first_node"].to_numpy()[rows] + np.arange(len(rows)) - first[rows]
    ms = {name: ms_of(columns[name])[rows] for name in ("start_s", "end_s")}
    return Slices(columns["job_id"][rows].astype(np.int64), node, ms["start_s"], ms["end_s"])


def write_perfetto(file: BinaryIO, slices: Slices, series: pl.DataFrame | None = None) -> int:
    """Write a trace.

    Slices end a nanosecond early, so that a slice that begins when another on its track ends is not
    nested in it. Jobs that share a node have separate tracks next to each other.

    Args:
        file: File to write to.
        slices: Jobs on nodes.
        series: Columns over ``time_s``; each one becomes a counter.

    Returns:
        Number of slices written.
    """
    lane = _lanes(slices)
    nodes = int(slices.node.max(initial=-1)) + 1
    lanes = int(lane.max(initial=0)) + 1
    track = slices.node * lanes + lane
    for number in np.unique(track).tolist():
        node, below = divmod(number, lanes)
        name = f"node {node:06d}" + (f" · {below + 1}" if lanes > 1 else "")
        file.write(_descriptor(1 + number, name))
    for part in _parts(len(track)):
        file.writelines(_begins(slices, track, part))
        file.write(_events(slices.end_ms[part] * NS_PER_MS - 1, 1 + track[part], _END).tobytes())
    if series is not None:
        _counters(file, series, 1 + nodes * lanes)
    return len(track)


def _parts(count: int) -> Iterator[slice]:
    return (slice(at, min(at + AT_ONCE, count)) for at in range(0, count, AT_ONCE))


def _begins(slices: Slices, track: IntArray, part: slice) -> Iterator[bytes]:
    """Yield the packets of begins, grouped by the number of digits of the job id."""
    job, start, where = slices.job[part], slices.start_ms[part], 1 + track[part]
    digits = _digits(job)
    for width in np.unique(digits).tolist():
        chosen = np.flatnonzero(digits == width)
        name = (48 + job[chosen][:, None] // 10 ** np.arange(width - 1, -1, -1) % 10).astype(
            np.uint8
        )
        named = np.hstack([_constant(len(chosen), 0xBA, 0x01, 4 + width, *b"job "), name])
        yield _events(start[chosen] * NS_PER_MS, where[chosen], _BEGIN, named).tobytes()


def _digits(job: IntArray) -> IntArray:
    """Return the number of decimal digits of each id."""
    return 1 + np.searchsorted(10 ** np.arange(1, 19), job, side="right")


def _events(time_ns: IntArray, track: IntArray, kind: int, more: Bytes | None = None) -> Bytes:
    """Return packets of one track event each [packets, bytes]."""
    count = len(time_ns)
    inside = [_constant(count, 0x48, kind, 0x58), _varint(track, _TRACK_BYTES)]
    if more is not None:
        inside.append(more)
    event = np.hstack(inside)
    packet = np.hstack(
        [
            _constant(count, 0x40), _varint(time_ns, _TIME_BYTES), _constant(count, 0x50, _SEQUENCE),
            _constant(count, 0x5A, event.shape[1]), event,
        ]
    )  # fmt: skip
    return np.hstack([_constant(count, 0x0A, packet.shape[1]), packet])


def _constant(count: int, *values: int) -> Bytes:
    return np.broadcast_to(np.array(values, np.uint8), (count, len(values)))


def _varint(values: IntArray, width: int) -> Bytes:
    """Return numbers as varints padded to a width."""
    shifts = 7 * np.arange(width, dtype=np.uint64)
    parts = (values.astype(np.uint64)[:, None] >> shifts).astype(np.uint8)
    parts |= 0x80
    parts[:, -1] &= 0x7F
    return parts


def _counters(file: BinaryIO, series: pl.DataFrame, first: int) -> None:
    time_ns = ms_of(series["time_s"]) * NS_PER_MS
    names = [one for one in series.columns if one != "time_s" and series[one].dtype.is_numeric()]
    for number, name in enumerate(names, first):
        file.write(_descriptor(number, name, counter=True))
        values = series[name].fill_null(0).to_numpy().astype(np.float64)
        track = np.full(len(time_ns), number, np.int64)
        for part in _parts(len(time_ns)):
            # Field 44, double_counter_value, has eight bytes.
            raw = values[part].astype("<f8").view(np.uint8).reshape(-1, 8)
            value = np.hstack([_constant(len(raw), 0xE1, 0x02), raw])
            file.write(_events(time_ns[part], track[part], _COUNTER, value).tobytes())


def _descriptor(uuid: int, name: str, *, counter: bool = False) -> bytes:
    text = name.encode()
    inside = b"\x08" + _number(uuid) + b"\x12" + _number(len(text)) + text
    if counter:
        inside += b"\x42\x00"
    packet = b"\x50" + _number(_SEQUENCE) + b"\xe2\x03" + _number(len(inside)) + inside
    return b"\x0a" + _number(len(packet)) + packet


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _lanes(slices: Slices) -> IntArray:
    """Return each slice's track on its node, the lowest free one; 0 if not shared."""
    lane = np.zeros(len(slices.node), np.int64)
    order = np.lexsort((slices.end_ms, slices.start_ms, slices.node))
    node, start, end = slices.node[order], slices.start_ms[order], slices.end_ms[order]
    over = (node[1:] == node[:-1]) & (start[1:] < end[:-1])
    if not over.any():
        return lane
    for shared in np.unique(node[1:][over]).tolist():
        first, last = np.searchsorted(node, [shared, shared + 1])
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        opened = 0
        for row in range(first, last):
            while busy and busy[0][0] <= start[row]:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if free:
                taken = heapq.heappop(free)
            else:
                taken, opened = opened, opened + 1
            lane[order[row]] = taken
            heapq.heappush(busy, (int(end[row]), taken))
    return lane
