"""Jobs that share nodes, on a real Slurm with `cons_tres`: 300 on 8 emulated nodes, or 1,000 on 32.

    python benchmarks/slurm_shared.py run FOLDER [RUNS]
    python benchmarks/slurm_shared.py tell FOLDER

- run: builtin.1 builtin.2 backfill.1 backfill.2 lease.1 users.1 gres.1, or some of them: the same
  submissions twice under each scheduler, and once under leases of a twin; users: of three users, a third of
  them with ``--exclusive=user``, gres: half of them with consumables of the nodes, both under leases. all.1:
  300 jobs of two users in partitions of two tiers, with arrays, GPUs of two types and all of the above, under
  leases; the first 60 come one by one on an idle cluster. What became of them is written to FOLDER. Some
  seven minutes each. Needs root and Slurm's daemons (Debian: slurmctld slurmd slurm-client munge);
  ``HPCTWIN_SLURM=26.05`` chooses the version. mixed-builtin.1 mixed-builtin.2 mixed-backfill.1
  mixed-backfill.2: 1,000 jobs of six users with QOS, limits, dependencies and arrays (`mixed_jobs`);
  preempting-…: the same where a QOS preempts another. Some fifteen minutes each. These need slurmdbd with
  MariaDB, too (Debian: slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core).
- tell: start times against ours, beside the real one's own spread; the nodes it chose against rules of
  choice.

The jobs ask in all of Slurm's ways: tasks, CPUs by task, memory by CPU, node and GPU, GPUs by task, node
and job, a number of nodes, tasks by node, nodes for themselves. Nodes have 8 cores, 16 GB and 2 GPUs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import Beside, json_rows, readable_folder, running
from tests.rms.slurm_cluster import QUICK, SlurmCluster

import mixed_jobs
from hpctwin import Cluster, Workload, simulate
from hpctwin.model.text import expand
from hpctwin.rms.node_capacity import Room
from hpctwin.rms.records.records import JobSpec
from hpctwin.rms.slurm.listing.allocations import parts_held
from hpctwin.rms.slurm.listing.sharing import Sharing, Sizes, tasks_asked
from hpctwin.rms.slurm.listing.values import words

JOBS = 300
TWINS = {
    "lease": "under leases",
    "users": "under leases, of three users",
    "gres": "under leases, with consumables",
    "all": "under leases, of all kinds",
}
OWN = (
    "fcfs+slurm:batch_sched_delay=0s,sched_min_interval=0.01s,sched_interval=1s,bf_interval=1s,"
    "bf_resolution=1s,bf_round_up=no"
)
"""What `hpctwin import` makes of the scheduler's parameters."""
LATE_S = 5
"""Who is told to start and does not within so long found no room."""
PASS_S = 2.0
"""A job that has been told to start and has not this much later found no resources."""
NODES, CORES, GPUS, MEMORY_MB = 8, 8, 2, 16384
MACHINE: dict[str, Any] = {
    "nodes": NODES, "cpus": CORES, "select": "CR_Core_Memory", "memory": MEMORY_MB, "gpus": GPUS,
    "parameters": f"{QUICK},bf_resolution=1",
    "node": f"Sockets=2 CoresPerSocket={CORES // 2} ThreadsPerCore=1", "more": ("MinJobAge=7200",),
}  # fmt: skip
TIERS = "PartitionName=urgent Nodes=n[1-8] MaxTime=INFINITE State=UP PriorityTier=10"
MACHINES: dict[str, dict[str, Any]] = {
    "gres": {**MACHINE, "gres": ("fpga:x:2", "tmp:800G", "nic:3")},
    "all": {**MACHINE, "gpus": {"a": 2, "b": 2}, "more": (*MACHINE["more"], TIERS)},
}
"""Clusters of runs that need another one."""
SIZES = Sizes(CORES, GPUS, 1, frozenset({"a"}))
SHARING = Sharing(False, True, {"main": SIZES}, frozenset(f"n{i + 1}" for i in range(NODES)))


USERS = ("daemon", "games", "bin")
GRES = ("fpga:1", "fpga:x:2", "tmp:300G", "nic:2", "nic", "fpga:1,tmp:100G")


