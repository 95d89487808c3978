"""Where a real OpenPBS puts chunks of several kinds, beside where we do.

    python benchmarks/pbs_chunks.py run FOLDER USER [SEEDS]
    python benchmarks/pbs_chunks.py tell FOLDER
    python benchmarks/pbs_chunks.py act FOLDER USER [lease | start] [JOBS] [POLICY]
    python benchmarks/pbs_chunks.py told FOLDER

- run: as root on the host of an idle PBS of one's own, whose vnodes have several cores and are shared: with
  scheduling off, 18 jobs are submitted as USER, then one cycle starts those that fit; where they lie is
  written to FOLDER, for each of so many seeds (20), and the jobs are deleted. Some 15 s each.
- tell: how many lie on the same vnodes, with the same of each, under ``fcfs+first-fit@first-fit``. Once one
  lies elsewhere, those after it find other room, so they are counted up to the first.
- act: as root there too: with the hook and a twin that acts, so many jobs (300) of some seconds are submitted
  within some minutes, and chosen under a policy (fcfs+first-fit@first-fit); what the twin told and what PBS
  did is written to FOLDER.
- told: what PBS refused, what it did not start when told, and how many lie where the twin's picture had them
  when it chose them.

Written for vnodes of 8 cores and 16 GB, three of twelve with 32 cores, 64 GB and four GPUs (`ngpus`, which
sched_config lists in its `resources`). If vnodes have a resource `rack` (``create resource rack
type=string_array,flag=h``), half of the jobs ask for vnodes of one, ``place=…:group=rack``. If they have
800 GB each of a resource `scratch` and some have two `fpga` (``type=size`` and ``type=long``, ``flag=nh``),
half of the chunks of `act` ask for some.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hpctwin import Cluster, Simulation, Workload
from hpctwin.model import Category
from hpctwin.model.requests.pbs_requests import memory_gb, parse_select
from hpctwin.rms.commands import Commands
from hpctwin.rms.node_capacity import Room, amounts_held
from hpctwin.rms.pbs.install import HookSettings, install, uninstall
from hpctwin.rms.pbs.leasing import lifting_file
from hpctwin.rms.pbs.listing.jobs import Sharing, parts_held, tasks_asked
from hpctwin.rms.pbs.listing.node_attributes import SiteResources
from hpctwin.rms.pbs.listing.parse import cluster_snapshot
from hpctwin.rms.records.records import JobSpec
from hpctwin.simulation.lowering.shared_nodes import taken_by
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.journal import Input
from hpctwin.twin.journal.restore import apply_input
from hpctwin.twin.settings.config import TwinConfig

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


def submitted(seed: int, user: str, *, racks: bool) -> list[tuple[str, str, str]]:
    """Submit jobs; id, select and place of each."""
    rng = np.random.default_rng(seed)
    qsub = shutil.which("qsub") or "qsub"
    found = []
    for _ in range(JOBS):
        select = "+".join(chunk(rng) for _ in range(rng.choice([1, 2, 2, 2, 3, 3])))
        place = str(
            rng.choice(["free", "scatter", "pack", "scatter:excl"], p=[0.5, 0.25, 0.2, 0.05])
        )
        if racks and rng.random() < 0.5:
            place += ":group=rack"
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
    racks = "resources_available.rack" in say("pbsnodes", "-av")
    for seed in range(1, seeds + 1):
        say("qmgr", "-c", "set server scheduling=false")
        jobs = submitted(seed, user, racks=racks)
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
         "gpus": int(row.get("ngpus", 0)), "features": [f"rack={row['rack']}"] if "rack" in row else []}
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
        group_by=Category.of(["rack" if "group=" in place else None for _, _, place in jobs]),
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
            kind = (
                "of several kinds of chunks" if several and "pack" not in place else "of one kind"
            )
            kind += ", of one rack" if "group=" in place else ""
            counted[f"{'on the same vnodes' if theirs else 'waiting'}, {kind}"] += 1
        counted["seeds"] += 1
    for what, number in sorted(counted.items()):
        print(f"{what}: {number}")


# --- a twin that acts ----------------------------------------------------------------------------------

MORE = ("", "", "", ":scratch=100gb", ":scratch=300gb", ":fpga=1")
LATE_S = 5.0
"""Who is told to start and does not within so long found no room."""
ACTING_S = 3600.0
"""All is over after so long at most."""
Where = dict[str, tuple[float, ...] | None]
"""Cores, memory and GPUs of each vnode; None for all of it."""


def wait_for(what: str, is_so: Callable[[], bool], most_s: float) -> None:
    """Wait for a condition."""
    end = time.monotonic() + most_s
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"not within {most_s:g} s: {what}")
        time.sleep(0.5)


@contextlib.contextmanager
def twin(folder: Path, by: str, policy: str) -> Iterator[None]:
    """The hook, and a twin that acts."""
    spool, heartbeat = folder / "events.jsonl", folder / "alive"
    bin_folder = str(Path(shutil.which("qstat") or "qstat").parent)
    settings = {
        "manager": {
            "kind": "pbs", "folder": bin_folder, "heartbeat": str(heartbeat), "min_poll_interval": "1s",
            "timeout": "60s", "events": {"spool": str(spool)},
        },
        "core": {"pool": [policy], "futures": 0, "retry_after": "10s"},
        "act": {"mode": "act", "by": by},
        "journal": {"path": str(folder / "journal.sqlite"), "checkpoint_interval": 1_000_000},
        "threads": 1,
    }  # fmt: skip
    (folder / "twin.yaml").write_text(yaml.safe_dump(settings))
    hook = HookSettings(spool, heartbeat)
    install(Commands(bin_folder, timeout_s=60.0), hook, folder / "hook.py", lambda said: None)
    command = [sys.executable, "-m", "hpctwin", "twin", "run", "-c", str(folder / "twin.yaml")]
    with (folder / "twin.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for("the twin is in charge", heartbeat.exists, 300.0)
        wait_for("the hook shows life", lifting_file(heartbeat).exists, 60.0)
        yield
    finally:
        process.terminate()
        process.wait(120)
        uninstall(Commands(bin_folder, timeout_s=60.0), lambda said: None)


def act(
    folder: Path,
    user: str,
    by: str = "lease",
    jobs: str = "300",
    policy: str = "fcfs+first-fit@first-fit",
) -> None:
    """Have a twin start jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("journal.sqlite*"), *folder.glob("alive*"), *folder.glob("events*")):
        old.unlink()
    say("qmgr", "-c", "set server job_history_enable = true")
    rng = np.random.default_rng(1)
    qsub = shutil.which("qsub") or "qsub"
    ids = []
    room = Room(machine())
    uses_up = "scratch" in room.names
    with twin(folder, by, policy):
        for _ in range(int(jobs)):
            time.sleep(rng.exponential(0.6))
            place = str(rng.choice(["free", "scatter", "pack"], p=[0.55, 0.25, 0.2]))
            select = some_chunks(rng, uses_up)
            while not can_run(select, place, room):
                select = some_chunks(rng, uses_up)
            runs_s = int(rng.integers(4, 25))
            asked = [
                "-l",
                f"select={select}",
                "-l",
                f"place={place}",
                "-l",
                f"walltime={2 * runs_s}",
            ]
            quiet = ["-o", "/dev/null", "-e", "/dev/null", "--", "/bin/sleep", str(runs_s)]
            ids.append(say("runuser", "-u", user, "--", qsub, *asked, *quiet).strip())
        wait_for("all jobs are over", lambda: not say("qselect").strip(), ACTING_S)
    rows = json.loads(say("qstat", "-x", "-f", "-F", "json"), strict=False)["Jobs"]
    (folder / "acted.json").write_text(json.dumps({job_id: rows[job_id] for job_id in ids}))
    told(folder)


