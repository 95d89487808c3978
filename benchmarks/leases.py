"""A twin that is killed and commands that fail, under leases on a real Slurm: `python benchmarks/leases.py`.

While jobs of many kinds come in, the twin is killed (SIGKILL) 100 times at random moments, and Slurm's
commands are made to hang, fail, print garbage or cut off answers 20 times. Then it is counted whether every
job ran once, whether anything ran that was held or beyond a licence, and for how long a job waited at most
beside enough idle nodes, where nothing but the twin could keep it. Needs root and Slurm's daemons; some ten
minutes. `--kills 20 --faults 8` takes less.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import Beside, Wrapped, running
from tests.rms.slurm_cluster import SlurmCluster

NODES = 16
LEASE_S, LONGEST_S, WITHIN_S = 6, 12, 5
EVERY_S = 1.2
"""Mean pause between two submissions."""
FIRST_FIT = {"pool": ["fcfs+first-fit"], "objective": {"ties": ["fcfs+first-fit"]}}


@dataclass
class Watch:
    """What is seen of the cluster twice a second.

    Args:
        slurm: the cluster.
        limited: jobs of which one may run at a time.
        held: jobs that nobody has released.
    """

    slurm: SlurmCluster
    limited: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    most_limited: int = 0
    held_ran: set[str] = field(default_factory=set)
    longest_idle_s: float = 0.0
    idle_of: str = ""
    looks: int = 0

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop."""
        since: dict[str, float] = {}
        while not stop.wait(0.5):
            with contextlib.suppress(ValueError, KeyError):
                self._look(since)

    def _look(self, since: dict[str, float]) -> None:
        idle = int(self.slurm.say("sinfo", "-h", "-t", "idle", "-o", "%D") or 0)
        rows = json.loads(self.slurm.say("squeue", "--json"))["jobs"]
        now_s = time.monotonic()
        self.looks += 1
        runs = {str(r["job_id"]) for r in rows if r["job_state"] in ("RUNNING", "COMPLETING")}
        self.most_limited = max(self.most_limited, len(runs & self.limited))
        self.held_ran |= runs & self.held
        fits = {
            str(r["job_id"])
            for r in rows
            if r["job_state"] == "PENDING"
            and r["node_count"] <= idle
            and str(r["job_id"]) not in self.limited | self.held
        }
        for job_id in since.keys() - fits:
            del since[job_id]
        for job_id in fits:
            since.setdefault(job_id, now_s)
            if now_s - since[job_id] > self.longest_idle_s:
                self.longest_idle_s, self.idle_of = now_s - since[job_id], job_id


def submit(slurm: SlurmCluster, watch: Watch, rng: random.Random, ran: Path) -> list[str]:
    """One submission of some kind; the jobs that must have run once in the end."""
    nodes, runs_s = rng.choice([1, 1, 2, 3, 5, 8, 12, 16]), rng.uniform(0.5, 4)
    note = f"echo $SLURM_JOB_ID >>{ran}; sleep {runs_s:.1f}"
    options = ["--parsable", f"-N{nodes}", "-t2", "-o", "/dev/null", "-D", "/tmp"]
    kind = rng.choice(["plain"] * 7 + ["held", "licence", "array", "later"])
    options += {
        "held": ["-H"], "licence": ["-L", "matlab:1"], "array": ["--array=1-4"], "later": ["--begin=now+9"],
    }.get(kind, [])  # fmt: skip
    job_id = slurm.say("sbatch", *options, "--wrap", note).strip()
    if not job_id:
        return []
    if kind == "held":
        watch.held.add(job_id)
        return []
    if kind == "licence":
        watch.limited.add(job_id)
    return [f"{job_id}_{task}" for task in range(1, 5)] if kind == "array" else [job_id]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="hpctwin-leases-") as name:
        folder = Path(name)
        with running(
            folder, rule=True, events=True, scheduler="backfill", nodes=NODES,
            more=("Licenses=matlab:1", "MinJobAge=7200"),
        ) as slurm:  # fmt: skip
            report(*trial(slurm, folder, rng, asked.kills, asked.faults))