def also(kind: str, rng: np.random.Generator, way: list[str]) -> list[str]:
    """What a job asks for where there are several users, or consumables of nodes."""
    if kind == "users":
        only = rng.random() < 0.33 and "--exclusive" not in way
        return [*way, f"--uid={rng.choice(USERS)}", *(["--exclusive=user"] if only else [])]
    if kind == "gres" and rng.random() < 0.5:
        some = str(rng.choice(GRES))
        own = [word for word in way if word.startswith("--gres=")]
        return [
            *(word for word in way if word not in own),
            ",".join([*own, f"--gres={some}"]).replace(",--gres=", ","),
        ]
    return way


IDLE_JOBS, IDLE_APART_S = 60, 2.5
"""Submissions of `all_kinds` that find an idle cluster, and from one to the next."""


def all_kinds(seed: int) -> list[tuple[float, int, float, list[str]]]:
    """`JOBS` jobs of two users, tasks of arrays counted; see `submissions`."""
    rng = np.random.default_rng(seed)
    found: list[tuple[float, int, float, list[str]]] = []
    at, jobs = 0.0, 0
    while jobs < JOBS:
        idle = len(found) < IDLE_JOBS
        at += IDLE_APART_S if idle else rng.exponential(0.7)
        n, c = int(rng.choice([1, 1, 2, 3, 4, 6])), int(rng.choice([1, 1, 2]))
        some = str(int(rng.choice([200, 500, 1000, 2000])))
        ways = (
            ["-n", str(n), "-c", str(c), f"--mem-per-cpu={some}"],
            ["-N1", "-n", str(n), f"--mem={4 * int(some)}"],
            ["-N2", "-n", str(2 * n), f"--mem={some}"],
            ["-n", str(4 * n), f"--mem-per-cpu={some}"],
            ["-N1", "-n1", "-c", str(2 * c), "--gres=gpu:a:1", f"--mem={some}"],
            ["-N1", "-n1", "--gpus=b:2", f"--mem-per-gpu={some}"],
            ["-n", str(min(n, 4)), "--gpus-per-task=b:1", f"--mem-per-cpu={some}"],
            ["-N1", "-n1", "--gres=gpu:2", f"--mem={some}"],
            ["-N1", "-n1", "--gres=gpu:a:1,gpu:b:1", f"--mem={some}"],
            ["-N1", "--exclusive", f"--mem={some}"],
            ["-n", str(n), "--exclusive=user", f"--mem-per-cpu={some}"],
        )
        shares = [0.2, 0.12, 0.1, 0.1, 0.1, 0.06, 0.06, 0.06, 0.04, 0.06, 0.1]
        way = [*ways[int(rng.choice(len(ways), p=shares))], f"--uid={rng.choice(USERS[:2])}"]
        if rng.random() < 0.25:
            way.append("--partition=urgent")
        if rng.random() < 0.08:
            tasks = min(int(rng.integers(2, 5)), JOBS - jobs)
            way.append(f"--array=1-{tasks}")
            jobs += tasks - 1
        jobs += 1
        minutes = int(rng.integers(1, 4))
        runs_s = 0.5 if idle else round(minutes * 60 * rng.uniform(0.05, 0.3), 1)
        found.append((at, minutes, runs_s, way))
    return found


