"""Beside a real Slurm of 32 emulated nodes.

    python benchmarks/slurm.py [fidelity] [load] [overhead] [latency]

- fidelity: the same submissions to two Slurms at once (builtin, backfill, backfill as shipped) and to the
  simulator, by the policy that `hpctwin import` reads from slurm.conf and by others; start times job by
  job. While backfill runs, the forecasts of `hpctwin when` and of `squeue --start`, made at the same
  moments, against what came true. Some 20 minutes.
- load: processor time of slurmctld for one `squeue --start`, against one look of the twin.
- overhead: processor time of the twin beside an emulated cluster that gets 10 jobs a second.
- latency: from the submission of a job to the first line of its script, on three idle clusters of Slurm as
  shipped, one of them with a twin in charge: 20 jobs of each of `KINDS`, one after another, 7 to 8 s apart,
  then 1.2 to 2.2 s. ``latency 50`` submits 50 of each. The two clusters without a twin show by how much
  two equal Slurms differ.

Needs root and Slurm's daemons (Debian: slurmctld slurmd slurm-client munge), but for overhead.
``HPCTWIN_SLURM=26.05`` chooses the version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import beside, job_ends, readable_folder, running
from tests.rms.slurm_cluster import QUICK, SlurmCluster

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import UnreachableError
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.records.records import JobSpec
from hpctwin.rms.site_folder import import_site
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.service.when import looked_up
from hpctwin.twin.settings.config import TwinConfig

JOBS = 40
SETTINGS = {
    "builtin": ("builtin", QUICK),
    "backfill": ("backfill", f"{QUICK},bf_resolution=1"),
    "backfill, as shipped": ("backfill", ""),
}
"""Scheduler and its parameters, by what they are called."""
CLEANUP_S = 1


def quantiles(errors: np.ndarray) -> str:
    size = np.abs(errors)
    return f"median {np.median(size):.1f} s, p95 {np.quantile(size, 0.95):.1f} s, max {size.max():.1f} s"


def submissions(seed: int) -> list[tuple[float, int, int, float]]:
    """When, nodes, minutes asked for, seconds it runs."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(4.0, JOBS))
    nodes = np.clip(np.round(2 ** rng.uniform(0, 4.6, JOBS)), 1, 24).astype(int)
    minutes = rng.integers(1, 4, JOBS)
    runs = minutes * 60 * rng.uniform(0.1, 0.5, JOBS)
    return list(zip(at.tolist(), nodes.tolist(), minutes.tolist(), runs.tolist(), strict=True))


def policy_of(slurm: SlurmCluster) -> str:
    """What `hpctwin import` makes of its settings."""
    with tempfile.TemporaryDirectory() as folder:
        version = slurm.say("slurmctld", "-V").split()[-1]
        (Path(folder) / "slurm.conf").write_text(
            f"{slurm.conf.read_text()}\nSLURM_VERSION={version}\n"
        )
        site = import_site("slurm", Path(folder)).site
        assert site is not None
        return site.policy


def run_slurm(
    scheduler: str, parameters: str, watch: bool
) -> tuple[dict[str, dict[str, float]], list[tuple], str]:
    """Times of each job in a real Slurm; forecasts made meanwhile; the policy of its settings."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), scheduler=scheduler, parameters=parameters) as slurm,
    ):
        seen: dict[str, dict[str, float]] = {}
        said: list[tuple] = []
        own = policy_of(slurm)
        config = TwinConfig.of(
            {"manager": {"kind": "slurm", "conf": str(slurm.conf)}, "core": {"site_policy": own}}
        )
        manager = SlurmManager("emul", conf=slurm.conf)
        begin, asked, due = time.time(), 0.0, submissions(1)
        while due or any("end" not in job for job in seen.values()):
            while due and time.time() - begin >= due[0][0]:
                _, nodes, minutes, runs = due.pop(0)
                job_id = slurm.submit(nodes, minutes, runs)
                seen[job_id] = {"submit": time.time(), "nodes": nodes, "limit": 60.0 * minutes}
            if watch and time.time() - asked > 10 and seen:
                asked = time.time()
                said += forecasts(config, manager)
            for job_id, job in seen.items():
                if "end" not in job:
                    about = slurm.job(job_id)
                    if about["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"):
                        job["start"] = stamp(about["StartTime"])
                        job["end"] = stamp(about["EndTime"])
            time.sleep(0.3)
    return seen, said, own


def stamp(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def forecasts(config: TwinConfig, manager: SlurmManager) -> list[tuple]:
    """Job, moment, our forecast, Slurm's, for all waiting jobs."""
    theirs = manager.own_estimates()
    picture = looked_up(config, manager)
    present = picture.core.present(picture.now_s, picture.policy)
    simulation = present.fork()
    simulation.advance()
    ours = {
        present.ids[row]: ms / 1000
        for row, ms in enumerate(simulation.column("start").tolist())
        if ms >= 0
    }
    waiting = [j.spec.id for j in picture.core.mirror.jobs.values() if j.start_s is None]
    return [(i, picture.now_s, ours.get(i), theirs.get(i)) for i in waiting]


