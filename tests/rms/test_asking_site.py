"""What a running manager prints becomes files, however much it is; what fails is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpctwin import Cluster
from hpctwin.cli import main
from hpctwin.errors import UnreachableError
from hpctwin.rms import commands
from hpctwin.rms.asking_site import asked

SITE = Path(__file__).parent / "recorded" / "slurm-site"
HEADER = "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocCPUS|State"


def command(folder: Path, name: str, script: str) -> None:
    """A program that does this."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    """Slurm's commands: 30 jobs, and what the recorded site printed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    times = "2026-10-01T10:10:00|2026-10-01T10:20:00|600|15|1|2|COMPLETED"
    lines = [HEADER, *(f"{job}|2026-10-01T10:00:{job:02}|{times}" for job in range(1, 31))]
    (tmp_path / "past.txt").write_text("\n".join(lines) + "\n")
    command(folder, "sacct", f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/past.txt')
    command(
        folder,
        "scontrol",
        f'case "$2" in config) exit 1;; *) cat {SITE}/"$2"s.txt;; esac',
    )
    command(folder, "sacctmgr", f'cat {SITE}/"$(echo $3 | sed s/associations/assoc/)".txt')
    return folder


def test_accounting_of_any_length_is_read(
    bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "MAX_OUTPUT", 200)
    with pytest.raises(SystemExit) as ended:
        main(
            ["import", "slurm", "live", "--commands", str(bin_), "--out", str(tmp_path / "out"), "--json",
             "--since", "2026-10-01"]
        )  # fmt: skip
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert (told["jobs"], told["nodes"], told["partitions"]) == (30, 8, 3)
    assert (tmp_path / "asked").read_text().strip().endswith("-S 2026-10-01")
    assert any("scontrol show config" in note for note in told["notes"])


def test_what_a_command_wrote_before_it_failed_is_not_taken(bin_: Path, tmp_path: Path) -> None:
    command(bin_, "sacct", f"head -5 {tmp_path}/past.txt; echo database gone >&2; exit 1")
    (tmp_path / "files").mkdir()
    notes = asked("slurm", tmp_path / "files", since=None, beside=None, commands_in=str(bin_))
    assert [note.rpartition(": ")[2] for note in notes if note.startswith("sacct ")] == [
        "database gone"
    ]
    assert not (tmp_path / "files" / "sacct.txt").exists()
    assert (tmp_path / "files" / "nodes.txt").exists()


def test_nothing_that_answers_is_an_error(bin_: Path, tmp_path: Path) -> None:
    shutil.rmtree(bin_)
    with pytest.raises(UnreachableError, match="no such command"):
        asked("slurm", tmp_path, since=None, beside=None, commands_in=str(bin_))


def test_reservations_are_asked_for(
    bin_: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = (
        "ReservationName=repair StartTime=2026-10-01T10:05:00 EndTime=2026-10-01T10:15:00 Duration=00:10:00 "
        "Nodes=cn[01-02] NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT TRES=cpu=16 "
        "Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a "
        "MaxStartDelay=(null)"
    )
    (tmp_path / "shown.txt").write_text(shown + "\n")
    command(
        bin_,
        "scontrol",
        f'case "$*" in "show config") exit 1;; "show reservation -o") cat {tmp_path}/shown.txt;; '
        f'*) cat {SITE}/"$2"s.txt;; esac',
    )
    with pytest.raises(SystemExit) as ended:
        main(
            ["import", "slurm", "live", "--commands", str(bin_), "--out", str(tmp_path / "out"), "--json",
             "--since", "2026-10-01"]
        )  # fmt: skip
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["read"]["files"]["reservations.txt"] == "scontrol show reservation"
    made = Cluster.from_yaml(tmp_path / "out" / "cluster.yaml").reservations
    assert [(one.name, one.end - one.start, one.nodes) for one in made] == [("repair", 600, "0-1")]
