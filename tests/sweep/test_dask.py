"""Sweeps on Dask's workers: the same rows as here, whoever dies in between."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from hpctwin.cli import main
from hpctwin.errors import ConfigError, UnknownNameError, UnreachableError
from hpctwin.sweep import on_dask, sweep
from hpctwin.sweep.on_dask import OnDask, connected, jobqueue
from tests.rms.beside_slurm import running
from tests.rms.slurm_roots import NEWEST
from tests.sweep.test_sweep import SMALL, same

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own

VARIED: dict[str, Any] = {**SMALL, "seeds": 6, "loads": [0.6, 0.9]}
BOUND_S = 120


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as made:
        yield made


def test_rows_are_the_same_as_here_bit_for_bit(cluster: LocalCluster, tmp_path: Path) -> None:
    with Client(cluster) as client:
        there = sweep(**VARIED, where=partial(OnDask, client=client), out=tmp_path / "out")
    here = sweep(**VARIED, workers=1)
    assert len(there.table) == 24
    same(here.table, there.table.select(here.table.columns))


def test_a_worker_killed_in_the_middle_loses_nothing(cluster: LocalCluster) -> None:
    killed: list[int] = []

    def kill(now: Any) -> None:
        if not killed and now.done >= 2:
            victim = client.run(os.getpid).popitem()[1]
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    with Client(cluster) as client:
        there = sweep(**VARIED, where=partial(OnDask, client=client), progress=kill)
    assert killed
    assert not len(there.failed)
    same(sweep(**VARIED, workers=1).table, there.table)


def test_a_missing_worker_is_reported_and_the_sweep_continues_with_the_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "ALONE_S", 0.0)
    told = "Dask has no worker yet; points wait for one"
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as alone,
        Client(alone) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        running = threads.submit(partial(sweep, **SMALL, where=partial(OnDask, client=client)))
        until(lambda: told in caplog.messages)
        assert not running.done()
        alone.scale(1)
        assert not len(running.result().failed)


def test_a_sweep_with_a_killed_scheduler_is_continued(tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed: list[int] = []
    with AScheduler(tmp_path / "one") as (process, file), connected(scheduler_file=file) as client:

        def kill(now: Any) -> None:
            if not killed and now.done >= 2:
                process.kill()
                killed.append(now.done)

        with pytest.raises(UnreachableError, match="the same command continues"):
            sweep(**VARIED, where=partial(OnDask, client=client), progress=kill, out=out)
    assert killed
    with AScheduler(tmp_path / "two") as (_, file), connected(scheduler_file=file) as client:
        first: list[int] = []
        there = sweep(
            **VARIED,
            where=partial(OnDask, client=client),
            out=out,
            progress=lambda now: first.append(now.done),
        )
    assert first[0] > killed[0]
    here = sweep(**VARIED, workers=1)
    same(here.table, there.table.select(here.table.columns))


class AScheduler:
    """A scheduler and a worker, each a process; the folder has the scheduler's file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> tuple[subprocess.Popen[bytes], Path]:
        self.folder.mkdir()
        file = self.folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start("scheduler", "--host 127.0.0.1 --port 0 --no-dashboard", file)
        until(lambda: _is_written(file))
        self.start("worker", "--nthreads 1 --no-nanny --no-dashboard --death-timeout 120", file)
        return self.processes[0], file

    def start(self, what: str, options: str, file: Path) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options.split()]
        with (self.folder / f"{what}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [*command, "--scheduler-file", file], cwd=self.folder, stdout=log, stderr=log
                )
            )

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


def _is_written(file: Path) -> bool:
    """The scheduler makes the file before it has written it."""
    try:
        return "address" in json.loads(file.read_text())
    except (OSError, ValueError):
        return False