def submissions(seed: int) -> list[tuple[float, int, float, list[str]]]:
    """When, minutes asked for, seconds it runs, and what else is asked for."""
    rng = np.random.default_rng(seed)
    found = []
    at = 0.0
    for _ in range(JOBS):
        at += rng.exponential(0.7)
        n, c = int(rng.choice([1, 1, 2, 3, 4, 6])), int(rng.choice([1, 1, 2]))
        some = str(int(rng.choice([200, 500, 1000, 2000])))
        ways = (
            ["-n", str(n), "-c", str(c), f"--mem-per-cpu={some}"],
            ["-n", str(n), "-c", str(c), f"--mem-per-cpu={some}"],
            ["-N1", "-n", str(n), f"--mem={4 * int(some)}"],
            ["-N2", "-n", str(2 * n), f"--mem={some}"],
            ["-n", str(4 * n), f"--mem-per-cpu={some}"],
            ["-n", str(2 * n), "--ntasks-per-node=2", f"--mem-per-cpu={some}"],
            ["-N1", "-n1", "-c", str(c), "--gres=gpu:1", f"--mem={some}"],
            ["-n", str(min(n, 4)), "--gpus-per-task=1", f"--mem-per-cpu={some}"],
            ["-N1", "-n1", "--gpus=2", f"--mem-per-gpu={some}"],
            ["-N1", "--exclusive", f"--mem={some}"],
        )
        way = ways[
            int(rng.choice(len(ways), p=[0.2, 0.15, 0.15, 0.1, 0.1, 0.1, 0.08, 0.05, 0.04, 0.03]))
        ]
        minutes = int(rng.integers(1, 4))
        found.append((at, minutes, round(minutes * 60 * rng.uniform(0.05, 0.3), 1), way))
    return found


def submitted(slurm: SlurmCluster, seed: int, kind: str) -> list[dict[str, Any]]:
    """Return what became of the jobs: rows of ``squeue --json``, with how often each ran by its own note."""
    begin, ids = time.time(), set[str]()
    rng = np.random.default_rng([seed, 1])
    ran = slurm.folder / "ran"
    ran.touch()
    ran.chmod(0o666)
    for at, minutes, runs_s, way in (all_kinds if kind == "all" else submissions)(seed):
        time.sleep(max(0.0, begin + at - time.time()))
        script = f"echo $SLURM_JOB_ID >>{ran}; exec sleep {runs_s}"
        ids.add(
            slurm.say(
                "sbatch", "--parsable", f"-t{minutes}", "-o", "/dev/null", "-D", "/tmp",
                *also(kind, rng, way), "--wrap", script,
            ).strip()
        )  # fmt: skip
    slurm.wait(lambda: not slurm.say("squeue", "-h", "-t", "PD,R,CG").strip(), 1800)
    runs = Counter(ran.read_text().split())
    return [
        {**row, "runs": runs[str(row["job_id"])]}
        for row in json_rows(slurm)
        if str(row["array_job_id"] or row["job_id"]) in ids
    ]


@contextlib.contextmanager
def lacking_resources(slurm: SlurmCluster) -> Iterator[dict[str, list[float]]]:
    """Note twice a second which pending jobs may begin and lack resources: times by job."""
    found: dict[str, list[float]] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.5):
            now_s = time.time()
            for line in slurm.say("squeue", "-r", "-h", "-t", "PD", "-o", "%i %r").splitlines():
                job, _, reason = line.partition(" ")
                if reason not in ("BeginTime", "None", "Priority"):
                    found.setdefault(job, []).append(now_s)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def run(folder: Path, name: str) -> None:
    """One run, such as ``builtin.1``, ``backfill.2`` or ``lease.1``."""
    kind = name.partition(".")[0]
    leased = kind in TWINS
    by = "backfill" if leased else kind
    load = os.getloadavg()[0]
    with (
        readable_folder() as place,
        running(place, rule=leased, scheduler=by, **MACHINES.get(kind, MACHINE)) as slurm,
    ):
        twin = Beside(slurm, manager={"poll_interval": 1}) if leased else None
        try:
            if twin is not None:
                twin.begin()
            with lacking_resources(slurm) if leased else nullcontext({}) as lacking:
                rows = submitted(slurm, 1, kind)
        finally:
            if twin is not None:
                twin.end()
                with contextlib.closing(sqlite3.connect(place / "journal.sqlite")) as journal:
                    said = journal.execute(
                        "SELECT job, at_s, result, reason FROM actions"
                        " WHERE reason IS NULL OR reason NOT LIKE 'withheld%'"
                    ).fetchall()
                (folder / f"{name}.actions.json").write_text(json.dumps(said))
                for log in ("twin.log", "journal.sqlite", "slurmctld.log"):
                    shutil.copy(place / log, folder / f"{name}.{log}")
        (folder / f"{name}.lacking.json").write_text(json.dumps(lacking))
        version = slurm.say("squeue", "-V").split()[-1]
    (folder / f"{name}.json").write_text(json.dumps(rows))
    after = os.getloadavg()[0]
    print(
        f"{name}: Slurm {version}, {len(rows)} jobs, load {load:.1f} before and {after:.1f} after",
        flush=True,
    )