def some_chunks(rng: np.random.Generator, uses_up: bool) -> str:
    """A select of one to three kinds of chunks, some with what vnodes have besides."""
    chunks = [chunk(rng) for _ in range(rng.choice([1, 2, 2, 3]))]
    return "+".join(one + str(rng.choice(MORE)) for one in chunks) if uses_up else "+".join(chunks)


def machine() -> Cluster:
    """The vnodes, as the twin sees them."""
    resources = SiteResources(Commands(timeout_s=60.0))
    resources.ask(0.0)
    asked = ("qstat -f -t", "pbsnodes -a -v", "qstat -Q -f")
    said = (say(*words.split(), "-F", "json").encode() for words in asked)
    used_up = resources.consumables()
    return cluster_snapshot(*said, b"", time.time(), used_up=used_up).snapshot.machine


def can_run(select: str, place: str, room: Room) -> bool:
    """Whether the empty vnodes have room for all of it."""
    sharing = Sharing(consumables=frozenset(room.names))
    ask = tasks_asked(parse_select(select), place, sharing, [])
    spec = JobSpec(id="1", submit_s=0.0, walltime_s=WALLTIME_S, partition="workq", **ask)
    return room.place(spec, empty=True) is not None


def places(core: Core, now_s: float) -> dict[str, Where]:
    """Where the twin's picture has the jobs that are started now."""
    now = core.present(now_s)
    run = now.fork()
    names = list(core.mirror.nodes)
    found: dict[str, Where] = {}
    for row in now.given_nodes(run).tolist():
        spec = core.mirror.jobs[now.ids[row]].spec
        taken = taken_by(run.state, row)
        held = [None] * len(taken) if spec.exclusive else amounts_held(spec, taken).tolist()
        found[spec.id] = {
            names[node]: None if amounts is None else tuple(round(a, 6) for a in amounts)
            for (node, _), amounts in zip(taken, held, strict=True)
        }
    return found