def test_an_unreachable_one_is_reported(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    nothing = tmp_path / "nothing.json"
    with (
        pytest.raises(ConfigError, match=r"nothing\.json: no scheduler wrote this file"),
        connected(scheduler_file=nothing),
    ):
        pass
    for text in ("name: cluster\n", '{"adress": "tcp://127.0.0.1:9"}', '["tcp://127.0.0.1:9"]'):
        other = tmp_path / "other.json"
        other.write_text(text)
        with (
            pytest.raises(ConfigError, match=r"other\.json: not a file of `dask scheduler --sch"),
            connected(scheduler_file=other),
        ):
            pass
    with (
        pytest.raises(
            ConfigError, match=r"scheduler at tcp://me@127\.0\.0\.1:9: address is invalid"
        ),
        connected("tcp://me:secret@127.0.0.1:9", wait_s=0.5),
    ):
        pass
    with (
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9 does not answer"),
        connected("tcp://127.0.0.1:9", wait_s=0.5),
    ):
        pass
    with (
        pytest.raises(UnknownNameError, match=r"'coers'\. Did you mean 'cores'"),
        jobqueue("slurm", 1, {"coers": 4}),
    ):
        pass
    for name, value in (("cores", "four"), ("cores", 0), ("processes", 1.5)):
        with (
            pytest.raises(ConfigError, match=f"{name} is {value!r}; it must be a whole number"),
            jobqueue("pbs", 1, {name: value}),
        ):
            pass
    with pytest.raises(ConfigError, match="much"), jobqueue("slurm", 1, {"memory": "much"}):
        pass
    # Nothing half made is left that would warn when it is dropped.
    gc.collect()
    assert not [warning for warning in recwarn if "unclosed cluster" in str(warning.message)]


QSUB = """#!{python}
import os, pathlib, subprocess, sys
there = pathlib.Path({folder!r})
number = 0
while True:
    try:
        (there / f"{{number}}.sh").touch(exist_ok=False)
        break
    except FileExistsError:
        number += 1
script = there / f"{{number}}.sh"
script.write_text(pathlib.Path(sys.argv[1]).read_text())
log = open(there / f"{{number}}.log", "wb")
process = subprocess.Popen(["bash", script], stdout=log, stderr=log, start_new_session=True)
(there / f"{{number}}.pid").write_text(str(process.pid))
print(f"{{number}}.head")
"""
QDEL = """#!{python}
import os, pathlib, signal, sys
there = pathlib.Path({folder!r})
with open(there / "deleted", "a") as file:
    print(sys.argv[1], file=file)
os.killpg(int((there / f"{{sys.argv[1]}}.pid").read_text()), signal.SIGTERM)
"""


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """Let PBS's commands be these, each job a process group here."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text.format(folder=str(folder), python=sys.executable))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_workers_are_submitted_to_pbs_as_asked_and_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path / "pbs", monkeypatch, qsub=QSUB, qdel=QDEL)
    options = {
        "interface": "lo",
        "cores": 2,
        "memory": "1GB",
        "queue": "main",
        "walltime": "00:30:00",
    }
    with jobqueue("pbs", 2, options) as client:
        there = sweep(**SMALL, where=partial(OnDask, client=client))
    here = sweep(**SMALL, workers=1)
    same(here.table, there.table.select(here.table.columns))
    assert sorted((tmp_path / "pbs/deleted").read_text().split()) == ["0", "1"]
    for number in (0, 1):
        lines = (tmp_path / f"pbs/{number}.sh").read_text().splitlines()
        asked = {line for line in lines if line.startswith("#PBS")}
        assert {
            "#PBS -q main",
            "#PBS -l select=1:ncpus=2:mem=954MB",
            "#PBS -l walltime=00:30:00",
        } <= asked
        assert sys.executable in lines[-1]


WAITS = """#!{python}
import pathlib
there = pathlib.Path({folder!r})
number = 0
while True:
    try:
        (there / f"{{number}}.queued").touch(exist_ok=False)
        break
    except FileExistsError:
        number += 1
print(f"{{number}}.head")
"""
GONE = """#!/bin/sh
[ "$1" = 0 ] && echo "$1" >> {folder}/deleted && exit 0
echo "qdel: Server is away" >&2
exit 1
"""


def test_a_stopped_sweep_cancels_its_pending_workers_and_reports_the_remaining_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "pbs"
    commands(there, monkeypatch, qsub=WAITS, qdel=GONE)
    (tmp_path / "it.yaml").write_text(
        "workloads: [{generate: poisson, options: {jobs: 5, nodes: 4}}]\npolicies: [fcfs]\n"
    )
    asked = ["--jobqueue", "pbs", "--worker-jobs", "2", "--worker-option", "interface=lo"]
    command = [sys.executable, "-m", "hpctwin", "sweep", "it.yaml", *asked]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(list(there.glob("*.queued"))) == 2)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=300)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert (there / "deleted").read_text().split() == ["0"]
    said = " ".join(told.split())
    assert "job 1 of a worker could not be canceled and may remain: qdel: Server is away" in said


def test_a_signal_that_comes_while_garbage_is_collected_ends_a_sweep_too() -> None:
    """As in Dask's own callback: what is raised there is dropped."""
    sent = list[str]()

    def signalled(phase: str, info: dict[str, int]) -> None:
        if not sent:
            sent.append(phase)
            os.kill(os.getpid(), signal.SIGTERM)

    gc.callbacks.append(signalled)
    try:
        with pytest.raises(SystemExit) as told, on_dask._ended_by_signals():
            until(lambda: gc.collect() < 0)
    finally:
        gc.callbacks.remove(signalled)
    assert sent
    assert told.value.code == 128 + signal.SIGTERM


REFUSES = """#!/bin/sh
echo "qsub: Unknown queue" >&2
exit 170
"""


def test_rejected_workers_are_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commands(tmp_path / "pbs", monkeypatch, qsub=REFUSES)
    told = "^workers cannot be submitted to pbs: qsub: Unknown queue$"
    with pytest.raises(UnreachableError, match=told), jobqueue("pbs", 2, {"interface": "lo"}):
        pass
    commands(tmp_path / "none", monkeypatch)
    told = "^workers cannot be submitted to pbs: qsub: No such file or directory$"
    with pytest.raises(UnreachableError, match=told), jobqueue("pbs", 2, {"interface": "lo"}):
        pass
    told = "^--jobqueue pbs: 'eth9' is not a valid network interface"
    with pytest.raises(ConfigError, match=told), jobqueue("pbs", 2, {"interface": "eth9"}):
        pass
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


@pytest.mark.slurm(NEWEST)
def test_workers_are_jobs_of_a_real_slurm(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    slurm_version: str,
) -> None:
    options = ["interface=lo", "memory=1GB", "walltime=00:30:00", "queue=main"]
    with running(tmp_path, version=slurm_version, nodes=2, cpus=2, memory=4096) as slurm:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        Path("small.yaml").write_text(json.dumps(SMALL))
        with pytest.raises(SystemExit) as left:
            main(
                ["sweep", "small.yaml", "--jobqueue", "slurm", "--json",
                 *(word for one in options for word in ("--worker-option", one))]
            )  # fmt: skip
        assert left.value.code == 0
        said = slurm.say("squeue", "-h", "-t", "all", "-o", "%j %T").split()
    assert said[::2] == ["dask-worker"] * 2
    assert json.loads(capsys.readouterr().out)["points"] == 6
    there = sweep("small.yaml", out="out/small").table
    here = sweep(**SMALL, workers=1).table
    same(here, there.select(here.columns))
