"""One twin acts on a cluster; another one observes, and takes over when the first is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctwin import Cluster
from hpctwin.errors import JournalError, UnreachableError
from hpctwin.model.files import FileLock
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.polling.poller import cluster_identity
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.acting.authority import Authority, ClusterLock
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.service.service import open_twin
from hpctwin.twin.settings.config import TwinConfig
from tests.rms.fake_pbs import FakePbs
from tests.twin.test_runner import Manager


class OtherProcess:
    """A process that does something, says so, and waits to be killed."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code) + "\nprint('done', flush=True)\ninput()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(180)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def name(tmp_path: Path) -> str:
    return f"a cluster of {tmp_path} in {os.getpid()}"


def holder(name: str, *files: Path) -> OtherProcess:
    return OtherProcess(f"""
        from pathlib import Path
        from hpctwin.twin.acting.authority import ClusterLock
        lock = ClusterLock(lambda: {name!r}, [Path(f) for f in {[str(f) for f in files]!r}])
        assert lock.take() is None
    """)


def test_a_cluster_that_another_process_acts_on_is_had_when_that_process_is_dead(
    name: str, tmp_path: Path
) -> None:
    other = holder(name)
    # Neither the name of the configuration nor the journal tells clusters apart.
    lock = ClusterLock(lambda: name, [tmp_path / "mine"])
    why_not = lock.take()
    assert why_not is not None
    assert f"process {other.process.pid} of user {os.geteuid()}" in why_not
    assert not lock.held()
    other.kill()
    assert lock.take() is None
    assert lock.held()
    lock.release()


def test_another_cluster_is_no_reason(name: str) -> None:
    other = holder(name)
    lock = ClusterLock(lambda: name + " II")
    assert lock.take() is None
    lock.release()
    other.kill()


def test_a_lock_file_that_hosts_share_keeps_a_twin_out_by_itself(name: str, tmp_path: Path) -> None:
    shared = tmp_path / "shared.lock"
    other = holder(name + " as seen from another host", shared)
    lock = ClusterLock(lambda: name, [tmp_path / "mine", shared])
    why_not = lock.take()
    assert why_not is not None
    assert f"process {other.process.pid} on " in why_not
    # Nothing is kept that would keep out the twin that has the file.
    second = ClusterLock(lambda: name, [tmp_path / "mine"])
    assert second.take() is None
    second.release()
    other.kill()
    assert lock.take() is None
    lock.release()


def test_values_left_by_a_dead_twin_in_the_file_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(f"process {os.getpid()} on here\n")
    lock = FileLock(path)
    assert lock.take() is None
    lock.release()


