"""Contention on a fat tree of 1,000 nodes, beside SimGrid in the same run.

python benchmarks/simgrid_speed.py [--repeats 5] [--python /usr/bin/python3]

Needs python3-simgrid (Debian) for the interpreter given. Both simulate the same jobs from their start to the
last end, routes included, platform and cases read before. The least processor time of several repeats counts,
taken in turn. All ends must agree to 1e-9.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from simgrid import platform_of, run

HOSTS = 1000
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
 <zone id="W" routing="Full">
  <cluster id="C" prefix="n" suffix="" radical="0-999" speed="1Gf" bw="10GBps" lat="1us" topology="FAT_TREE"
   topo_parameters="3;10,10,10;1,5,5;1,1,1"/>
 </zone>
</platform>
"""
GOALS = {"1,000 flows": 8.0, "125 all-to-all jobs": 10.0}
PEER = Path(__file__).with_name("simgrid_peer.py")


def cases() -> list[dict[str, Any]]:
    """Return the cases; names are those of the goals."""
    draw = random.Random(7)
    flows = [
        {"id": f"j{i}", "start": round(draw.uniform(0, 1), 3), "hosts": [f"n{a}", f"n{b}"], "kind": "M",
         "cpu": [], "com": [[0, 1, draw.uniform(1e9, 1e10)]]}
        for i in range(1000)
        for a, b in [draw.sample(range(HOSTS), 2)]
    ]  # fmt: skip
    order = draw.sample(range(HOSTS), HOSTS)
    exchanges = [
        {"id": f"j{i}", "start": round(draw.uniform(0, 0.5), 3), "kind": "H", "cpu": 0,
         "hosts": [f"n{order[k]}" for k in range(8 * i, 8 * i + 8)], "com": draw.uniform(5e8, 1.5e9)}
        for i in range(125)
    ]  # fmt: skip
    return [
        {"case": name, "platform": "tree", "jobs": jobs}
        for name, jobs in zip(GOALS, (flows, exchanges), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--python", default="/usr/bin/python3")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.json"
        (Path(folder) / "tree.xml").write_text(PLATFORM)
        path.write_text(json.dumps([{**one, "case": str(n)} for n, one in enumerate(cases())]))
        platform = platform_of(Path(folder) / "tree.xml")
        command = [given.python, PEER, path, "--platforms", folder]

        def peer(*more: str) -> str:
            return subprocess.run(
                [*command, *more], check=True, capture_output=True, text=True
            ).stdout

        expected = {(row["case"], row["job"]): row for row in csv.DictReader(peer().splitlines())}
        for number, case in enumerate(cases()):
            theirs, ours = [], []
            for _ in range(given.repeats):
                theirs.append(float(peer("--one", str(number), "--time")))
                begin = time.process_time()
                found = run(case, platform, "simgrid")
                ours.append(time.process_time() - begin)
            worst = max(
                abs(end / float(expected[str(number), job]["finish"]) - 1)
                for job, end in found.items()
            )
            assert worst < 1e-9, worst
            factor, goal = min(theirs) / min(ours), GOALS[case["case"]]
            print(
                f"{case['case']:20} SimGrid {min(theirs):.3f} s  hpctwin {min(ours):.3f} s  "
                f"{factor:.1f} times as fast, goal {goal:g} {'met' if factor >= goal else 'MISSED'}; "
                f"ends differ by {worst:.0e}"
            )


if __name__ == "__main__":
    main()