def specs(rows: list[dict[str, Any]]) -> list[JobSpec]:
    found = []
    for row in rows:
        asked = tasks_asked([row], SHARING, SIZES, [])
        found.append(
            JobSpec(
                id=str(row["job_id"]), submit_s=row["submit_time"], walltime_s=60 * row["time_limit"],
                **asked,
            )
        )  # fmt: skip
    return found


def starts(rows: list[dict[str, Any]]) -> np.ndarray:
    """Seconds since the first submission, by order of submission."""
    zero = min(row["submit_time"] for row in rows)
    return np.array([row["start_time"] - zero for row in rows], float)


def ours(rows: list[dict[str, Any]], policy: str) -> np.ndarray:
    asked = specs(rows)
    zero = min(spec.submit_s for spec in asked)
    chunks = (
        "tasks",
        "cores_per_task",
        "memory_gb_per_task",
        "gpus_per_task",
        "tasks_per_node",
        "exclusive",
    )
    workload = Workload.build(
        job_id=[row["job_id"] for row in rows],
        submit_s=[spec.submit_s - zero for spec in asked],
        runtime_s=[max(1, row["end_time"] - row["start_time"]) for row in rows],
        walltime_s=[spec.walltime_s for spec in asked],
        nodes=[spec.nodes for spec in asked],
        chunks={name: [float(getattr(spec, name)) for spec in asked] for name in chunks},
    )
    group = {
        "name": "a",
        "count": NODES,
        "cores": CORES,
        "gpus": GPUS,
        "memory_gb": MEMORY_MB / 1024,
    }
    result = simulate(workload, Cluster.model_validate({"nodes": [group]}), policy)
    jobs = result.jobs.sort("job_id")
    assert jobs["start_s"].null_count() == 0, jobs.filter(jobs["start_s"].is_null())
    return jobs["start_s"].to_numpy()


def differ(one: np.ndarray, other: np.ndarray) -> str:
    size = np.abs(one - other)
    return (
        f"median {np.median(size):.1f} s, p95 {np.quantile(size, 0.95):.1f} s, mean wait differs by "
        f"{abs(one.mean() - other.mean()):.1f} s"
    )


def order_of(rule: str, free: np.ndarray, room: np.ndarray, spec: JobSpec) -> list[int]:
    """Nodes in the order in which a rule goes through them.

    `tightest run` is what cons_tres does by default: of the runs of neighbouring nodes with room it takes the
    one with the fewest CPUs free that suffices (else the largest); in it, if one node can have all, that with
    the fewest free, else one after the other.
    """
    nodes = np.flatnonzero(room)
    cpus = free[:, 0]
    if rule == "first-fit":
        return nodes.tolist()
    if rule == "most packed":
        return sorted(nodes.tolist(), key=lambda i: (cpus[i], i))
    if rule == "least loaded":
        return sorted(nodes.tolist(), key=lambda i: (-cpus[i], i))
    runs = [run.tolist() for run in np.split(nodes, np.flatnonzero(np.diff(nodes) > 1) + 1)]
    found: list[int] = []
    while runs:
        left = spec.tasks - sum(int(room[i]) for i in found)

        def worth(run: list[int], left: int = left, had: int = len(found)) -> tuple[bool, float]:
            enough = room[run].sum() >= left and len(run) >= spec.nodes - had
            return (False, cpus[run].sum()) if enough else (True, -cpus[run].sum())

        best = min(runs, key=worth)
        runs.remove(best)
        alone = [i for i in best if room[i] >= left and spec.nodes - len(found) <= 1]
        found += [min(alone, key=lambda i: (cpus[i], i))] if alone else best
    return found


def chosen(rule: str, free: np.ndarray, room: np.ndarray, spec: JobSpec) -> set[int]:
    left, found = spec.tasks, set[int]()
    for node in order_of(rule, free, room, spec):
        if left > 0:
            found.add(node)
            left -= min(int(room[node]), left - max(0, spec.nodes - len(found)))
    return found


