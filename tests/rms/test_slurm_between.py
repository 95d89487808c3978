"""What happens to the picture of a Slurm while commands run: looks are made by another thread."""

from __future__ import annotations

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
from hpctwin.rms.slurm.jobs import Mine
from hpctwin.rms.slurm.manager import SlurmManager


def seen(*jobs: str, **about: float) -> Any:
    return SimpleNamespace(mine={job: Mine((job,), **about) for job in jobs})


def test_jobs_that_are_gone_at_a_look_between_two_commands_are_no_fault(
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


def test_a_lease_that_comes_too_late_is_not_called_a_deadline_missed() -> None:
    manager = SlurmManager("emul")
    manager.found = seen("1")
    over = manager.lease({"1": manager.now_s() - 1})["1"]
    assert (over.result, over.reason) == ("refused", "job 1: the lease is over already")
    manager.found = seen("1", latest_s=manager.now_s() - 5)
    missed = manager.lease({"1": manager.now_s() + 60})["1"]
    assert missed.reason == "job 1: it would miss its deadline"


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
