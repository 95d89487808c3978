"""A twin that is killed and commands that fail, under leases on a real Slurm: `python benchmarks/leases.py`.

While jobs of many kinds come in, the twin is killed (SIGKILL) 100 times at random moments, and Slurm's
commands are made to hang, fail, print garbage or cut off answers 20 times. Then it is counted whether every
job ran once, whether anything ran that was held or beyond a licence, and for how long a job waited at most
beside enough idle nodes: in all, and of that while its begin time was ahead, which is the twin's part; the
rest is Slurm's (a pass now and then, nodes that are cleared). The course of the longest waits is printed look
by look. What Slurm does by itself shows `--alone`: the same submissions for some minutes without a twin.
Needs root and Slurm's daemons; some twenty minutes. `--kills 20 --faults 8` takes less.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import Beside, Wrapped, begin_time, job_rows, running
from tests.rms.slurm_cluster import SlurmCluster

NODES = 16
LEASE_S, LONGEST_S, WITHIN_S = 6, 12, 5
"""The first lease, by the submit rule, and those of the twin; the longest; how long a look is good for."""
EVERY_S = 3.0
"""Mean pause between two submissions: the nodes are to be idle at times."""
DRAIN_S = 600.0
FIRST_FIT = {"pool": ["fcfs+first-fit"], "objective": {"tie_break": ["fcfs+first-fit"]}}


@dataclass(frozen=True, slots=True)
class Seen:
    """A waiting job beside enough idle nodes, at one look.

    Args:
        at_s: the instant, by the clock of the machine.
        idle: idle nodes.
        lease_s: until its begin time; negative when that is past.
        reason: why it waits, as Slurm says.
        twin: what the twin goes through.
    """

    at_s: float
    idle: int
    lease_s: float
    reason: str
    twin: str


@dataclass
class Wait:
    """How long a job waits beside enough idle nodes, look by look."""

    job_id: str
    looks: list[Seen] = field(default_factory=list)

    def seconds(self) -> float:
        """From the first look to the last."""
        return self.looks[-1].at_s - self.looks[0].at_s

    def leased_s(self) -> float:
        """For how long its begin time was ahead meanwhile."""
        pairs = zip(self.looks, self.looks[1:], strict=False)
        return sum(min(b.at_s - a.at_s, max(0.0, a.lease_s)) for a, b in pairs)

    def course(self) -> str:
        """A line for each look."""
        return "\n".join(
            f"    {seen.at_s - self.looks[0].at_s:5.1f} s  {seen.idle:2} idle  "
            f"begins in {seen.lease_s:5.1f} s  {seen.reason:<20} {seen.twin}"
            for seen in self.looks
        )


@dataclass
class Watch:
    """What is seen of the cluster twice a second.

    Args:
        slurm: the cluster.
        limited: jobs of which one may run at a time.
        held: jobs that nobody has released.
        later: jobs that are to begin later.
    """

    slurm: SlurmCluster
    limited: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    most_limited: int = 0
    held_ran: set[str] = field(default_factory=set)
    waits: list[Wait] = field(default_factory=list)
    looks: int = 0
    twin: str = "none"

    def run(self, stop: threading.Event) -> None:
        """Look until told to stop."""
        waiting: dict[str, Wait] = {}
        while not stop.wait(0.5):
            with contextlib.suppress(ValueError, KeyError):
                self._look(waiting)
        self.waits += waiting.values()

    def _look(self, waiting: dict[str, Wait]) -> None:
        idle = int(self.slurm.say("sinfo", "-h", "-t", "idle", "-o", "%D") or 0)
        rows = {row["JobId"]: row for row in job_rows(self.slurm)}
        now_s = time.time()
        self.looks += 1
        runs = {i for i, row in rows.items() if row["JobState"] in ("RUNNING", "COMPLETING")}
        self.most_limited = max(self.most_limited, len(runs & self.limited))
        self.held_ran |= runs & self.held
        fits = {
            i: row
            for i, row in rows.items()
            if row["JobState"] == "PENDING"
            and int(row["NumNodes"].partition("-")[0]) <= idle
            and i not in self.limited | self.held | self.later
        }
        for job_id in waiting.keys() - fits.keys():
            self.waits.append(waiting.pop(job_id))
        for job_id, row in fits.items():
            wait = waiting.setdefault(job_id, Wait(job_id))
            lease_s = begin_time(row) - now_s
            wait.looks.append(Seen(now_s, idle, lease_s, row["Reason"], self.twin))

    def longest(self) -> list[Wait]:
        """The longest wait, and the one of the longest time under leases."""
        by_lease = max(self.waits, key=Wait.leased_s, default=None)
        longest = max(self.waits, key=Wait.seconds, default=None)
        return [wait for wait in (longest, by_lease) if wait is not None]


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
    if kind == "later":
        watch.later.add(job_id)
    return [f"{job_id}_{task}" for task in range(1, 5)] if kind == "array" else [job_id]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument(
        "--alone", type=float, metavar="SECONDS", help="without a twin, for so long"
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    rule: bool | dict[str, str] = {"lease": f"{LEASE_S}s"} if asked.alone is None else False
    with tempfile.TemporaryDirectory(prefix="hpctwin-leases-") as name:
        folder = Path(name)
        with running(
            folder, rule=rule, events=True, scheduler="backfill", nodes=NODES,
            more=("Licenses=matlab:1", "MinJobAge=7200"),
        ) as slurm:  # fmt: skip
            trial = Trial(slurm, folder, rng)
            with trial.submissions():
                if asked.alone is not None:
                    time.sleep(asked.alone)
                else:
                    trial.fail(asked.faults)
                    trial.kill(asked.kills)
            trial.drain(with_twin=asked.alone is None)
            trial.report()


class Trial:
    """Submissions to a Slurm, and a twin that faults and kills happen to.

    Args:
        slurm: the cluster.
        folder: for what the twin and the jobs write.
        rng: says when and what.
    """

    def __init__(self, slurm: SlurmCluster, folder: Path, rng: random.Random) -> None:
        self.slurm, self.rng = slurm, rng
        self.wrapped, self.watch, self.ran = Wrapped(folder), Watch(slurm), folder / "ran"
        self.jobs: list[str] = []
        self.looking = threading.Event()
        self.watcher = threading.Thread(target=self.watch.run, args=(self.looking,))
        self.twin = Beside(
            slurm,
            manager={"folder": str(self.wrapped.folder), "timeout": 2, "first_lease": LEASE_S},
            act={"lease": LEASE_S, "max_lease": LONGEST_S, "max_staleness": WITHIN_S},
            core=FIRST_FIT,
        )

    @contextlib.contextmanager
    def submissions(self) -> Iterator[None]:
        """Jobs come in meanwhile."""
        stop, source = threading.Event(), random.Random(self.rng.random())

        def submissions() -> None:
            while not stop.wait(source.expovariate(1 / EVERY_S)):
                self.jobs.extend(submit(self.slurm, self.watch, source, self.ran))

        thread = threading.Thread(target=submissions)
        thread.start()
        self.watcher.start()
        try:
            yield
        except BaseException:
            self.looking.set()
            self.twin.end()
            raise
        finally:
            stop.set()
            thread.join()

    def fail(self, faults: int) -> None:
        """Slurm's commands hang, fail, print garbage or cut off answers, one after the other."""
        begin, named = time.monotonic(), 0
        self.twin.begin()
        for number in range(faults):
            command = ("squeue", "scontrol", "sinfo")[number % 3]
            self.wrapped.set(command, Wrapped.FAULTS[number // 3 % 4])
            self.watch.twin = f"fault {number}: {command} {Wrapped.FAULTS[number // 3 % 4]}"
            until = time.monotonic() + 8
            seen = False
            while time.monotonic() < until and not seen:
                time.sleep(0.2)
                seen = bool(self.twin.status()["fault"])
            named += seen
            self.wrapped.set(command, None)
            self.watch.twin = f"after fault {number}"
            self.slurm.wait(lambda: self.twin.status()["is_active"], 60)
        took_s = time.monotonic() - begin
        print(f"{faults} faults in {took_s:.0f} s, {named} named in the status", flush=True)
        self.twin.end(9)

    def kill(self, kills: int) -> None:
        """The twin is killed: two times in three while it acts, else while it restores its state."""
        begin, acted = time.monotonic(), 0
        for number in range(kills):
            self.watch.twin = f"begun {number}"
            self.twin.begin(wait=False)
            if number % 3:
                self.slurm.wait(self.twin.heartbeat.exists, 60)
            time.sleep(self.rng.uniform(0.0, 2.0))
            acted += self.twin.heartbeat.exists()
            self.twin.end(9)
        took_s = time.monotonic() - begin
        print(f"{kills} kills in {took_s:.0f} s, {acted} of a twin in charge", flush=True)

    def drain(self, *, with_twin: bool) -> None:
        """Let all jobs end that came in."""
        try:
            if with_twin:
                self.watch.twin = "at the end"
                self.twin.begin()
            self.slurm.wait(lambda: not left(self.slurm, self.watch), DRAIN_S)
        finally:
            self.looking.set()
            self.watcher.join()
            self.twin.end()

    def report(self) -> None:
        """What became of the jobs."""
        watch = self.watch
        rows = self.slurm.say("scontrol", "show", "job", "-o").splitlines()
        fields = [dict(p.split("=", 1) for p in row.split() if "=" in p) for row in rows]
        named = {
            f"{f['ArrayJobId']}_{f['ArrayTaskId']}" if "ArrayTaskId" in f else f["JobId"]: f
            for f in fields
        }
        counts = Counter(self.ran.read_text().split())
        once = [j for j in self.jobs if j in named and counts[named[j]["JobId"]] == 1]
        completed = sum(named[j]["JobState"] == "COMPLETED" for j in self.jobs if j in named)
        twice = sum(n > 1 for n in counts.values())
        print(f"jobs {len(self.jobs)}: completed {completed}, ran once {len(once)}, twice {twice}")
        print(f"held jobs {len(watch.held)}, of which ran {len(watch.held_ran)}")
        most = watch.most_limited
        print(f"jobs with a licence {len(watch.limited)}, most at once {most} (1 allowed)")
        print(f"longest lease {LONGEST_S} s, blind after {WITHIN_S} s; {watch.looks} looks")
        for what, wait in zip(
            ("longest wait", "longest under leases"), watch.longest(), strict=False
        ):
            print(
                f"{what} beside enough idle nodes: job {wait.job_id}, {wait.seconds():.1f} s, "
                f"{wait.leased_s():.1f} s of them with its begin time ahead"
            )
            print(wait.course())


def left(slurm: SlurmCluster, watch: Watch) -> set[str]:
    """Jobs that have not ended, but for those that are held."""
    return set(slurm.say("squeue", "-h", "-o", "%A").split()) - watch.held


if __name__ == "__main__":
    main()