def same_nodes(rows: list[dict[str, Any]], rule: str) -> tuple[int, int]:
    """For how many starts, of those that are clear, a rule gives just the nodes that Slurm chose."""
    asked = dict(zip([row["job_id"] for row in rows], specs(rows), strict=True))
    held = {row["job_id"]: parts_held(row, SHARING) for row in rows}
    whole = np.array([CORES, MEMORY_MB / 1024, GPUS], float)
    clear = same = 0
    for row in rows:
        room = Room(Cluster.model_validate({"nodes": [{"name": "a", "count": NODES}]}))
        room.free = np.tile(whole, (NODES, 1))
        room.whole = room.free.copy()
        for other in rows:
            before = (other["start_time"], other["job_id"]) < (row["start_time"], row["job_id"])
            if before and other["end_time"] > row["start_time"]:
                parts = held[other["job_id"]]
                nodes = [int(name[1:]) - 1 for name in parts]
                amounts = np.array([(p.cores, p.memory_gb, p.gpus) for p in parts.values()])
                room.hold(
                    nodes,
                    None if asked[other["job_id"]].exclusive else amounts,
                    of=asked[other["job_id"]],
                )
        spec = asked[row["job_id"]]
        if room.place(spec) is None:
            continue  # within the same second something ended
        clear += 1
        fits = room_for(room, spec)
        real = {int(name[1:]) - 1 for name in held[row["job_id"]]}
        same += chosen(rule, room.free, fits, spec) == real
    return same, clear


def room_for(room: Room, spec: JobSpec) -> np.ndarray:
    """For how many tasks of a job each node has room."""
    there = room.eligible(spec) & ~room.alone
    if not spec.shares:
        there = there & (room.jobs == 0)
    each = np.array(spec.kinds[0].each)
    fits = np.floor((room.free[:, each > 0] / each[each > 0]).min(axis=1) + 1e-6)
    return np.where(there, np.minimum(fits, spec.tasks_per_node or spec.tasks), 0)


RULES = ("tightest run", "first-fit", "most packed", "least loaded")


def tell(folder: Path) -> None:
    for scheduler, policies in (
        ("builtin", ("fcfs+none",)),
        ("backfill", (OWN, "fcfs+conservative", "fcfs+easy")),
    ):
        if not (folder / f"{scheduler}.2.json").exists():
            continue
        first, second = (loaded(folder, f"{scheduler}.{number}") for number in (1, 2))
        print(f"sched/{scheduler}: {len(first)} jobs, mean wait {waits(first).mean():.0f} s")
        print(f"  the same submissions again: {differ(starts(first), starts(second))}")
        for policy in policies:
            for place in ("first-fit", "best-fit", "spread"):
                said = differ(ours(first, f"{policy}@{place}"), starts(first))
                print(f"  {policy}@{place}: {said}", flush=True)
        for rule in RULES:
            same, clear = same_nodes(first, rule)
            print(f"  nodes by {rule}: {same} of {clear} the same", flush=True)
    for kind, what in TWINS.items():
        if (folder / f"{kind}.1.json").exists():
            files = (folder / f"{kind}.1.{some}.json" for some in ("actions", "lacking"))
            tell_twin(
                what, loaded(folder, f"{kind}.1"), *(json.loads(one.read_text()) for one in files)
            )


def named(row: dict[str, Any]) -> str:
    """A job as users see it."""
    array = row["array_job_id"]
    return f"{array}_{row['array_task_id']}" if array else str(row["job_id"])