def chosen(journal: sqlite3.Connection) -> dict[str, Where]:
    """Where each job was to lie when it was told to start, by the inputs of the journal once more."""
    settings = journal.execute("SELECT body FROM settings").fetchone()[0]
    core = Core(TwinConfig.of(json.loads(settings)).core)
    rows = journal.execute("SELECT id, at_s, kind, body FROM inputs ORDER BY id")
    found: dict[str, Where] = {}
    last: dict[str, Where] = {}
    for one in (Input(*row) for row in rows if row[2] != "checkpoint"):
        if one.kind == "decide":
            last = places(core, json.loads(one.body)["now_s"])
        elif one.kind == "asked":
            job_id = json.loads(one.body)["job_id"]
            found[job_id] = last[job_id]
        apply_input(core, one)
    return found


def told(folder: Path) -> None:
    """What became of what the twin told."""
    rows = json.loads((folder / "acted.json").read_text())
    with contextlib.closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        actions = journal.execute("SELECT job, at_s, result, reason FROM actions").fetchall()
        where = chosen(journal)
    counted = Counter(
        result if result == "done" else f"{result}: {reason}" for _, _, result, reason in actions
    )
    times = Counter(job for job, _, result, _ in actions if result == "done")
    ran = Counter(row.get("run_count", 0) for row in rows.values())
    print(f"{len(rows)} jobs, {len(times)} of them told to start; runs of each: {dict(ran)}")
    print(f"actions: {dict(counted)}; told more than once: {sum(n > 1 for n in times.values())}")
    waited_s = np.array(
        [
            time.mktime(time.strptime(rows[job]["stime"], "%a %b %d %H:%M:%S %Y")) - at_s
            for job, at_s, result, _ in actions
            if result == "done" and "stime" in rows[job]
        ]
    )
    print(
        f"from word to start: median {np.median(waited_s):.1f} s, p90 {np.quantile(waited_s, 0.9):.1f} s, "
        f"longest {waited_s.max():.1f} s; {(waited_s > LATE_S).sum()} later than {LATE_S:g} s"
    )
    same: Counter[str] = Counter()
    for job_id, row in rows.items():
        theirs = {
            name: (part.cores, part.memory_gb, part.gpus)
            for name, part in parts_held(str(row.get("exec_vnode", ""))).items()
        }
        mine = where.get(job_id)
        several = "+" in row["Resource_List"]["select"]
        kind = "with chunks of several kinds" if several else "with chunks of one kind"
        equal = mine is not None and mine.keys() == theirs.keys() and all(
            np.allclose(mine[name], part, atol=2e-6) for name, part in theirs.items()
        )  # fmt: skip
        same[f"{'where told' if equal else 'elsewhere'}, {kind}"] += 1
        if not equal:
            print(f"{job_id} {row['Resource_List']['select']}\n  PBS {theirs}\n  we  {mine}")
    for what, number in sorted(same.items()):
        print(f"{what}: {number}")


if __name__ == "__main__":
    what, path, *more = sys.argv[1:]
    if what == "run":
        run(Path(path), more[0], int((more[1:] or ["20"])[0]))
    elif what == "act":
        act(Path(path).resolve(), *more)
    elif what == "told":
        told(Path(path))
    else:
        tell(Path(path))
