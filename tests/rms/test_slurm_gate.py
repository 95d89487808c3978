"""Whose jobs a gate into Slurm takes for its own."""

from __future__ import annotations

import json
import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import ConfigError, QueueError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import JobRequest, Mark
from hpctwin.rms.slurm.settings import SlurmGate
from hpctwin.twin.facility.queue import Queue

MARK = Mark(b"known to the queue's owner")
SOMEBODY = 54321


class FakeSlurm:
    """Commands that note what they are called with; ``squeue`` lists what it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, says in (("sbatch", "17"), ("scancel", ""), ("scontrol", "")):
            command = folder / name
            command.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\necho {says}\n')
            command.chmod(0o755)
        command = folder / "squeue"
        command.write_text(f"#!/bin/sh\ncat {folder}/jobs.json\n")
        command.chmod(0o755)
        self.lists()

    def lists(self, *jobs: dict[str, Any]) -> None:
        (self.folder / "jobs.json").write_text(json.dumps({"jobs": jobs}))

    def gate(self, mark: Mark = MARK, *options: str) -> SlurmGate:
        return SlurmGate(Commands(str(self.folder)), mark, options)


def job(job_id: int, comment: Any, user_id: Any = None) -> dict[str, Any]:
    user = os.getuid() if user_id is None else user_id
    return {
        "job_id": job_id, "comment": comment, "user_id": user, "job_state": "PENDING", "priority": 0,
    }  # fmt: skip


def test_a_job_that_we_submitted_is_known_by_its_key(tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path)
    outcome, job_id = slurm.gate().submit(JobRequest(key="run-42", nodes=1, walltime_s=60))
    assert (outcome.result, job_id) == ("done", "17")
    comment = next(
        word.removeprefix("--comment=")
        for word in (tmp_path / "calls").read_text().split()
        if word.startswith("--comment=")
    )
    slurm.lists(job(17, comment), job(18, {"set": True, "string": MARK.of("a:b")}))
    assert {key: [j.id for j in jobs] for key, jobs in slurm.gate().jobs().items()} == {
        "run-42": ["17"],
        "a:b": ["18"],
    }


@pytest.mark.parametrize(
    "comment",
    ["hpctwin-facility:run-42", "hpctwin-facility:run-42:", f"hpctwin-facility:run-42:{'0' * 32}",
     Mark(b"another secret").of("run-42"), MARK.of("run-42") + "0", "", None],
)  # fmt: skip
def test_a_key_in_the_comment_of_a_users_job_adopts_nothing(tmp_path: Path, comment: Any) -> None:
    slurm = FakeSlurm(tmp_path)
    slurm.lists(job(5, comment))
    assert slurm.gate().jobs() == {}


def test_a_mark_copied_from_the_queues_listing_onto_a_job_of_another_user_is_none(
    tmp_path: Path,
) -> None:
    slurm = FakeSlurm(tmp_path)
    stolen = MARK.of("run-42")
    for user in (SOMEBODY, {"set": True, "number": SOMEBODY}, "nobody", None, {}):
        row = job(6, stolen, user)
        if user is None:
            del row["user_id"]
        slurm.lists(row, job(7, stolen))
        assert [j.id for j in slurm.gate().jobs()["run-42"]] == ["7"]


def test_jobs_submitted_for_a_user_belong_to_that_user(tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path)
    slurm.lists(job(8, MARK.of("x"), SOMEBODY), job(9, MARK.of("x")))
    for options in ((f"--uid={SOMEBODY}",), ("--hold", "--uid", str(SOMEBODY))):
        assert [j.id for j in slurm.gate(MARK, *options).jobs()["x"]] == ["8"]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert [j.id for j in slurm.gate(MARK, f"--uid={me}").jobs()["x"]] == ["9"]
    with pytest.raises(ConfigError, match="--uid: user 'no-such-user' does not exist"):
        slurm.gate(MARK, "--uid=no-such-user")


def test_each_queue_has_a_secret_of_its_own_that_only_its_owner_may_read(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        first, second = Queue(tmp_path / "a.sqlite"), Queue(tmp_path / "b.sqlite")
        first.add(JobRequest(key="x", nodes=1, walltime_s=60, script="#!/bin/sh\n"))
        assert len(first.secret) == 32
        assert first.secret != second.secret
        assert Queue(tmp_path / "a.sqlite").secret == first.secret
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == {0o600}
        with pytest.raises(QueueError):
            Queue(tmp_path / "away" / "q.sqlite")
    finally:
        os.umask(mask)
