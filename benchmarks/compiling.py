"""What compiling costs: processor time of the first command on a machine, and what further policies add.

`python benchmarks/compiling.py` prints both for logs in HPCTWIN_TRACES. A policy's own share is its first
command less its second, each with a copy of what the first command of all left behind.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST = "fcfs+easy"
FURTHER = [
    "fcfs+conservative", "fcfs+pack", "fcfs+pushdown", "fcfs+slurm", "fcfs+pbs", "fcfs+first-fit",
    "wfp+easy", "multifactor+easy", "fcfs+easy~psus:20m", "fcfs+easy~psas-ipm:20m",
]  # fmt: skip
POWERED = """\
nodes:
- name: n
  count: 128
  modes: {base: {power_w: 190, idle_w: 95}}
  sleep:
  - {name: "off", power_w: 9, switch_off: {time: 10m, power_w: 9}, switch_on: {time: 20m, power_w: 190}}
"""


def processor_s(policy: str, cache: Path, powered: Path) -> float:
    """Simulate a log under a policy, from the command line; the processor time it takes, seconds."""
    logs = Path(os.environ["HPCTWIN_TRACES"]) / "swf"
    log = [str(logs / "theta_2022.swf.gz"), "--nodes", "4360"]
    if "~" in policy:
        log = [str(logs / "NASA-iPSC-1993-3.1-cln.swf.gz"), "--cluster", str(powered)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "hpctwin", "simulate", *log, "--policy", policy, "--json"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    if "HPCTWIN_TRACES" not in os.environ:
        print("left out: HPCTWIN_TRACES is not set")
        return
    with tempfile.TemporaryDirectory() as folder:
        powered, first, copy = (Path(folder) / name for name in ("powered.yaml", "first", "copy"))
        powered.write_text(POWERED)
        print(f"{FIRST}, first of all: {processor_s(FIRST, first, powered):.2f} s")
        print(f"{FIRST}, again: {min(processor_s(FIRST, first, powered) for _ in range(5)):.2f} s")
        for policy in FURTHER:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(first, copy)
            whole = processor_s(policy, copy, powered)
            again = min(processor_s(policy, copy, powered) for _ in range(3))
            print(
                f"{policy}, after that: {whole - again:.2f} s more ({again:.2f} s again)",
                flush=True,
            )


if __name__ == "__main__":
    main()