def starts(seen: dict[str, dict[str, float]]) -> np.ndarray:
    """Seconds since the first submission, by order of submission."""
    zero = min(job["submit"] for job in seen.values())
    return np.array([job["start"] for job in seen.values()]) - np.floor(zero)


def fidelity() -> None:
    for name, (scheduler, parameters) in SETTINGS.items():
        with ThreadPoolExecutor() as pool:
            watched = (name == "backfill", False)
            runs = [pool.submit(run_slurm, scheduler, parameters, watch) for watch in watched]
            (seen, said, own), (again, _, _) = (run.result() for run in runs)
        jobs = list(seen.values())
        column = {key: np.array([job[key] for job in jobs]) for key in jobs[0]}
        zero = column["submit"].min()
        workload = Workload.build(
            submit_s=np.floor(column["submit"] - zero),
            runtime_s=np.maximum(1, column["end"] - column["start"]),
            walltime_s=column["limit"],
            nodes=column["nodes"].astype(int),
        )
        real = starts(seen)
        waited = np.mean(real - (column["submit"] - zero))
        print(f"{name}: {JOBS} jobs, mean wait {waited:.0f} s")
        print(f"  the same submissions again: {quantiles(starts(again) - real)}")
        others = () if scheduler == "builtin" else ("fcfs+conservative", "fcfs+easy")
        others += (own.partition("@")[0],) if "@" in own else ()
        # Slurm takes about a second to clear a job's nodes, which adds up along a queue.
        for policy, cleanup_s in ((own, 0), (own, CLEANUP_S), *((other, 0) for other in others)):
            cluster = Cluster.uniform(32, cleanup=cleanup_s)
            which = f", cleanup {cleanup_s} s" if cleanup_s else ""
            result = simulate(workload, cluster, policy)
            start = result.jobs["start_s"].to_numpy()
            print(f"  {policy}{which}: start times differ by {quantiles(start - real)}", flush=True)
        if said:
            both = [(i, t, a, b) for i, t, a, b in said if a is not None and b is not None]
            print(
                f"  {len(said)} forecasts: {sum(a is not None for _, _, a, _ in said)} by the twin, "
                f"{sum(b is not None for _, _, _, b in said)} by squeue --start"
            )
            came = {i: job["start"] for i, job in seen.items()}
            for name, k in (("the twin", 2), ("squeue --start", 3)):
                errors = np.array([row[k] - came[row[0]] for row in both])
                print(f"  {name}: {quantiles(errors)}, over {len(both)} that both made", flush=True)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), scheduler="backfill") as slurm,
    ):
        slurm.submit(32, 60, 3000)
        for _ in range(500):
            slurm.submit(1, 10, 5)
        time.sleep(5)
        pid = int((slurm.folder / "slurmctld.pid").read_text())
        manager = SlurmManager("emul", conf=slurm.conf)
        idle = -cpu_s(pid)
        time.sleep(10)
        idle = (idle + cpu_s(pid)) / 10
        for name, ask, times in (
            ("squeue --start of one user", lambda: slurm.say("squeue", "--start"), 100),
            ("one look of the twin", manager.snapshot, 20),
        ):
            spent, began = -cpu_s(pid), time.monotonic()
            for _ in range(times):
                ask()
            took = time.monotonic() - began
            spent += cpu_s(pid) - idle * took
            print(
                f"{name}, 501 jobs: {1e3 * spent / times:.1f} ms of slurmctld, "
                f"{1e3 * took / times:.0f} ms in all",
                flush=True,
            )


def overhead(seconds: int = 60, rate: float = 10.0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        cluster = subprocess.Popen(
            [sys.executable, "-m", "hpctwin", "rms", "emulate", str(base / "socket"), "--nodes", "512",
             "--workload", "none"],
        )  # fmt: skip
        config = base / "twin.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "manager": {"kind": "emulated", "address": str(base / "socket")},
                    "act": {"mode": "act"},
                    "journal": {"path": "journal.sqlite"},
                }
            )
        )
        while True:
            try:
                manager = EmulatedManager(base / "socket")
                break
            except UnreachableError:
                time.sleep(0.2)
        twin = subprocess.Popen([sys.executable, "-m", "hpctwin", "twin", "run", "-c", str(config)])
        rng = np.random.default_rng(1)
        try:
            time.sleep(8)
            spent, began = -cpu_s(twin.pid), time.monotonic()
            for number in range(int(seconds * rate)):
                runs = float(rng.exponential(60) + 5)
                job = JobSpec(
                    id=f"j{number}", submit_s=manager.snapshot().time_s if number == 0 else 0.0,
                    nodes=int(rng.integers(1, 16)), walltime_s=2 * runs,
                )  # fmt: skip
                manager.submit(job, runs)
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
            took = time.monotonic() - began
            spent += cpu_s(twin.pid)
            snapshot = manager.snapshot()
            waiting = sum(job.start_s is None for job in snapshot.jobs)
            print(
                f"{rate:g} jobs a second for {seconds} s: {spent / took:.0%} of a core, "
                f"{waiting} waiting and {len(snapshot.jobs) - waiting} running at the end"
            )
        finally:
            twin.terminate()
            twin.wait(30)
            cluster.terminate()
            cluster.wait(30)


