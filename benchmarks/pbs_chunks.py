"""Where a real OpenPBS puts chunks of several kinds, beside where we do.

    python benchmarks/pbs_chunks.py run FOLDER USER [SEEDS]
    python benchmarks/pbs_chunks.py tell FOLDER

- run: as root on the host of an idle PBS of one's own, whose vnodes have several cores and are shared: with
  scheduling off, 18 jobs are submitted as USER, then one cycle starts those that fit; where they lie is
  written to FOLDER, for each of so many seeds (20), and the jobs are deleted. Some 15 s each.
- tell: how many lie on the same vnodes, with the same of each, under ``fcfs+first-fit@first-fit``. Once one
  lies elsewhere, those after it find other room, so they are counted up to the first.

Written for vnodes of 8 cores and 16 GB, three of twelve with 32 cores, 64 GB and four GPUs (`ngpus`, which
sched_config lists in its `resources`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin import Cluster, Simulation, Workload
from hpctwin.model import Category
from hpctwin.rms.pbs.request import memory_gb, parse_select
from hpctwin.rms.pbs.sharing import Sharing, parts_held, tasks_asked

JOBS = 18
WALLTIME_S = 1200


def say(*words: str) -> str:
    """What a command prints."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def chunk(rng: np.random.Generator) -> str:
    """So many equal chunks of a select."""
    kind = rng.random()
    if kind < 0.2:
        return f"{rng.choice([1, 1, 2])}:ncpus={rng.choice([1, 2, 8, 16])}:ngpus={rng.choice([1, 1, 2])}"
    if kind < 0.4:
        return f"{rng.integers(1, 4)}:ncpus={rng.integers(1, 4)}:mem={rng.choice([1, 2, 4])}gb"
    return f"{rng.choice([1, 1, 2, 3, 4])}:ncpus={rng.choice([1, 1, 2, 3, 4, 6, 8])}"


def submitted(seed: int, user: str) -> list[tuple[str, str, str]]:
    """Submit jobs; id, select and place of each."""
    rng = np.random.default_rng(seed)
    qsub = shutil.which("qsub") or "qsub"
    found = []
    for _ in range(JOBS):
        select = "+".join(chunk(rng) for _ in range(rng.choice([1, 2, 2, 2, 3, 3])))
        place = str(
            rng.choice(["free", "scatter", "pack", "scatter:excl"], p=[0.5, 0.25, 0.2, 0.05])
        )
        asked = ["-l", f"select={select}", "-l", f"place={place}", "-l", f"walltime={WALLTIME_S}"]
        quiet = ["-o", "/dev/null", "-e", "/dev/null", "--", "/bin/sleep", str(WALLTIME_S)]
        found.append(
            (say("runuser", "-u", user, "--", qsub, *asked, *quiet).strip(), select, place)
        )
    return found


def started() -> tuple[str, int]:
    """What qstat says when no more jobs start, and how many run."""
    before, qstat = 0, ""
    for _ in range(60):
        time.sleep(3)
        qstat = say("qstat", "-f", "-F", "json")
        running = qstat.count('"exec_vnode"')
        if running and running == before:
            break
        before = running
    return qstat, before


def run(folder: Path, user: str, seeds: int) -> None:
    """Have PBS place the jobs of each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    say("qmgr", "-c", "set server backfill_depth=0")
    for seed in range(1, seeds + 1):
        say("qmgr", "-c", "set server scheduling=false")
        jobs = submitted(seed, user)
        say("qmgr", "-c", "set server scheduling=true")
        qstat, running = started()
        nodes = json.loads(say("pbsnodes", "-av", "-F", "json"))["nodes"]
        kept = {"jobs": jobs, "qstat": json.loads(qstat)["Jobs"], "nodes": nodes}
        (folder / f"{seed}.json").write_text(json.dumps(kept))
        say("qdel", "-W", "force", *(job for job, _, _ in jobs))
        time.sleep(2)
        print(f"seed {seed}: {running} of {len(jobs)} run", flush=True)


def ours(jobs: list[tuple[str, str, str]], nodes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Cores, memory and GPUs that we give each job of each vnode at once."""
    has = {name: row["resources_available"] for name, row in nodes.items()}
    has = {name: row for name, row in has.items() if int(row["ncpus"])}
    groups = [
        {"name": name, "count": 1, "cores": int(row["ncpus"]), "memory_gb": memory_gb(row["mem"]),
         "gpus": int(row.get("ngpus", 0))}
        for name, row in has.items()
    ]  # fmt: skip
    asks = [tasks_asked(parse_select(select), place, Sharing(), []) for _, select, place in jobs]
    names = (
        "tasks",
        "cores_per_task",
        "memory_gb_per_task",
        "gpus_per_task",
        "tasks_per_node",
        "exclusive",
    )
    workload = Workload.build(
        submit_s=[0] * len(jobs),
        runtime_s=[WALLTIME_S] * len(jobs),
        nodes=[ask["nodes"] for ask in asks],
        chunks={name: [float(ask[name]) for ask in asks] for name in names},
        more_tasks=Category.of([ask["more_tasks"] or None for ask in asks]),
    )
    cluster = Cluster.model_validate({"nodes": groups})
    placed = (
        Simulation(workload, cluster, "fcfs", "first-fit", placement="first-fit").run().placements
    )
    assert placed is not None
    found: dict[str, dict[str, Any]] = {}
    for row in placed.filter(placed["start_s"] == 0).iter_rows(named=True):
        job, _, place = jobs[row["job_id"] - 1]
        held = None if "excl" in place else (row["cores"], row["memory_gb"], row["gpus"])
        found.setdefault(job, {})[groups[row["node"]]["name"]] = held
    return found


def tell(folder: Path) -> None:
    """Compare what was kept."""
    counted: Counter[str] = Counter()
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text())
        mine = ours(kept["jobs"], kept["nodes"])
        for job, select, place in kept["jobs"]:
            held = parts_held(str(kept["qstat"][job].get("exec_vnode", "")))
            theirs = {
                name: None if "excl" in place else (part.cores, part.memory_gb, part.gpus)
                for name, part in held.items()
            }
            if theirs != mine.get(job, {}):
                print(f"seed {path.stem}: {select} {place}\n  PBS {theirs}\n  we  {mine.get(job)}")
                counted["seeds with a job elsewhere"] += 1
                break
            several = len({part.partition(":")[2] for part in select.split("+")}) > 1
            kind = "of several kinds of chunks" if several and place != "pack" else "of one kind"
            counted[f"{'on the same vnodes' if theirs else 'waiting'}, {kind}"] += 1
        counted["seeds"] += 1
    for what, number in sorted(counted.items()):
        print(f"{what}: {number}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(Path(sys.argv[2]), sys.argv[3], int((sys.argv[4:] or ["20"])[0]))
    else:
        tell(Path(sys.argv[2]))
