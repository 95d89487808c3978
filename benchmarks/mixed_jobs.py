"""1,000 jobs of all kinds for a real Slurm with accounts and QOS; part of `slurm_shared`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import json_rows, readable_folder
from tests.rms.slurm_accounting import Accounting, settings_of
from tests.rms.slurm_cluster import QUICK, SlurmCluster, free_ports

from hpctwin import Workload, simulate
from hpctwin.model import Category, Dependencies, DependencyKind
from hpctwin.rms.site_folder import Imported, import_site
from hpctwin.rms.slurm.listing.sharing import Sharing, Sizes, tasks_asked
from hpctwin.rms.slurm.site.recognition import LIVE

NAMES = ("mixed-", "preempting-")
JOBS = 1000
NODES, CORES, GPUS, MEMORY_MB = 32, 16, 2, 32768
APART_S = 0.6
"""From one submission to the next, on the mean."""
USERS = {
    "daemon": "lattice", "games": "lattice", "bin": "optics", "mail": "optics", "news": "chem", "man": "chem",
}  # fmt: skip
"""Users by account."""
QOS = {
    "normal": ("priority=100", "MaxTRESPerUser=cpu=224"),
    "high": ("priority=1000", "MaxTRESPerUser=cpu=128,gres/gpu=16"),
    "low": ("priority=0", "GrpTRES=cpu=192", "MaxJobsPerUser=12"),
}
PRIORITY = (
    "PriorityWeightAge=1000", "PriorityMaxAge=01:00:00", "PriorityCalcPeriod=1", "PriorityWeightQOS=10000",
)  # fmt: skip
OF_ACCOUNTS = {"lattice": "GrpTRES=cpu=320", "optics": "GrpJobs=40", "chem": "GrpTRES=gres/gpu=40"}
PREEMPTING = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE")
SIZES = Sizes(CORES, GPUS, 1, frozenset({"a"}))
SHARING = Sharing(False, True, {"main": SIZES}, frozenset(f"n{i + 1}" for i in range(NODES)))
KINDS = {"afterok": DependencyKind.AFTEROK, "afterany": DependencyKind.AFTERANY}


@dataclass(frozen=True)
class Submission:
    """One call of sbatch: when, minutes asked for, seconds it runs, as whom, tasks of an array (1: none)."""

    at_s: float
    minutes: int
    runs_s: float
    user: str
    qos: str
    asks: tuple[str, ...]
    tasks: int = 1
    after: tuple[str, int] | None = None  # kind, and which submission before this one


def ways(rng: np.random.Generator) -> list[str]:
    """In one of Slurm's ways, what a job asks for."""
    n, c = int(rng.choice([1, 1, 2, 4, 8, 12, 16])), int(rng.choice([1, 1, 2]))
    some = str(int(rng.choice([200, 500, 1000, 2000])))
    few = min(n, 8)
    found = (
        ["-n", str(n), "-c", str(c), f"--mem-per-cpu={some}"],
        ["-N1", "-n", str(few), f"--mem={4 * int(some)}"],
        ["-N2", "-n", str(2 * few), f"--mem={some}"],
        ["-n", str(2 * n), f"--mem-per-cpu={some}"],
        ["-n", str(2 * few), "--ntasks-per-node=4", f"--mem-per-cpu={some}"],
        ["-N1", "-n1", "-c", str(4 * c), "--gres=gpu:1", f"--mem={some}"],
        ["-n", str(few), "--gpus-per-task=1", f"--mem-per-cpu={some}"],
        ["-N1", "-n1", "--gpus=2", f"--mem-per-gpu={some}"],
        [f"-N{1 + few // 4}", "--exclusive", f"--mem={some}"],
    )
    shares = [0.28, 0.14, 0.12, 0.14, 0.1, 0.08, 0.05, 0.04, 0.05]
    return found[int(rng.choice(len(found), p=shares))]


def submissions(seed: int = 1) -> list[Submission]:
    """As many that their arrays' tasks and they are `JOBS` jobs."""
    rng = np.random.default_rng(seed)
    users = list(USERS)
    found: list[Submission] = []
    at_s, jobs = 0.0, 0
    while jobs < JOBS:
        tasks = min(int(rng.choice([1, 4, 8], p=[0.95, 0.03, 0.02])), JOBS - jobs)
        at_s += rng.exponential(APART_S * tasks)
        minutes = int(rng.integers(1, 4))
        after = None
        if tasks == 1 and len(found) > 5 and rng.random() < 0.1:
            after = (str(rng.choice(list(KINDS))), len(found) - int(rng.integers(1, 6)))
        found.append(
            Submission(
                at_s, minutes, round(60 * minutes * rng.uniform(0.12, 0.5), 1),
                users[int(rng.choice(len(users), p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1]))],
                str(rng.choice(list(QOS), p=[0.6, 0.2, 0.2])), tuple(ways(rng)), tasks, after,
            )
        )  # fmt: skip
        jobs += tasks
    return found


