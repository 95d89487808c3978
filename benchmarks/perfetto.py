"""Ten million slices written as a trace for Perfetto: processor time and size.

python benchmarks/perfetto.py [--slices N]
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np

from hpctwin.report.perfetto import Slices, write_perfetto

NODES = 10_000


def main() -> None:
    """Print seconds and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=10_000_000)
    each = parser.parse_args().slices // NODES
    job = np.arange(each * NODES)
    start_ms = np.tile(np.arange(each) * 1000, NODES)
    slices = Slices(job, np.repeat(np.arange(NODES), each), start_ms, start_ms + 900)
    with tempfile.TemporaryFile() as file:
        began = time.process_time()
        count = write_perfetto(file, slices)
        print(f"{count:,} slices: {time.process_time() - began:.1f} s, {file.tell() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
