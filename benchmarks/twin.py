"""How fast the live twin is: `python benchmarks/twin.py [cycle] [long] [futures] [when] [redis] [memory]`.

All if none is named.

- cycle: one event taken into the mirror and all policies of the pool run ahead, and the same with the
  choice and the forecasts of all waiting jobs, no futures drawn; the ratio to a plain Python loop over the
  same number of jobs is printed beside it, as a measure of the machine.
- long: a decision with 2,000 jobs waiting on 1,000 nodes, by its parts: the mirror as a simulation, each
  policy's run in the engine, choice and forecasts, the journal.
- futures: what a decision's forecasts cost: the futures that are drawn, by the length of the queue.
- when: `hpctwin when` as a process of its own, of a job that waits and of one to come, beside a twin with
  2,000 jobs waiting whose last checkpoint is as old as it gets.
- redis: from a submission on an emulated cluster to the start of the job there, through a real Redis,
  at about 100 events a second, both as processes of their own.
- memory: resident memory of the core after 100,000 and after a million events.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hpctwin.errors import UnreachableError
from hpctwin.model import Cluster
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.manager import PlainManager
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.journal.journal import CHECKPOINT_CHARACTERS, Journal
from hpctwin.twin.service.query_socket import QuerySocket
from hpctwin.twin.service.runner import GARBAGE_AFTER, Twin
from hpctwin.twin.settings.config import CoreSettings, TwinConfig
from hpctwin.twin.what_if.pool import LocalPool

TWELVE = (
    "wfp+easy", "fcfs+easy", "sjf+easy", "expansion+easy", "smallest-area+easy", "largest+easy",
    "fcfs+easy/sjf", "wfp+easy/sjf", "fcfs+easy:2", "sjf+first-fit", "fcfs+first-fit",
    "smallest+easy",
)  # fmt: skip
NOW_S = 1_700_000_000.0


def busy_cluster(nodes: int, waiting: int, widest: int) -> Snapshot:
    """A full machine with a queue: random widths, walltimes of 1 to 120 minutes."""
    rng = np.random.default_rng(1)
    jobs: list[JobRecord] = []
    used = 0
    while True:
        width = int(rng.integers(1, widest))
        if used + width > nodes:
            break
        walltime_s = float(rng.integers(60, 7200))
        began_s = NOW_S - float(rng.integers(0, int(walltime_s)))
        names = tuple(f"n{i}" for i in range(used, used + width))
        jobs.append(
            JobRecord(
                spec=spec(len(jobs), width, walltime_s, began_s), start_s=began_s, node_names=names
            )
        )
        used += width
    for _ in range(waiting):
        submit_s = NOW_S - float(rng.integers(0, 10_000))
        width, walltime_s = int(rng.integers(1, widest)), float(rng.integers(60, 7200))
        jobs.append(JobRecord(spec=spec(len(jobs), width, walltime_s, submit_s)))
    return Snapshot(
        cluster="c",
        time_s=NOW_S,
        run="r",
        machine=Cluster.uniform(nodes),
        nodes=tuple(NodeRecord(name=f"n{i}") for i in range(nodes)),
        jobs=tuple(jobs),
    )


def spec(number: int, nodes: int, walltime_s: float, submit_s: float) -> JobSpec:
    return JobSpec(
        id=str(number),
        submit_s=submit_s,
        nodes=nodes,
        walltime_s=walltime_s,
        user=f"u{number % 20}",
    )


def cycle() -> None:
    gc.set_threshold(GARBAGE_AFTER)  # as `Twin.run` does
    print(
        "work | mirror and what-ifs, median ms | with choice and forecasts, median ms | p90 ms | in loops"
    )
    for nodes, waiting, widest, pool in (
        (32, 140, 20, CoreSettings().pool),
        (4360, 1000, 200, TWELVE),
        (4360, 1000, 1000, TWELVE),
    ):
        with closing(LocalPool(os.cpu_count() or 1)) as here:
            core = Core(CoreSettings(pool=pool, futures=0), here)
            snapshot = busy_cluster(nodes, waiting, widest)
            core.take_snapshot(snapshot)
            running = [job for job in snapshot.jobs if job.start_s is not None]
            took, looked = [], []
            look = core._look

            def timed(*arguments: object, look=look, looked=looked) -> object:
                begin = time.perf_counter()
                found = look(*arguments)
                looked[-1] += 1e3 * (time.perf_counter() - begin)
                return found

            core._look = timed  # type: ignore[method-assign,assignment]
            for seq in range(1, 41):
                job = running[seq % len(running)]
                # A job ends, so that there is a choice to make, and it is put back as it was.
                end = ev.JobEnded(cluster="c", run="r", seq=seq, time_s=NOW_S, job_id=job.spec.id)
                begin = time.perf_counter()
                core.take_event(end)
                looked.append(1e3 * (time.perf_counter() - begin))
                decision = core.decide(NOW_S)
                took.append(1e3 * (time.perf_counter() - begin))
                assert decision is not None
                assert decision.free_nodes >= len(job.node_names)
                whole = snapshot.model_copy(update={"seq": seq})
                core.take_snapshot(whole)
            size = len(snapshot.jobs)
            begin = time.perf_counter()
            for _ in range(100):
                sum(i for i in range(size))
            loop_ms = 10 * (time.perf_counter() - begin)
        median, p90 = np.median(took[2:]), np.quantile(took[2:], 0.9)
        name = f"{len(pool)} policies, {nodes} nodes, {waiting} waiting, {len(running)} running"
        look_ms = np.median(looked[2:])
        print(
            f"{name} | {look_ms:.2f} | {median:.2f} | {p90:.2f} | {median / loop_ms:.0f}",
            flush=True,
        )


def long_queue(nodes: int = 1000, waiting: int = 2000) -> None:
    """A decision with a long queue, by its parts; processor time beside wall-clock time."""
    gc.set_threshold(GARBAGE_AFTER)  # as `Twin.run` does
    snapshot = busy_cluster(nodes, waiting, nodes // 20)
    running = [job for job in snapshot.jobs if job.start_s is not None]
    with (
        closing(LocalPool(2)) as here,
        tempfile.TemporaryDirectory() as name,
        closing(Journal(Path(name) / "j.sqlite")) as journal,
    ):
        core = Core(CoreSettings(futures=0), here)
        core.warm_up()
        core.take_snapshot(snapshot)
        parts: dict[str, list[float]] = {}

        def timed(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
            wall, used = time.perf_counter(), time.process_time()
            found = function(*arguments)
            parts.setdefault(what, []).append(1e3 * (time.perf_counter() - wall))
            parts.setdefault(f"{what}, processor", []).append(1e3 * (time.process_time() - used))
            return found

        def record(decision: Decision) -> None:
            with journal.writing():
                row = journal.input("decide", "{}", NOW_S)
                journal.decision(decision, input_id=row, at_s=NOW_S, took_ms=0.0, approval=None)

        for seq in range(1, 22):
            job = running[seq % len(running)]
            end = ev.JobEnded(cluster="c", run="r", seq=seq, time_s=NOW_S, job_id=job.spec.id)
            timed("event", core.take_event, end)
            decision = timed("decision", core.decide, NOW_S)
            assert decision.waiting == waiting
            timed("journal", record, decision)
            now = timed("of it: mirror as a simulation", core.present, NOW_S)
            for policy in core.pool:
                future = now.fork(policy)
                timed(f"of it: {policy.name} in the engine", future.advance)
            core.take_snapshot(snapshot.model_copy(update={"seq": seq}))
    print(
        f"{nodes} nodes, {len(running)} running, {waiting} waiting, 3 policies: median ms, best ms"
    )
    for what, took in parts.items():
        print(f"{what} | {np.median(took[2:]):.1f} | {min(took):.1f}", flush=True)


def futures() -> None:
    """The futures that forecasts are made of; least processor time of five."""
    print("nodes | waiting | all of a decision under one policy, ms | futures of it, ms")
    for nodes, waiting, widest in ((32, 140, 20), (1000, 2000, 50), (4360, 1000, 200)):
        core = Core(CoreSettings(pool=("fcfs+easy",)))
        core.take_snapshot(busy_cluster(nodes, waiting, widest))
        rng = np.random.default_rng(2)
        for number in range(500):
            done = spec(10**6 + number, int(rng.integers(1, widest)), 3600.0, NOW_S - number)
            job = JobRecord(spec=done, start_s=NOW_S - 4000)
            core.expectations.saw_submission(done)
            core.expectations.saw_end(job, NOW_S - 4000 + float(rng.integers(10, 3600)))
        jobs = list(core.mirror.jobs.values())
        took: dict[str, list[float]] = {"all": [], "futures": []}
        for seed in range(6):
            begin = time.process_time()
            core.decide(NOW_S)
            took["all"].append(1e3 * (time.process_time() - begin))
            begin = time.process_time()
            core.draw(jobs, NOW_S, core.pool[0], seed)
            took["futures"].append(1e3 * (time.process_time() - begin))
        least = {name: min(ms[1:]) for name, ms in took.items()}
        print(f"{nodes} | {waiting} | {least['all']:.0f} | {least['futures']:.0f}", flush=True)


class Silent(PlainManager):
    """A resource manager that is not asked for anything but a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__("c")
        self._snapshot = snapshot

    def snapshot(self) -> Snapshot:
        """All that there is."""
        return self._snapshot


