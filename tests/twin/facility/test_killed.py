"""A placer that is killed loses no job and places none twice: real processes, SIGKILL."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hpctwin.errors import UnreachableError
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.gate import JobRequest
from hpctwin.twin.facility.queue import Queue
from tests.forks import fork
from tests.twin.facility.dying_placer import POINTS, begin, place

CLUSTERS = ("a", "b")


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two emulated clusters as processes; their sockets' folder."""
    folder = tmp_path_factory.mktemp("clusters")
    processes = [
        fork(
            "hpctwin", "rms", "emulate", str(folder / f"{name}.sock"), "--name", name, "--nodes", "8",
            "--workload", "none", "--speed", "1000", "--history", log=folder / f"{name}.log",
        )
        for name in CLUSTERS
    ]  # fmt: skip
    try:
        for name in CLUSTERS:
            _until(lambda name=name: _answers(folder / f"{name}.sock"))
        yield folder
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


@pytest.fixture
def config(clusters: Path, tmp_path: Path) -> Path:
    path = tmp_path / "facility.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "facility": {"clusters": [{"name": name, "nodes": 8} for name in CLUSTERS]},
                "sites": {
                    name: {
                        "manager": {"kind": "emulated", "address": str(clusters / f"{name}.sock")}
                    }
                    for name in CLUSTERS
                },
                "queue": "queue.sqlite",
                "strategy": "round-robin",
            }
        )
    )
    return path


@pytest.mark.parametrize("point", POINTS)
def test_a_placer_killed_anywhere_places_each_job_exactly_once(
    clusters: Path, config: Path, point: str
) -> None:
    keys = [f"{point.replace(' ', '-')}-{number}" for number in range(4)]
    queue = Queue(config.parent / "queue.sqlite")
    for key in keys:
        queue.add(JobRequest(key=key, nodes=1, walltime_s=60))
    assert place(config, point) == -signal.SIGKILL
    assert queue.entries("queued"), "it was killed before it was done"
    assert place(config, "never") == 0
    assert [entry.stage for entry in queue.entries()] == ["placed"] * len(keys)
    happened = {name: _history(clusters / f"{name}.sock") for name in CLUSTERS}
    _until(lambda: all(_ended(clusters, entry.cluster, entry.job_id) for entry in queue.entries()))
    for what in ("submitted", "started"):
        happened = {name: _history(clusters / f"{name}.sock") for name in CLUSTERS}
        counts = Counter(
            (job, name) for name in CLUSTERS for job, event in happened[name] if event == what
        )
        mine = {key: count for key, count in counts.items() if key[0] in keys}
        assert mine == {(entry.job_id, entry.cluster): 1 for entry in queue.entries()}, what
    queue.close()


def test_a_placer_killed_at_any_time_places_each_job_exactly_once(
    clusters: Path, config: Path
) -> None:
    """Killed again and again, a little later each time, until all is placed."""
    keys = [f"any-{number}" for number in range(24)]
    queue = Queue(config.parent / "queue.sqlite")
    for key in keys:
        queue.add(JobRequest(key=key, nodes=1, walltime_s=60))
    deaths = 0
    while queue.entries("queued", "intended", "submitted"):
        assert deaths < 60, "it gets nowhere"
        deaths += _placed_for_a_while(config, queue, 0.005 * (deaths % 7))
    assert deaths > 3
    _until(lambda: all(_ended(clusters, entry.cluster, entry.job_id) for entry in queue.entries()))
    submitted = Counter(
        job
        for name in CLUSTERS
        for job, event in _history(clusters / f"{name}.sock")
        if event == "submitted" and job in keys
    )
    assert submitted == dict.fromkeys(keys, 1)
    queue.close()


def _placed_for_a_while(config: Path, queue: Queue, seconds: float) -> bool:
    """Whether a placer had to be killed that was let place one job, and a little more."""
    before = len(queue.entries("placed"))
    process = begin(config, "never")
    try:
        _until(
            lambda: process.poll() is not None or len(queue.entries("placed")) > before,
            pause_s=0.002,
        )
        time.sleep(seconds)
        process.kill()
    finally:
        code = process.wait()
    assert code in (0, -signal.SIGKILL), (config.parent / "placer.log").read_text()[-3000:]
    return code != 0


def _history(socket: Path) -> list[tuple[str, str]]:
    manager = EmulatedManager(socket, timeout_s=20)
    try:
        found = manager.ask("state", history=True)["history"]
    finally:
        manager.close()
    return [(job, event) for _, job, event in found]


def _ended(clusters: Path, name: str | None, job_id: str | None) -> bool:
    events = [e for job, e in _history(clusters / f"{name}.sock") if job == job_id]
    return "started" in events and events[-1] not in ("submitted", "started")


def _answers(socket: Path) -> bool:
    try:
        EmulatedManager(socket).close()
    except UnreachableError:
        return False
    return True


def _until(reached, seconds: float = 180, pause_s: float = 0.02) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, "not reached in time"
        time.sleep(pause_s)
