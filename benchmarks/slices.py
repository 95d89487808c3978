"""Ten million slices written as a trace for Perfetto: processor time and size; and read back, each of them.

python benchmarks/slices.py [--slices N] [--read]

What is read back is read by the messages that Perfetto's own package generates of its format.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from hpctwin.report.exports import Slices, write_perfetto

NODES = 10_000
EVERY_MS, LASTS_MS, NS_PER_MS = 1000, 900, 1_000_000
CHUNK = 8_000_000


def whole_packets(file: BinaryIO) -> Iterator[bytes]:
    """The file in chunks that end with a packet; packets here are shorter than 128 bytes."""
    rest = b""
    while more := file.read(CHUNK):
        data, at = rest + more, 0
        while at + 1 < len(data) and at + 2 + data[at + 1] <= len(data):
            at += 2 + data[at + 1]
        yield data[:at]
        rest = data[at:]
    assert not rest


def read_back(file: BinaryIO, slices: Slices) -> None:
    """Find each slice once, on its track, from its begin to its end."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    each = len(slices.job) // NODES
    begun, ended = np.zeros(len(slices.job), np.uint8), np.zeros(len(slices.job), np.uint8)
    for chunk in whole_packets(file):
        begins, ends = [], []
        for packet in Trace.FromString(chunk).packet:
            if packet.HasField("track_descriptor"):
                continue
            event = packet.track_event
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                begins.append((int(event.name[4:]), event.track_uuid, packet.timestamp))
            else:
                ends.append((event.track_uuid, packet.timestamp))
        if begins:
            job, track, at_ns = np.array(begins, np.int64).T
            assert (track == 1 + slices.node[job]).all()
            assert (at_ns == slices.start_ms[job] * NS_PER_MS).all()
            begun[job] += 1
        if ends:
            track, at_ns = np.array(ends, np.int64).T
            row = (track - 1) * each + ((at_ns + 1) // NS_PER_MS - LASTS_MS) // EVERY_MS
            assert (at_ns + 1 == slices.end_ms[row] * NS_PER_MS).all()
            ended[row] += 1
    assert (begun == 1).all()
    assert (ended == 1).all()


def main() -> None:
    """Print seconds and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=10_000_000)
    parser.add_argument("--read", action="store_true", help="read all of them back")
    asked = parser.parse_args()
    each = asked.slices // NODES
    job = np.arange(each * NODES)
    start_ms = np.tile(np.arange(each) * EVERY_MS, NODES)
    slices = Slices(job, np.repeat(np.arange(NODES), each), start_ms, start_ms + LASTS_MS)
    with tempfile.TemporaryFile() as file:
        began = time.process_time()
        count = write_perfetto(file, slices)
        print(f"{count:,} slices: {time.process_time() - began:.1f} s, {file.tell() / 1e6:.0f} MB")
        if asked.read:
            file.seek(0)
            began = time.process_time()
            read_back(file, slices)
            print(f"read back, each once: {time.process_time() - began:.1f} s")


if __name__ == "__main__":
    main()