def when(waiting: int = 2000, times: int = 7) -> None:
    """`hpctwin when` beside a running twin."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body = {
            "manager": {"kind": "emulated", "address": "none"},
            "core": {"site_policy": "fcfs+easy"},
            "journal": {"path": "j.sqlite"},
        }
        (folder / "twin.yaml").write_text(yaml.safe_dump(body))
        config = TwinConfig.from_yaml(folder / "twin.yaml")
        snapshot = busy_cluster(1000, waiting, 50)
        bus = LocalBus()
        with (
            closing(Journal(config.journal.path)) as journal,
            closing(QuerySocket(journal.path)) as queries,
        ):
            twin = Twin(config, Silent(snapshot), bus, journal, queries=queries)
            twin.begin()
            for _ in range(5):
                twin.turn(0.0)
            last = snapshot.jobs[-1].spec
            seq = 0
            while journal._since_checkpoint < 0.8 * CHECKPOINT_CHARACTERS:
                for _ in range(100):
                    seq += 1
                    changed = last.model_copy(update={"priority": float(seq)})
                    about = {"cluster": "c", "run": "r", "seq": seq, "time_s": NOW_S}
                    bus.publish(ev.JobModified(job=changed, **about))
                twin.turn(0.0)
            for what, arguments in (
                ("a job that waits", [last.id]),
                ("a job to come", ["--nodes", "16", "--walltime", "2h"]),
            ):
                took, used = [], []
                for _ in range(times):
                    with journal.writing():
                        twin.status_writer.write()
                    before, begin = os.times(), time.perf_counter()
                    command = [sys.executable, "-m", "hpctwin", "when", *arguments, "--json"]
                    asking = subprocess.Popen(
                        [*command, "-c", f"{folder}/twin.yaml"], stdout=subprocess.PIPE
                    )
                    while asking.poll() is None:
                        twin.turn(0.02)
                    said = asking.communicate()[0]
                    took.append(time.perf_counter() - begin)
                    after = os.times()
                    used.append(
                        after.children_user + after.children_system
                        - before.children_user - before.children_system
                    )  # fmt: skip
                    assert b"the running twin" in said, said
                print(
                    f"when, {waiting} waiting, {seq} events since the checkpoint, {what}: "
                    f"median {np.median(took):.2f} s, best {min(took):.2f} s, "
                    f"processor {np.median(used):.2f} s",
                    flush=True,
                )


def redis(seconds: float = 30.0) -> None:
    if shutil.which("redis-server") is None:
        sys.exit("redis-server is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"unix://{folder}/redis.sock"
        address = folder / "c.sock"
        config = {
            "manager": {"kind": "emulated", "address": str(address)},
            "bus": {"kind": "redis", "url": url, "stream": "events"},
            "act": {"mode": "act", "starts_per_minute": 1_000_000},
        }
        (folder / "twin.yaml").write_text(yaml.safe_dump(config))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            f"{folder}/redis.sock",
            "--save",
            "",
        ]
        emulated = [
            sys.executable, "-m", "hpctwin", "rms", "emulate", str(address), "--workload", "none",
            "--nodes", "200", "--redis", url, "--stream-name", "events", "--history", "--wait",
        ]  # fmt: skip
        twin = [sys.executable, "-m", "hpctwin", "twin", "run", "-c", f"{folder}/twin.yaml"]
        processes = [subprocess.Popen(server, cwd=folder, **quiet)]
        try:
            time.sleep(0.5)
            processes.append(subprocess.Popen(emulated, **quiet))
            manager = connected(address)
            processes.append(subprocess.Popen(twin, cwd=folder, **quiet))
            while manager.snapshot().own_scheduling:
                time.sleep(0.05)
            time.sleep(1.0)
            rng = np.random.default_rng(1)
            begin, jobs = time.monotonic(), 0
            while time.monotonic() - begin < seconds:
                one = JobSpec(id=str(jobs), submit_s=0, nodes=1, walltime_s=60).model_dump()
                del one["submit_s"]
                manager.ask("submit", job=one, runtime_s=float(rng.uniform(1, 3)))
                jobs += 1
                time.sleep(max(0.0, begin + jobs / 34 - time.monotonic()))
            time.sleep(4)
            state = manager.ask("state", history=True)
            manager.close()
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(10)
    submitted = {i: t for t, i, what in state["history"] if what == "submitted"}
    waits = [1e3 * (t - submitted[i]) for t, i, what in state["history"] if what == "started"]
    assert len(waits) == jobs
    assert not state["own_scheduling"]
    rate = state["seq"] / seconds
    p50, p99 = np.quantile(waits, [0.5, 0.99])
    print(
        f"submission to start through Redis, {rate:.0f} events/s, {jobs} jobs: "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {max(waits):.1f} ms",
        flush=True,
    )


def connected(address: Path) -> EmulatedManager:
    for _ in range(200):
        try:
            return EmulatedManager(address)
        except UnreachableError:
            time.sleep(0.05)
    sys.exit("the emulated cluster does not answer")


def memory() -> None:
    core = Core(CoreSettings())
    core.take_snapshot(busy_cluster(32, 0, 2).model_copy(update={"jobs": ()}))
    seq = number = 0
    begin = time.perf_counter()
    for bound in (100_000, 500_000, 1_000_000):
        while seq < bound:
            number += 1
            job_id, now_s = str(number), NOW_S + number
            for kind, about in (
                (ev.JobSubmitted, {"job": spec(number, 1, 60.0, now_s)}),
                (ev.JobStarted, {"job_id": job_id, "node_names": ("n0",)}),
                (ev.JobEnded, {"job_id": job_id}),
            ):
                seq += 1
                core.take_event(
                    kind(cluster="c", run="r", seq=seq, time_s=now_s, **about)  # type: ignore[arg-type]
                )
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        micro = 1e6 * (time.perf_counter() - begin) / seq
        print(
            f"after {seq:,} events: {resident / 2**20:.0f} MiB, {micro:.0f} µs an event", flush=True
        )
    assert core.mirror.needs_snapshot is None


if __name__ == "__main__":
    parts = {
        "cycle": cycle,
        "long": long_queue,
        "futures": futures,
        "when": when,
        "redis": redis,
        "memory": memory,
    }
    for part in sys.argv[1:] or parts:
        parts[part]()