def tell_accounts(slurm: SlurmCluster, accounting: Accounting, *, preempting: bool) -> None:
    """Accounts, users and QOS, until Slurm knows of all."""
    for name, limits in QOS.items():
        verb = ("modify", "qos", name, "set") if name == "normal" else ("add", "qos", name)
        accounting.tell(*verb, *limits)
    if preempting:
        accounting.tell("modify", "qos", "high", "set", "Preempt=low")
    for name, limit in OF_ACCOUNTS.items():
        accounting.tell("add", "account", name, limit, f"QOS={','.join(QOS)}")
    for name, account in USERS.items():
        accounting.tell("add", "user", name, f"Account={account}")
    last = list(USERS)[-1]
    slurm.wait(lambda: f"UserName={last}(" in slurm.say("scontrol", "show", "assoc_mgr"), 60)


@contextlib.contextmanager
def cluster(folder: Path, scheduler: str, *, preempting: bool) -> Iterator[SlurmCluster]:
    """The machine with its accounts and QOS."""
    port = free_ports(1)
    slurm = SlurmCluster(
        folder, scheduler=scheduler, priority="multifactor", nodes=NODES, cpus=CORES, memory=MEMORY_MB,
        select="CR_Core_Memory", gpus=GPUS, parameters=f"{QUICK},bf_resolution=1",
        node=f"Sockets=2 CoresPerSocket={CORES // 2} ThreadsPerCore=1",
        more=("MinJobAge=7200", "LogTimeFormat=iso8601_ms", "DebugFlags=Backfill", *PRIORITY,
              *(PREEMPTING if preempting else ()), *settings_of(port)),
    )  # fmt: skip
    accounting = Accounting(slurm, port)
    try:
        accounting.begin()
        slurm.begin()  # by which gres/gpu comes to be known
        tell_accounts(slurm, accounting, preempting=preempting)
        yield slurm
    finally:
        slurm.end()
        accounting.end()


