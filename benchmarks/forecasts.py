"""Forecasts of a twin beside `squeue --start`: part of a log is submitted to a real Slurm, made shorter.

    python benchmarks/forecasts.py TRACE --from 20d --until 21d [--compress 60] [--predictor recent]

The jobs of that part come to 32 emulated nodes under `sched/backfill`, in the same proportion of the machine
as in the log, their times divided by `--compress`, each user of the log one of this machine's. A twin
observes. Every few seconds `hpctwin when` and `squeue --start` are asked of all jobs that wait; when each has
begun, what both had said is compared. Needs root and Slurm's daemons (Debian: slurmctld slurmd slurm-client
munge).
"""

from __future__ import annotations

import argparse
import json
import math
import pwd
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import Beside
from tests.rms.slurm_cluster import QUICK, SlurmCluster

from hpctwin import Workload, read_workload
from hpctwin.errors import HpctwinError
from hpctwin.model import parse_duration_s
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.service.when import answered
from hpctwin.twin.settings.config import TwinConfig
from slurm import policy_of, stamp

NODES = 32
EVERY_S = 10.0
OVER = ("COMPLETED", "TIMEOUT", "FAILED", "CANCELLED", "NODE_FAIL")


@dataclass(frozen=True)
class Submission:
    """A job: when, nodes, minutes asked for, seconds it runs, whose."""

    at_s: float
    nodes: int
    minutes: int
    runs_s: float
    user: str


@dataclass(frozen=True)
class Said:
    """Of a job that waited: when both were asked, what each said, the twin's interval."""

    job: str
    at_s: float
    twin_s: float
    low_s: float
    high_s: float
    slurm_s: float


def submissions(jobs: Workload, machine: int, compress: float) -> list[Submission]:
    """The jobs in time and nodes of the small machine."""
    accounts = [one.pw_name for one in pwd.getpwall()]
    whose = jobs.user.codes % len(accounts)
    begin = int(jobs.submit_ms[0])
    return [
        Submission(
            (int(jobs.submit_ms[row]) - begin) / 1000 / compress,
            max(1, math.ceil(int(jobs.nodes[row]) * NODES / machine)),
            max(1, math.ceil(int(jobs.walltime_ms[row]) / 60_000 / compress)),
            int(jobs.runtime_ms[row]) / 1000 / compress,
            accounts[whose[row]],
        )
        for row in range(len(jobs))
    ]


def asked(config: TwinConfig, manager: SlurmManager, waiting: list[str]) -> list[Said]:
    """What both say of the jobs that wait, where both say something."""
    theirs = manager.own_estimates()
    now_s = time.time()
    said = []
    for job in waiting:
        if job not in theirs:
            continue
        try:
            found = answered(config, job).when
        except HpctwinError:
            continue
        if found.start_s is not None and found.low_s is not None and found.high_s is not None:
            said.append(Said(job, now_s, found.start_s, found.low_s, found.high_s, theirs[job]))
    return said


def watched(due: list[Submission], predictor: str) -> tuple[list[Said], dict[str, float]]:
    """All that was said, and when each job began, s since the epoch."""
    said: list[Said] = []
    began: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # jobs of other users read their scripts there
        slurm = SlurmCluster(
            Path(folder), scheduler="backfill", parameters=f"{QUICK},bf_resolution=1"
        )
        twin = Beside(
            slurm,
            act={"mode": "observe"},
            core={"predictor": predictor, "site_policy": policy_of(slurm)},
        )
        config = TwinConfig.from_yaml(twin.config)
        try:
            slurm.begin()
            twin.begin(wait=False)
            slurm.wait(config.journal.path.exists, 60)
            manager = SlurmManager("emul", conf=slurm.conf)
            left, waiting, begin, looked = list(due), set[str](), time.time(), 0.0
            while left or waiting:
                while left and time.time() - begin >= left[0].at_s:
                    one = left.pop(0)
                    waiting.add(
                        slurm.submit(one.nodes, one.minutes, one.runs_s, f"--uid={one.user}")
                    )
                if time.time() - looked > EVERY_S:
                    looked = time.time()
                    said += asked(config, manager, sorted(waiting))
                    for job in list(waiting):
                        about = slurm.job(job)
                        if about["JobState"] == "RUNNING" or about["JobState"].startswith(OVER):
                            if about["JobState"].startswith(("FAILED", "NODE_FAIL")):
                                sys.exit(f"job {job} ended as {about['JobState']}")
                            began[job] = stamp(about["StartTime"])
                            waiting.remove(job)
                    print(
                        f"  {len(left)} to come, {len(waiting)} wait", file=sys.stderr, flush=True
                    )
                time.sleep(0.3)
        finally:
            twin.end()
            slurm.end()
    return said, began


def told(said: list[Said], began: dict[str, float]) -> dict[str, float]:
    """Errors of both, s; the share of starts within the twin's interval."""
    came = np.array([began[one.job] for one in said])
    twin = np.abs(np.array([one.twin_s for one in said]) - came)
    slurm = np.abs(np.array([one.slurm_s for one in said]) - came)
    held = np.array([one.low_s for one in said]) - 1 <= came
    held &= came <= np.array([one.high_s for one in said]) + 1
    return {
        "pairs": len(said),
        "jobs": len({one.job for one in said}),
        "twin_median_s": float(np.median(twin)),
        "slurm_median_s": float(np.median(slurm)),
        "share": float(np.median(twin) / np.median(slurm)),
        "twin_mean_s": float(twin.mean()),
        "slurm_mean_s": float(slurm.mean()),
        "held": float(held.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--from", dest="begin", required=True, help="such as 20d")
    parser.add_argument("--until", required=True)
    parser.add_argument(
        "--machine", type=int, help="nodes of the log's machine; default its largest job's"
    )
    parser.add_argument("--compress", type=float, default=60.0)
    parser.add_argument("--predictor", default="recent")
    given = parser.parse_args()
    whole = read_workload(given.trace)
    first, last = (1000 * parse_duration_s(text) for text in (given.begin, given.until))
    rows = np.flatnonzero((whole.submit_ms >= first) & (whole.submit_ms < last))
    jobs = whole[int(rows[0]) : int(rows[-1]) + 1]
    machine = given.machine or int(whole.nodes.max())
    due = submissions(jobs, machine, given.compress)
    print(f"{len(due)} jobs of {len({one.user for one in due})} users", file=sys.stderr)
    said, began = watched(due, given.predictor)
    if not said:
        sys.exit(
            "no job waited that both said something of: take a busier part, or compress it less"
        )
    firsts = list({one.job: one for one in reversed(said)}.values())
    print(
        json.dumps({"all": told(said, began), "first of each job": told(firsts, began)}, indent=1)
    )


if __name__ == "__main__":
    main()
