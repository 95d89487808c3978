"""``hpctwin rms emulate`` and ``hpctwin demo --serve``, each as its user starts and ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctwin.engine.compile.library import checks_bounds, library_path
from tests.cli.test_cli import run

HPCTWIN = (sys.executable, "-m", "hpctwin")


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Return the one line that a wrong command prints, from this process: it must end by itself."""

    def too_long(*_: Any) -> None:
        pytest.fail("the command was not refused")

    def refused(*command: str) -> str:
        assert run(*command) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("hpctwin: ")
        assert shown.err.count("\n") == 1
        return shown.err

    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(120)
    yield refused
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--nodes 0", "--nodes is 0; it must be 1 or more"),
        ("--cores 0", "--cores is 0; it must be 1 or more"),
        ("--load 0", "load is 0; it must be above 0"),
        ("--takeover 0", "--takeover is 0; it must be above 0"),
        ("--trace x.swf --load 1", "--load is only for endless jobs"),
        ("--trace x.swf --workload poisson", "--trace does not work with --workload"),
        ('--options {"jobs":3}', "--options is for a generator"),
        ("--mttr 5m", "--mttr needs --mtbf"),
        ("--cluster c.yaml --cores 4", "--cluster does not work with --cores"),
    ],
)
def test_wrong_options_of_the_emulator_are_explained(
    refusal: Callable[..., str], tmp_path: Path, options: str, words: str
) -> None:
    assert words in refusal("rms", "emulate", "c.sock", *options.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--port 8642", "--port is only for --serve"),
        ("--serve --json", "--json does not work with --serve"),
        ("--serve --nodes 0", "--nodes is 0"),
        ("--serve --speed max", "--speed max does not work with --serve"),
        ("--serve --port 99999", "--port is 99999"),
    ],
)
def test_wrong_options_of_the_demo_are_explained(
    refusal: Callable[..., str], options: str, words: str
) -> None:
    assert words in refusal("demo", *options.split())


def test_without_the_extra_the_demo_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ImportError(name='fastapi')\n")
    done = subprocess.run(
        [*HPCTWIN, "demo", "--serve"], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'hpctwin[web]'" in done.stderr


def test_a_demo_in_a_pipe_compares_policies_and_draws_no_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("hpctwin.cli.live.top.live_view", lambda *_: pytest.fail("it is drawn"))
    assert run("demo", "--seed", "1") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("fcfs+easy", "sjf+easy", "wfp+easy", "schedtwin"))
    assert "Jobs started by the twin under" in shown


class Demo:
    """A demo that serves its page, in a folder for temporary files of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder / "files"
        self.folder.mkdir(exist_ok=True)
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*HPCTWIN, "demo", "--serve", "--port", "0", "--nodes", "16", *options],
                stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, "TMPDIR": str(self.folder), "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().rstrip() for _ in range(count)]

    def processes(self) -> list[str]:
        """The processes that work in the folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(self.folder) in command:
                found.append(command)
        return found

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


@pytest.fixture
def begin() -> Iterator[Any]:
    started: list[Demo] = []
    # The path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="d") as folder:

        def make(*options: str) -> Demo:
            started.append(Demo(Path(folder), *options))
            return started[-1]

        yield make
        for one in started:
            if one.process.poll() is None:
                one.end(signal.SIGTERM)
            one.process.communicate()


def ask(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    where, token = address.split("#token=")
    request = urllib.request.Request(
        where + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def test_the_served_demo_shows_a_busy_cluster_and_leaves_nothing_behind(begin: Any) -> None:
    demo = begin("--speed", "120", "--mode", "advise")
    address, about, hint, last = demo.lines(4)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S+", address)
    assert "16 nodes at 120 times real time, twin in mode advise" in about
    assert "Ctrl-C" in last
    until = time.monotonic() + 120
    while (state := ask(address, "api/v1/state"))["decision"] is None or not state["waiting"]:
        assert time.monotonic() < until, state
        time.sleep(0.2)
    assert state["nodes"] == 16
    assert state["running"] > 0
    assert abs(state["time_s"] - time.time()) < 7200, "the cluster's clock starts now"
    what_if = ask(address, "api/v1/what-if", {"policy": "fcfs+conservative"})
    assert what_if["as_is"]["metrics"]
    config = hint.rpartition(" ")[2]
    top = subprocess.run(
        [*HPCTWIN, "twin", "top", "-c", config], capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    assert "advise" in top.stdout
    assert len(demo.processes()) == 2, "a cluster and a twin"

    assert demo.end(signal.SIGINT) == 0
    assert demo.lines(1) == ["The demo has ended."]
    assert demo.processes() == []
    assert list(demo.folder.iterdir()) == []
    errors = demo.errors.read_text()
    if library_path() is not None and not checks_bounds():
        assert errors == "", "with a compiled engine, nothing is compiled and nothing is said"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_end_while_it_starts_leaves_nothing_behind(begin: Any, number: int) -> None:
    demo = begin()
    until = time.monotonic() + 60
    while not demo.processes():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert demo.end(number) == 0
    assert demo.processes() == []
    assert list(demo.folder.iterdir()) == []


def test_a_port_in_use_ends_the_demo_before_anything_starts(begin: Any) -> None:
    first = begin()
    port = first.lines(1)[0].split(":")[2].split("/")[0]
    done = subprocess.run(
        [*HPCTWIN, "demo", "--serve", "--port", port],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Address already in use" in done.stderr
    assert first.process.poll() is None
