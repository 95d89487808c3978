"""The script that Slurm runs for each job: what it writes, and where it never writes."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpctwin.cli import main
from hpctwin.errors import ConfigError
from hpctwin.rms.records.changes import JobBegan, JobGone
from hpctwin.rms.slurm.install import events_script, install_events
from hpctwin.rms.slurm.manager import SlurmNews

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "events.sh"
    path.write_text(events_script(tmp_path / "spool" / "events.jsonl"))
    path.chmod(0o755)
    return path


def run(script: Path, **environment: str) -> None:
    env = {"PATH": "/usr/bin:/bin", **environment}
    assert subprocess.run([script], env=env, timeout=60, check=False).returncode == 0


def test_starts_and_ends_are_noted_in_a_folder_that_others_may_not_enter(script: Path) -> None:
    spool = script.parent / "spool" / "events.jsonl"
    run(script, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]")
    run(script, JOBID="7", JOBSTATE="COMPLETED")
    began, gone = (news for line in spool.read_text().splitlines() for news in SlurmNews()(line))
    assert isinstance(began, JobBegan)
    assert (began.job_id, began.node_names) == ("7", ("n1", "n2"))
    assert isinstance(gone, JobGone)
    assert stat.S_IMODE(spool.parent.stat().st_mode) == 0o2750
    assert stat.S_IMODE(spool.stat().st_mode) == 0o640


def test_the_script_writes_through_no_symbolic_link(script: Path) -> None:
    folder = script.parent / "spool"
    folder.mkdir()
    victim = script.parent / "victim"
    victim.write_text("as it was\n")
    (folder / "events.jsonl").symlink_to(victim)
    run(script, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1")
    assert victim.read_text() == "as it was\n"
    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").symlink_to(script.parent / "not there yet")
    run(script, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1")
    assert not (script.parent / "not there yet").exists()


def test_a_pipe_in_the_spools_place_keeps_no_job_waiting(script: Path) -> None:
    folder = script.parent / "spool"
    folder.mkdir()
    os.mkfifo(folder / "events.jsonl")
    run(script, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1")


def test_lines_written_at_the_same_time_stay_whole(script: Path) -> None:
    nodes = ",".join(f"node{i:05}" for i in range(2000))
    with ThreadPoolExecutor(4) as threads:
        list(
            threads.map(
                lambda i: run(script, SLURM_JOB_ID=str(i), SLURM_JOB_NODELIST=nodes), range(1, 13)
            )
        )
    lines = (script.parent / "spool" / "events.jsonl").read_text().splitlines()
    jobs = {news.job_id for line in lines for news in SlurmNews()(line)}  # type: ignore[union-attr]
    assert jobs == {str(i) for i in range(1, 13)}


def test_the_installed_script_has_its_folder_for_its_group_to_read(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        to, spool = tmp_path / "hpctwin-events.sh", tmp_path / "var" / "events.jsonl"
        with pytest.raises(SystemExit) as stop:
            main(["rms", "slurm", "events", "--spool", str(spool), "--out", str(to), "--owner", ME])
        assert stop.value.code in (0, None)
        assert stat.S_IMODE(to.stat().st_mode) == 0o755
        assert stat.S_IMODE(spool.parent.stat().st_mode) == 0o2750
        assert spool.parent.stat().st_uid == os.getuid()
    finally:
        os.umask(mask)
    run(to, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1")
    assert spool.read_text().count("\n") == 1


def test_a_script_where_others_could_exchange_it_is_rejected(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with pytest.raises(ConfigError, match="others can write it"):
        install_events(open_folder / "events.sh", tmp_path / "var" / "events.jsonl", ME)
    with pytest.raises(ConfigError, match="other users may write"):
        install_events(tmp_path / "events.sh", open_folder / "events.jsonl", ME)
    with pytest.raises(ConfigError, match="does not exist on this host"):
        install_events(tmp_path / "events.sh", tmp_path / "v" / "e.jsonl", "no-such-user")