def tell_twin(
    what: str,
    rows: list[dict[str, Any]],
    said: list[tuple[str, float, str, str]],
    lacking: dict[str, list[float]],
) -> None:
    """What became of what a twin told."""
    starts_s = {named(row): row["start_time"] for row in rows}
    done = [(job, at_s) for job, at_s, result, _ in said if result == "done"]
    took_s = np.array([starts_s[job] - at_s for job, at_s in done])
    last_s = dict(done)
    waited = {
        job: [
            f"{named(row)} ({row['partition']}, {row['start_time'] - at_s:+.1f} s)"
            for row in rows
            if named(row) not in last_s and abs(row["start_time"] - at_s) <= PASS_S
        ]
        for job, at_s in done
        if starts_s[job] - at_s > PASS_S
        and any(at_s < seen_s < starts_s[job] for seen_s in lacking.get(job, ()))
    }
    print(
        f"{what}: {len(rows)} jobs, {sum(row['runs'] == 1 for row in rows)} of them ran once, "
        f"{sum(row['restart_cnt'] > 0 for row in rows)} requeued, "
        f"{sum(row['job_state'] != 'COMPLETED' for row in rows)} not completed; mean wait "
        f"{waits(rows).mean():.0f} s, longest {waits(rows).max():.0f} s\n  {len(said)} words for "
        f"{len(last_s)} jobs, {len(said) - len(done)} refused, "
        f"{(took_s > LATE_S).sum()} found no room within {LATE_S} s; "
        f"from word to start median {np.median(took_s):.1f} s, p90 "
        f"{np.quantile(took_s, 0.9):.1f} s, longest {took_s.max():.1f} s\n  "
        f"{len(waited)} told jobs waited for resources, and longer than {PASS_S:g} s; untold jobs that "
        f"started near the word for each: {waited}\n  {mixed(rows)} "
        "pairs of jobs of two users on a node at the same time, although one of them keeps others away"
    )
    idle_s = idle_waits(rows)
    found = [job for job, seconds in idle_s.items() if seconds > PASS_S]
    print(
        f"  beside enough idle nodes, and no other job pending: {max(idle_s.values())} s at most, "
        f"{len(found)} jobs longer than {PASS_S:g} s {found}",
        flush=True,
    )


def idle_waits(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count the seconds that jobs wait while enough nodes are idle and no job but their own array waits."""
    begin, end = min(row["submit_time"] for row in rows), max(row["end_time"] for row in rows) + 2
    used = np.zeros((end - begin, NODES), bool)
    pending = np.zeros(end - begin, int)
    for row in rows:
        nodes = [int(name[1:]) - 1 for name in expand(row["nodes"])]
        # Slurm clears nodes for a second or so.
        used[row["start_time"] - begin : row["end_time"] - begin + 2, nodes] = True
        pending[row["submit_time"] - begin : row["start_time"] - begin] += 1
    idle = NODES - used.sum(axis=1)
    found = {}
    for row in rows:
        of = row["array_job_id"] or row["job_id"]
        own = [one for one in rows if (one["array_job_id"] or one["job_id"]) == of]
        need = sum(one["node_count"] for one in own)
        found[named(row)] = sum(
            bool(idle[at - begin] >= need)
            and pending[at - begin]
            == sum(one["submit_time"] <= at < one["start_time"] for one in own)
            for at in range(row["submit_time"], row["start_time"])
        )
    return found


def mixed(rows: list[dict[str, Any]]) -> int:
    """Pairs of jobs of two users that were on one node at a time, although one of them keeps others away."""
    on = [(row, frozenset(expand(row["nodes"]))) for row in rows]
    return sum(
        one["user_name"] != other["user_name"]
        and any(
            "USER" in words(row[key]) for row in (one, other) for key in ("shared", "exclusive")
        )
        and max(one["start_time"], other["start_time"]) < min(one["end_time"], other["end_time"])
        and bool(here & there)
        for i, (one, here) in enumerate(on)
        for other, there in on[:i]
    )


def loaded(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
    return sorted(found, key=lambda row: int(row["job_id"]))


def waits(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([row["start_time"] - row["submit_time"] for row in rows], float)


if __name__ == "__main__":
    command, where, *rest = sys.argv[1:]
    Path(where).mkdir(parents=True, exist_ok=True)
    if command == "run":
        for name in rest or ("builtin.1", "builtin.2", "backfill.1", "backfill.2", "lease.1"):
            (mixed_jobs.run if name.startswith(mixed_jobs.NAMES) else run)(Path(where), name)
    else:
        tell(Path(where))
        mixed_jobs.tell(Path(where))