def trial(
    slurm: SlurmCluster, folder: Path, rng: random.Random, kills: int, faults: int
) -> tuple[SlurmCluster, Watch, list[str], Path, dict[str, Any]]:
    wrapped, watch, ran = Wrapped(folder), Watch(slurm), folder / "ran"
    twin = Beside(
        slurm,
        manager={"folder": str(wrapped.folder), "timeout": 2},
        act={"lease": LEASE_S, "longest_lease": LONGEST_S, "look_within": WITHIN_S},
        core=FIRST_FIT,
    )
    jobs: list[str] = []
    stop, looking = threading.Event(), threading.Event()
    source = random.Random(rng.random())

    def submissions() -> None:
        while not stop.wait(source.expovariate(1 / EVERY_S)):
            jobs.extend(submit(slurm, watch, source, ran))

    threads = [
        threading.Thread(target=submissions),
        threading.Thread(target=watch.run, args=(looking,)),
    ]
    for thread in threads:
        thread.start()
    begin, blind, acted = time.monotonic(), 0, 0
    try:
        twin.begin()
        for number in range(faults):
            command = ("squeue", "scontrol", "sinfo")[number % 3]
            wrapped.set(command, Wrapped.FAULTS[number // 3 % 4])
            until = time.monotonic() + 8
            seen = False
            while time.monotonic() < until and not seen:
                time.sleep(0.2)
                seen = bool(twin.status()["fault"])
            blind += seen
            wrapped.set(command, None)
            slurm.wait(lambda: twin.status()["in_charge"], 60)
        print(
            f"{faults} faults in {time.monotonic() - begin:.0f} s, {blind} named in the status",
            flush=True,
        )
        twin.end(9)
        began = time.monotonic()
        for number in range(kills):
            # Two in three while it acts, the others while it restores its state.
            twin.begin(wait=False)
            if number % 3:
                slurm.wait(twin.heartbeat.exists, 60)
            time.sleep(rng.uniform(0.0, 2.0))
            acted += twin.heartbeat.exists()
            twin.end(9)
        print(
            f"{kills} kills in {time.monotonic() - began:.0f} s, {acted} of a twin in charge",
            flush=True,
        )
        stop.set()
        twin.begin()
        slurm.wait(lambda: not left(slurm, watch), 180)
        starts = twin.status()["counts"]["starts"]
    finally:
        stop.set()
        looking.set()
        for thread in threads:
            thread.join()
        twin.end()
    return slurm, watch, jobs, ran, {"kills": kills, "faults": faults, "starts at the end": starts}


def left(slurm: SlurmCluster, watch: Watch) -> set[str]:
    """Jobs that have not ended, but for those that are held."""
    return set(slurm.say("squeue", "-h", "-o", "%A").split()) - watch.held


def report(
    slurm: SlurmCluster, watch: Watch, jobs: list[str], ran: Path, about: dict[str, Any]
) -> None:
    rows = slurm.say("scontrol", "show", "job", "-o").splitlines()
    fields = [dict(p.split("=", 1) for p in row.split() if "=" in p) for row in rows]
    named = {
        f"{f['ArrayJobId']}_{f['ArrayTaskId']}" if "ArrayTaskId" in f else f["JobId"]: f
        for f in fields
    }
    counts: dict[str, int] = {}
    for line in ran.read_text().split():
        counts[line] = counts.get(line, 0) + 1
    once = [j for j in jobs if j in named and counts.get(named[j]["JobId"], 0) == 1]
    completed = sum(named[j]["JobState"] == "COMPLETED" for j in jobs if j in named)
    print(json.dumps(about))
    print(f"jobs {len(jobs)}: ran once {len(once)}, completed {completed}, ")
    print(f"ran twice {sum(n > 1 for n in counts.values())}, lost {len(jobs) - len(once)}")
    print(f"held jobs {len(watch.held)}, of which ran {len(watch.held_ran)}")
    print(
        f"jobs with a licence {len(watch.limited)}, most at once {watch.most_limited} (1 allowed)"
    )
    print(
        f"longest wait beside enough idle nodes {watch.longest_idle_s:.1f} s (job {watch.idle_of}; "
        f"longest lease {LONGEST_S} s, blind after {WITHIN_S} s), {watch.looks} looks"
    )


if __name__ == "__main__":
    main()