def submitted(slurm: SlurmCluster) -> list[dict[str, Any]]:
    """What became of the jobs: rows of ``squeue --json`` with the number of their submission."""
    begin, ids = time.time(), list[str]()
    late_s = 0.0
    for one in submissions():
        time.sleep(max(0.0, begin + one.at_s - time.time()))
        late_s = max(late_s, time.time() - begin - one.at_s)
        more = [f"--array=0-{one.tasks - 1}"] if one.tasks > 1 else []
        if one.after is not None:
            more.append(f"--dependency={one.after[0]}:{ids[one.after[1]]}")
        whom = (f"--uid={one.user}", f"--account={USERS[one.user]}", f"--qos={one.qos}")
        ids.append(slurm.submit_tasks(one.minutes, one.runs_s, *whom, *one.asks, *more))
    print(
        f"  all submitted, the latest {late_s:.1f} s late; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    slurm.wait(lambda: not slurm.say("squeue", "-h", "-t", "PD,R,CG").strip(), 2400)
    rows = json_rows(slurm)
    number = {job_id: place for place, job_id in enumerate(ids)}
    named = [(row, str(row["array_job_id"] or row["job_id"])) for row in rows]
    return [{**row, "submission": number[name]} for row, name in named if name in number]


def run(folder: Path, name: str) -> None:
    """One run, such as ``mixed-backfill.1`` or ``preempting-builtin.1``."""
    kind, _, scheduler = name.partition(".")[0].partition("-")
    with (
        readable_folder() as place,
        cluster(place, scheduler, preempting=kind == "preempting") as slurm,
    ):
        load = os.getloadavg()[0]
        rows = submitted(slurm)
        said = folder / f"{name}.site"
        said.mkdir(exist_ok=True)
        for file, command in LIVE.items():
            (said / file).write_text(
                slurm.say(*command, *(("-S", "now-1days") if file == "sacct.txt" else ()))
            )
        (said / "sdiag").write_text(slurm.say("sdiag"))
        (folder / f"{name}.log").write_text((place / "slurmctld.log").read_text())
    (folder / f"{name}.json").write_text(json.dumps(rows))
    print(
        f"{name}: {len(rows)} jobs, load {load:.1f} before and {os.getloadavg()[0]:.1f} after",
        flush=True,
    )


def loaded(folder: Path, name: str) -> list[dict[str, Any]]:
    """Rows in order of submission; tasks of an array by number.

    Slurm gives a job that it requeues a new time of submission: here it is the first that accounting has.
    """
    found: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
    header, *lines = (folder / f"{name}.site" / "sacct.txt").read_text().splitlines()
    which, when = (header.split("|").index(column) for column in ("JobIDRaw", "Submit"))
    first: dict[str, float] = {}
    for fields in (line.split("|") for line in lines):
        at_s = datetime.fromisoformat(fields[when]).timestamp()
        first[fields[which]] = min(at_s, first.get(fields[which], at_s))
    told = [{**row, "submit_time": first[str(row["job_id"])]} for row in found]
    return sorted(told, key=lambda row: (row["submission"], row["array_task_id"] or 0))


def starts(rows: list[dict[str, Any]]) -> np.ndarray:
    """Seconds since the first submission, in order of submission."""
    zero = min(row["submit_time"] for row in rows)
    return np.array([row["start_time"] - zero for row in rows], float)


def workload_of(rows: list[dict[str, Any]]) -> Workload:
    """The jobs as Slurm had them: what they ask for read as the twin reads it."""
    told = submissions()
    asked = [tasks_asked([row], SHARING, SIZES, []) for row in rows]
    zero = min(row["submit_time"] for row in rows)
    place: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        place.setdefault(row["submission"], []).append(number)
    edges = [
        (number, on, KINDS[after[0]], 0)
        for number, row in enumerate(rows)
        if (after := told[row["submission"]].after) is not None
        for on in place[after[1]]
    ]
    chunks = (
        "tasks",
        "cores_per_task",
        "memory_gb_per_task",
        "gpus_per_task",
        "tasks_per_node",
        "exclusive",
    )
    return Workload.build(
        job_id=np.arange(len(rows)),
        submit_s=[row["submit_time"] - zero for row in rows],
        runtime_s=[max(1, row["end_time"] - row["start_time"]) for row in rows],
        walltime_s=[60 * row["time_limit"] for row in rows],
        nodes=[one["nodes"] for one in asked],
        chunks={name: [float(one.get(name, 0)) for one in asked] for name in chunks},
        dependencies=Dependencies.of(edges),
        **{name: Category.of([row[key] for row in rows])
           for name, key in (("user", "user_name"), *((x, x) for x in ("account", "qos", "partition")))},
    )  # fmt: skip


def ours(
    rows: list[dict[str, Any]], site: Imported, policy: str, cleanup_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """When the simulator starts them, on what `hpctwin import` read there, and how often it requeues each."""
    cluster = site.site.cluster.model_copy(update={"cleanup": cleanup_s})
    result = simulate(workload_of(rows), cluster, policy)
    jobs = result.jobs.sort("job_id")
    assert jobs["start_s"].null_count() == 0, jobs.filter(jobs["start_s"].is_null())
    return jobs["start_s"].to_numpy(), jobs["requeues"].to_numpy()


def requeued(rows: list[dict[str, Any]]) -> np.ndarray:
    """How often Slurm requeued each."""
    return np.array([row["restart_cnt"] for row in rows])


def agree(one: np.ndarray, other: np.ndarray) -> str:
    """Who was requeued, and who was as in another run."""
    return (
        f"{(one > 0).sum()} jobs requeued {one.sum()} times, {((one > 0) & (other > 0)).sum()} of them as in "
        "the first run"
    )


def differ(one: np.ndarray, other: np.ndarray, spread: float) -> str:
    size = np.abs(one - other)
    return (
        f"median {np.median(size):.1f} s, p95 {np.quantile(size, 0.95):.1f} s, within its spread "
        f"{(size <= spread).mean():.1%}, mean wait differs by {one.mean() - other.mean():+.1f} s"
    )


def tell(folder: Path) -> None:
    """Starts of each run against ours, and against the other run: its spread is what 95 % differ by."""
    for kind in ("mixed", "preempting"):
        for scheduler in ("builtin", "backfill"):
            names = [f"{kind}-{scheduler}.{number}" for number in (1, 2)]
            if not all((folder / f"{name}.json").exists() for name in names):
                continue
            first, second = (loaded(folder, name) for name in names)
            sites = [import_site("slurm", folder / f"{name}.site") for name in names]
            wait = np.mean([row["start_time"] - row["submit_time"] for row in first])
            spread = float(np.quantile(np.abs(starts(first) - starts(second)), 0.95))
            print(f"{kind} jobs, sched/{scheduler}: {len(first)} jobs, mean wait {wait:.0f} s")
            print(f"  the same submissions again: {differ(starts(second), starts(first), spread)}")
            before = requeued(first)
            if before.any():
                print(
                    f"    {before.astype(bool).sum()} jobs requeued {before.sum()} times; then ",
                    end="",
                )
                print(agree(requeued(second), before))
            for place in ("tightest-run", "best-fit", "contiguous", "first-fit"):
                policy = f"{sites[0].site.policy.partition('@')[0]}@{place}"
                for cleanup_s in (0, 1):
                    print(f"  {policy}, cleanup {cleanup_s} s")
                    for name, rows, site in zip(names, (first, second), sites, strict=True):
                        begins, again = ours(rows, site, policy, cleanup_s)
                        print(f"    {name}: {differ(begins, starts(rows), spread)}", flush=True)
                        if rows is first and before.any():
                            print(f"    {agree(again, before)}", flush=True)