def test_a_lock_file_that_was_deleted_is_not_held_any_more(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = FileLock(path), FileLock(path)
    assert first.take() is None
    path.unlink()
    assert not first.held()
    assert second.take() is None
    assert first.take() is not None
    second.release()
    assert first.take() is None


def test_a_lock_file_is_no_way_to_overwrite_another_file(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("as it was")
    (tmp_path / "lock").symlink_to(target)
    why_not = FileLock(tmp_path / "lock").take()
    assert why_not is not None
    assert "cannot be locked" in why_not
    assert target.read_text() == "as it was"


def test_a_cluster_that_cannot_identify_itself_is_not_acted_on() -> None:
    def away() -> str:
        raise UnreachableError("no answer")

    why_not = ClusterLock(away).take()
    assert why_not == "identity of the cluster is unknown: no answer"


def test_two_managers_of_one_cluster_have_one_identity_whatever_they_are_called(
    tmp_path: Path,
) -> None:
    pbs = FakePbs(tmp_path)
    first, second = (PbsManager(label, folder=str(pbs.bin)) for label in ("a", "b"))
    assert cluster_identity(first) == cluster_identity(second) == "pbs pbsvm"
    for folder, host in (("one", "ctl1"), ("two", "ctl2")):
        (tmp_path / folder).mkdir()
        command = tmp_path / folder / "scontrol"
        command.write_text(
            "#!/bin/sh\necho 'ClusterName             = polaris'\n"
            f"echo 'SlurmctldHost[0]        = {host}'\necho 'SlurmctldPort           = 6817'\n"
        )
        command.chmod(0o755)
    here, same = (SlurmManager(n, folder=str(tmp_path / "one")) for n in ("a", "b"))
    other = SlurmManager("a", folder=str(tmp_path / "two"))
    assert cluster_identity(here) == cluster_identity(same)
    assert "polaris" in cluster_identity(here)
    assert cluster_identity(here) != cluster_identity(other)


# --- the twin ------------------------------------------------------------------------------------


class Pair:
    """Two twins of one cluster."""

    def __init__(self, folder: Path, **act: Any) -> None:
        self.manager = Manager(emulated_cluster(Cluster.uniform(4)))
        self.twins = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            body = {
                "manager": {"kind": "emulated", "address": "none"},
                "act": {"mode": "act", **act},
                "threads": 1,
            }
            journal = Journal(folder / name / "j.sqlite")
            twin = Twin(TwinConfig.of(body), self.manager, LocalBus(), journal)
            twin.begin()
            self.twins.append(twin)

    def turn(self) -> None:
        for twin in self.twins:
            twin.turn(0.0)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    for twin in pair.twins:
        twin.end()
        twin.journal.close()


def test_one_of_two_twins_on_one_cluster_acts_and_the_other_says_why_not(pair: Pair) -> None:
    one, two = pair.twins
    for _ in range(3):
        pair.turn()
    assert (one.is_active, two.is_active) == (True, False)
    assert "another twin in this process already acts on this cluster" in two.status()["kept_out"]
    assert one.status()["kept_out"] is None
    assert two.counts["snapshots"] > 0  # it observes


def test_the_other_twin_takes_over_when_the_first_has_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpctwin.twin.acting.authority.RETRY_S", 0.0)
    one, two = pair.twins
    pair.turn()
    one.guard.stop("enough")
    pair.turn()
    pair.turn()
    assert (one.is_active, two.is_active) == (False, True)
    assert two.status()["kept_out"] is None


def test_a_twin_that_only_observes_excludes_no_other_twin(tmp_path: Path) -> None:
    pair = Pair(tmp_path, mode="observe")
    pair.turn()
    pair.turn()
    assert not any(twin.control.authority.held() for twin in pair.twins)
    assert [twin.status()["kept_out"] for twin in pair.twins] == [None, None]
    for twin in pair.twins:
        twin.end()
        twin.journal.close()


def test_a_second_twin_on_one_journal_is_rejected(tmp_path: Path) -> None:
    pbs = FakePbs(tmp_path)
    config = TwinConfig.of(
        {
            "manager": {"kind": "pbs", "folder": str(pbs.bin)},
            "journal": {"path": str(tmp_path / "j.sqlite")},
        }
    )
    match = "another twin uses this journal: process"
    with open_twin(config), pytest.raises(JournalError, match=match), open_twin(config):
        pass
    with open_twin(config):
        pass


def test_a_missing_heartbeat_folder_keeps_the_twin_out_without_flapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "away" / "alive"
    config = TwinConfig.of({"manager": {"kind": "slurm", "heartbeat": str(path)}})
    cluster = emulated_cluster(Cluster.uniform(1))
    charge = Authority(config, Manager(cluster))
    for _ in range(50):
        assert not charge.keep(0)
    assert charge.why_not is not None
    assert f"the folder {path.parent} is not there" in charge.why_not
    assert caplog.text.count("not acting") == 1
    # Another twin whose heartbeat can be written is not kept out meanwhile.
    assert not charge.held()
    path.parent.mkdir()
    monkeypatch.setattr("hpctwin.twin.acting.authority.RETRY_S", 0.0)
    charge._again = 0.0
    assert charge.keep(0)
    assert path.exists()
    charge.drop()
