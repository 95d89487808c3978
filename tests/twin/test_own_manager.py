"""The page "Add a resource manager", done as it says: one file, watched, acted on, and left alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import HpctwinError
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.settings.config import TwinConfig

PAGE = (Path(__file__).parents[2] / "docs/how-to/add-a-resource-manager.md").read_text()
JOB_ENDS = "ended"


def block(language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0]


class Site:
    """What the page sets up, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "local_batch.py").write_text(block("python"))
        (folder / "twin.yaml").write_text(block("yaml"))
        self.queue = folder / "queue"
        self.queue.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.begin("local_batch.py", "serve", "queue", "2")
        self.wait((self.queue / "state").exists)

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=self.folder, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def twin(self, *words: str) -> subprocess.Popen[bytes]:
        return self.begin("-m", "hpctwin", "twin", "run", "-c", "twin.yaml", *words)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, name: str, walltime_s: int = 600) -> None:
        """A job of both slots that runs until it is told to end."""
        wait = f"while [ ! -e {name}.{JOB_ENDS} ]; do sleep 0.05; done"
        self.run("local_batch.py", "submit", "queue", name, "2", str(walltime_s), wait)

    def let_end(self, name: str) -> None:
        (self.folder / f"{name}.{JOB_ENDS}").touch()

    def started(self) -> list[str]:
        log = self.queue / "log"
        return log.read_text().split() if log.exists() else []

    def leased(self) -> set[str]:
        path = self.queue / "leases"
        found = json.loads(path.read_text()) if path.exists() else {}
        return {name for name, until_s in found.items() if until_s > time.time()}

    def status(self) -> dict[str, Any]:
        try:
            journal = Journal(self.folder / "journal.sqlite", read_only=True)
        except HpctwinError:
            return {}
        found = journal.read_latest("status")
        journal.close()
        return found[1] if found else {}

    def wait(self, reached: Callable[[], Any]) -> None:
        until = time.monotonic() + 240
        while not reached():
            assert time.monotonic() < until, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.wait(180)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for name in "abcd":
        made.let_end(name)
    made.end()


def test_a_custom_manager_is_observed_and_nothing_is_changed(site: Site) -> None:
    assert "fine  resource manager: local: 2 nodes" in site.run(
        "-m", "hpctwin", "twin", "check", "twin.yaml"
    )
    site.twin()
    site.submit("a")
    site.wait(lambda: site.started() == ["a"])
    site.submit("b")
    site.wait(lambda: (site.status().get("running"), site.status().get("waiting")) == (1, 1))
    said = json.loads(site.run("-m", "hpctwin", "when", "b", "-c", "twin.yaml", "--json"))
    assert (said["state"], said["policy"], said["source"]) == (
        "waiting",
        "fcfs+none",
        "the running twin",
    )
    # Job a may run for ten minutes: not before is b expected.
    a = json.loads((site.queue / "state").read_text())["jobs"]["a"]
    assert said["start_s"] == pytest.approx(a["start_s"] + 600, abs=0.01)
    site.let_end("a")
    site.wait(lambda: site.started() == ["a", "b"])
    assert not (site.queue / "leases").exists()


def test_the_twin_acts_on_it_by_leases_and_killed_leaves_it_as_it_was(site: Site) -> None:
    twin = site.twin("--mode", "act")
    site.submit("a")
    site.wait(lambda: site.started() == ["a"])
    site.submit("c", 600)
    site.submit("d", 60)
    site.wait(lambda: site.leased() == {"c", "d"})
    site.let_end("a")
    # The daemon alone would have started c, which came first.
    site.wait(lambda: len(site.started()) == 2)
    assert site.started() == ["a", "d"]
    site.wait(lambda: site.leased() == {"c"})
    os.kill(twin.pid, signal.SIGKILL)
    twin.wait(180)
    site.let_end("d")
    site.wait(lambda: len(site.started()) == 3)
    assert site.started() == ["a", "d", "c"]  # each once
    site.let_end("c")
    site.wait(lambda: not list(site.queue.glob("*.job")))
    assert site.started() == ["a", "d", "c"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no_such.py:LocalSettings", "no such file"),
        ("local_batch.py:LocalSetting", "LocalSettings"),
        ("local_batch.py:submit", "it must be a subclass"),
        ("local_batch.py:LocalSettings\n  polls: 3", "polls"),
        ("slum", "Did you mean"),
    ],
)
def test_an_unusable_kind_is_reported_in_one_line(tmp_path: Path, kind: str, says: str) -> None:
    (tmp_path / "local_batch.py").write_text(block("python"))
    path = tmp_path / "twin.yaml"
    path.write_text(f"manager:\n  kind: {kind}\n  queue: queue\n")
    with pytest.raises(HpctwinError) as stop:
        TwinConfig.from_yaml(path)
    assert says in str(stop.value)
    assert "twin.yaml" in str(stop.value)


def test_a_file_that_others_may_write_is_no_resource_manager(tmp_path: Path) -> None:
    (tmp_path / "local_batch.py").write_text(block("python"))
    (tmp_path / "local_batch.py").chmod(0o666)
    path = tmp_path / "twin.yaml"
    path.write_text(block("yaml"))
    with pytest.raises(HpctwinError, match=r"local_batch\.py"):
        TwinConfig.from_yaml(path)


UNFINISHED = """
from hpctwin.rms.manager import PlainManager
from hpctwin.rms.settings import ManagerSettings


class NoOpen(ManagerSettings):
    pass


class NoSnapshot(ManagerSettings):
    def open(self, *, longest_lease_s=600.0):
        return PlainManager("mine")
"""


@pytest.mark.parametrize(
    ("kind", "says"),
    [("NoOpen", "NoOpen has no method open"), ("NoSnapshot", "has no method snapshot")],
)
def test_a_manager_that_lacks_a_method_is_named_by_check(
    tmp_path: Path, kind: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(UNFINISHED)
    config = tmp_path / "twin.yaml"
    config.write_text(
        f"manager: {{kind: '{tmp_path}/mine.py:{kind}'}}\njournal: {{path: j.sqlite}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hpctwin", "twin", "check", str(config)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
