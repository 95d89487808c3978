"""Starts on a real OpenPBS beside ours: the same submissions twice there, and once simulated.

    python benchmarks/pbs.py run FOLDER NAME USER …
    python benchmarks/pbs.py tell FOLDER NAME NAME

- run: as root on the host of an idle PBS of one's own, whose vnodes are shared (16 of 8 cores and 16 GB): 200
  jobs of some seconds are submitted as the users, in turns, within some five minutes; when all have ended,
  their accounting and PBS's settings are written to FOLDER/NAME, as ``hpctwin import pbs --from`` reads them.
- tell: how far the starts of the second run lie from those of the first, and those of
  ``hpctwin import pbs`` and ``hpctwin simulate`` from the first; waits from the submission, seconds.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

JOBS = 200
APART_S = 1.3
PRIVATE = Path("/var/spool/pbs")


def submissions(seed: int = 1) -> list[tuple[float, int, list[str]]]:
    """When after the begin, how long it runs, and what it asks for, of each job."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(APART_S, JOBS))
    found = []
    for time_s in at:
        chunks, cores = int(rng.choice([1, 1, 1, 2, 3, 4])), int(rng.choice([1, 2, 4, 4, 8]))
        memory = int(rng.integers(1, 2 * cores + 1))
        place = str(rng.choice(["free", "free", "pack", "vscatter", "vscatter:excl"]))
        if place == "pack" and chunks * cores > 8:
            place = "free"
        run_s = int(np.clip(rng.lognormal(2.8, 0.7), 2, 90))
        walltime = int(run_s * rng.uniform(1.1, 3)) + 2
        select = f"select={chunks}:ncpus={cores}:mem={memory}gb"
        asks = ["-l", select, "-l", f"place={place}", "-l", f"walltime={walltime}"]
        found.append((float(time_s), run_s, asks))
    return found


def command(*words: str, **options: Any) -> str:
    """What a command says."""
    return subprocess.run(
        words, check=True, capture_output=True, text=True, **options
    ).stdout.strip()


def run(folder: Path, name: str, users: list[str]) -> None:
    """Submit, wait, and keep what PBS wrote."""
    into = folder / name
    logs = into / "accounting"
    logs.mkdir(parents=True)
    began, ids = time.time(), set()
    for row, (at, run_s, asks) in enumerate(submissions()):
        time.sleep(max(0.0, began + at - time.time()))
        script = f"#!/bin/sh\nexec sleep {run_s}\n"
        quiet = ["-o", "/dev/null", "-e", "/dev/null", "-N", f"job{row}"]
        submit = ["runuser", "-u", users[row % len(users)], "--", "qsub", *quiet, *asks]
        ids.add(command(*submit, input=script, cwd="/"))
    while command("qstat"):
        time.sleep(1)
    for log in sorted((PRIVATE / "server_priv/accounting").iterdir()):
        lines = [line for line in log.read_text().splitlines() if line.split(";")[2] in ids]
        if lines:
            (logs / log.name).write_text("\n".join(lines) + "\n")
    (into / "pbsnodes.txt").write_text(command("pbsnodes", "-av") + "\n")
    (into / "server.txt").write_text(command("qmgr", "-c", "print server") + "\n")
    shutil.copy(PRIVATE / "sched_priv/sched_config", into / "sched_config")


def waits(folder: Path) -> dict[str, float]:
    """From submission to start as accounting has it, by the job's name, seconds."""
    found = {}
    for log in sorted((folder / "accounting").iterdir()):
        for line in log.read_text().splitlines():
            _, kind, _, told = line.split(";", 3)
            if kind == "S":
                values = dict(word.split("=", 1) for word in told.split() if "=" in word)
                found[values["jobname"]] = float(values["start"]) - float(values["qtime"])
    return found


def simulated(folder: Path) -> dict[str, float]:
    """The same of `hpctwin simulate` of what `hpctwin import pbs` makes of it."""
    hpctwin = [sys.executable, "-m", "hpctwin"]
    with tempfile.TemporaryDirectory() as made:
        site, out = f"{made}/site", f"{made}/out"
        command(*hpctwin, "import", "pbs", "--from", str(folder), "--out", site)
        command(*hpctwin, "simulate", site, "--out", out)
        jobs = pl.read_parquet(f"{out}/jobs.parquet")
    names = {}
    for log in sorted((folder / "accounting").iterdir()):
        for line in log.read_text().splitlines():
            _, _, job, told = line.split(";", 3)
            for word in told.split():
                if word.startswith("jobname="):
                    names[job.partition(".")[0]] = word.partition("=")[2]
    ids = [str(one).partition(".")[0] for one in jobs["job_id"]]
    return {names[one]: wait for one, wait in zip(ids, jobs["wait_s"], strict=True)}


def differ(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """By how much waits differ, seconds."""
    error = np.array([abs(one[name] - other[name]) for name in one])
    return {
        "jobs": len(error),
        "median_s": float(np.median(error)),
        "p95_s": float(np.quantile(error, 0.95)),
    }


def tell(folder: Path, first: str, second: str) -> None:
    """Print how far starts lie apart."""
    one, two, ours = waits(folder / first), waits(folder / second), simulated(folder / first)
    spread = differ(one, two)
    within = np.mean([abs(one[name] - ours[name]) <= spread["p95_s"] for name in one])
    print(
        json.dumps(
            {
                "mean_wait_s": float(np.mean(list(one.values()))),
                "PBS from itself": spread,
                "ours from PBS": differ(one, ours),
                "ours within PBS's p95": float(within),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", folder, name, *users] if users:
            run(Path(folder), name, users)
        case ["tell", folder, first, second]:
            tell(Path(folder), first, second)
        case _:
            sys.exit(str(__doc__))
