"""What happens to the picture of a Slurm while commands run: looks are made by another thread."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpctwin.rms.commands import Commands
from hpctwin.rms.manager import Outcome
from hpctwin.rms.slurm import manager as module
from hpctwin.rms.slurm.listing.jobs import Mine
from hpctwin.rms.slurm.manager import SlurmManager
from tests.rms.slurm_said import NODES, NONE, PARTITIONS


def seen(*jobs: str, **about: float) -> Any:
    return SimpleNamespace(mine={job: Mine((job,), **about) for job in jobs})


def test_jobs_that_end_between_two_commands_are_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    manager = SlurmManager("emul")
    manager.found = seen("1", "2", "3")

    def update(names: Any, change: str) -> Outcome:
        manager.found = seen()  # all three have ended, and a look has found that out
        return Outcome("done")

    monkeypatch.setattr(manager, "_update", update)
    until_s = manager.now_s() + 60
    assert set(manager.lease({"1": until_s, "2": until_s, "3": until_s + 1})) == {"1", "2", "3"}
    manager.found = seen("1", "2")
    assert set(manager.admit(["1", "2"])) == {"1", "2"}


def test_begin_times_are_noted_of_jobs_that_end_or_get_another_one_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = SlurmManager("emul")
    begins = manager.begins
    begins.seen({job: Mine((job,)) for job in ("1", "2")}, 0.0)
    begins.wished("1", 100.0)
    begins.wished("2", 200.0)
    sent: list[tuple[list[str], str]] = []

    def update(names: Any, change: str) -> Outcome:
        sent.append((list(names), change))
        if change == "AdminComment=hpctwin:100":
            begins.wished("1", 300.0)
            begins.seen({"1": Mine(("1",))}, 0.0)  # job 2 has ended
        return Outcome("done")

    monkeypatch.setattr(manager, "_update", update)
    manager._note_wishes()
    manager._note_wishes()
    assert sent[0] == (["1"], "AdminComment=hpctwin:100")
    assert sent[-1] == (["1"], "AdminComment=hpctwin:300")


def test_a_lease_that_comes_too_late_is_not_called_a_deadline_missed() -> None:
    manager = SlurmManager("emul")
    manager.found = seen("1")
    over = manager.lease({"1": manager.now_s() - 1})["1"]
    assert (over.result, over.reason) == ("refused", "job 1: the lease has expired")
    manager.found = seen("1", latest_s=manager.now_s() - 5)
    missed = manager.lease({"1": manager.now_s() + 60})["1"]
    assert missed.reason == "job 1: the job would miss its deadline"


def test_commands_are_counted_while_others_run(tmp_path: Path) -> None:
    program = tmp_path / "nothing"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    commands = Commands(str(tmp_path))
    commands._calls.extend([time.monotonic()] * 20_000)
    faults: list[BaseException] = []

    def count() -> None:
        try:
            while thread.is_alive():
                commands.calls_per_minute()
        except RuntimeError as error:
            faults.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(
            target=lambda: [commands.run("nothing", []) for _ in range(20)], daemon=True
        )
        thread.start()
        count()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert not faults


def test_a_partition_that_the_site_has_changed_is_seen_ten_seconds_later_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "squeue": '{"jobs": []}',
        "sinfo": json.dumps({"nodes": NODES}),
        "partition": PARTITIONS.decode(),
        "reservation": NONE.decode(),
        "config": "SelectType = select/linear",
    }
    for name, says in answers.items():
        (tmp_path / name).write_text(says)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in (
        ("squeue", f"cat {tmp_path}/squeue"),
        ("sinfo", f"cat {tmp_path}/sinfo"),
        # One of 22.05: it lists no nodes in JSON.
        ("scontrol", f'[ "$2" != nodes ] && cat {tmp_path}/"$2"'),
    ):
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    manager = SlurmManager("emul", folder=str(commands))
    clock = Clock()
    monkeypatch.setattr("hpctwin.rms.commands.time", clock)
    assert [p.max_nodes for p in manager.snapshot().machine.partitions] == [None]
    limited = PARTITIONS.decode().replace("MaxNodes=UNLIMITED", "MaxNodes=2")
    (tmp_path / "partition").write_text(limited)
    clock.now += 9.9
    assert [p.max_nodes for p in manager.snapshot().machine.partitions] == [None]
    clock.now += 0.2
    assert [p.max_nodes for p in manager.snapshot().machine.partitions] == [2]


class Clock:
    """A clock that goes when it is told to."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now