KINDS = {
    "modeled": ("-n1",),
    "modeled, array of two": ("-n1", "--array=1-2"),
    "left: another partition": ("-n1", "-p", "over"),
    "left: license": ("-n1", "-L", "matlab:1"),
    "left: tasks per core": ("-n1", "--ntasks-per-core=1"),
}
"""Jobs of `latency`, and whether the twin models them or leaves them to Slurm."""
APART_S = (7.0, 1.2)
"""From one submission to the next: longer than Slurm's passes are apart after a job (3 s), and shorter.

Slurm begins passes at whole seconds of its own: a second at random comes on top.
"""


@contextmanager
def idle_cluster(*, twin: bool) -> Iterator[SlurmCluster]:
    """A Slurm as shipped, of which jobs write to the file ran when they begin."""
    with readable_folder() as base:
        ran = base / "ran"
        ran.touch()
        ran.chmod(0o666)
        with running(
            base, rule=twin, events=twin, scheduler="backfill", parameters="", nodes=5, cpus=4, main="n[1-4]",
            more=("Licenses=matlab:4", "PartitionName=over Nodes=n5 OverSubscribe=FORCE:2 State=UP"),
        ) as slurm:  # fmt: skip
            manager = {"min_poll_interval": 1.0, "poll_interval": 60, "timeout": 10}
            with beside(slurm, manager=manager) if twin else nullcontext():
                yield slurm


def begin_job(slurm: SlurmCluster, kind: str) -> tuple[str, float]:
    """Submit a job that notes when it begins: its id and the time before the submission."""
    note = f"echo ${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}} $(date +%s.%N) >>{slurm.folder}/ran"
    submit_s = time.time()
    options = ["-t1", "-o", "/dev/null", "-D", "/tmp", "--wrap", note]
    return slurm.say("sbatch", "--parsable", *KINDS[kind], *options).strip(), submit_s


def waits_of(slurm: SlurmCluster, begun: list[tuple[str, float]]) -> np.ndarray:
    """Seconds from the submission of each job to its begin; to that of the last task of an array."""
    slurm.wait(lambda: job_ends(slurm, [job for job, _ in begun]), 120)
    last_s: dict[str, float] = {}
    for line in (slurm.folder / "ran").read_text().splitlines():
        job, begin_s = line.split()
        last_s[job] = max(float(begin_s), last_s.get(job, 0.0))
    return np.array([last_s[job] - submit_s for job, submit_s in begun])


def spread(seconds: np.ndarray) -> str:
    p50, p90 = np.quantile(seconds, [0.5, 0.9])
    return f"median {p50:.2f} s, p90 {p90:.2f} s, worst {seconds.max():.2f} s"


def latency(of_each: str = "20") -> None:
    kinds = int(of_each) * list(KINDS)
    with (
        idle_cluster(twin=True) as with_twin,
        idle_cluster(twin=False) as alone,
        idle_cluster(twin=False) as control,
        ThreadPoolExecutor() as pool,
    ):
        clusters = (with_twin, alone, control)
        print(f"Slurm {alone.say('squeue', '-V').split()[-1]}")
        for apart_s in APART_S:
            begun: list[list[tuple[str, float]]] = []
            rng = np.random.default_rng(1)
            before = os.getloadavg()[0]
            for kind in kinds:
                until_s = time.time() + apart_s + rng.uniform()
                # Slurm makes its passes at whole seconds: all clusters get the job at one moment.
                begun.append(list(pool.map(begin_job, clusters, 3 * [kind])))
                time.sleep(max(0.0, until_s - time.time()))
            after = os.getloadavg()[0]
            print(f"{apart_s:g} to {apart_s + 1:g} s apart, load {before:.1f} to {after:.1f}")
            waits = [
                waits_of(slurm, list(jobs))
                for slurm, jobs in zip(clusters, zip(*begun, strict=True), strict=True)
            ]
            for kind in KINDS:
                own = np.array([one == kind for one in kinds])
                twin, slurm, other = (one[own] for one in waits)
                print(f"  {kind}, {own.sum()} jobs")
                print(f"    with the twin: {spread(twin)}\n    Slurm alone: {spread(slurm)}")
                print(f"    longer with the twin by: {spread(twin - slurm)}")
                print(f"    longer on a second Slurm alone by: {spread(other - slurm)}", flush=True)


if __name__ == "__main__":
    ways = {"fidelity": fidelity, "load": load, "overhead": overhead, "latency": latency}
    asked = sys.argv[1:] or list(ways)
    for name, after in zip(asked, [*asked[1:], ""], strict=True):
        if name in ways:
            ways[name](*([after] if after.isdigit() else []))
