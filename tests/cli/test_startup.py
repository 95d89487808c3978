"""What a command loads: a start takes no longer than it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hpctwin import Workload, write_workload

RUN = """
import sys
from hpctwin.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end
heavy = {'matplotlib', 'redis', 'dask', 'sqlite3'}
print(sorted(heavy & set(sys.modules)))
"""


def test_simulate_loads_nothing_that_only_figures_and_the_twin_need(tmp_path: Path) -> None:
    trace = tmp_path / "trace.swf"
    jobs = Workload.build(submit_s=[0, 1], runtime_s=[5, 5], walltime_s=[9, 9], nodes=[1, 2])
    write_workload(jobs, trace)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "simulate", str(trace), "--nodes", "4"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
