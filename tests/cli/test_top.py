"""``hpctwin twin top``: the picture at each size, its keys, and the terminal afterwards."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from hpctwin.cli.live.screen import Seen, View, render
from hpctwin.cli.live.top import parse_keys
from hpctwin.model import Cluster
from hpctwin.rms.emulated.agenda import endless_arrivals
from hpctwin.twin.emulated import emulated_cluster
from tests.twin.processes import Pair

DECISION = (
    "Decision 4478 at 33.5 h, with all events up to 9052: 17 jobs pending, 14 nodes free.",
    "sjf+easy stays: its score is the lowest (lower is better: sjf+easy 0.8387, wfp+easy 0.8532).",
    "Compared with wfp+easy: mean slowdown of 2.2 instead of 2.35 (better); mean wait of 1.76 h "
    "instead of 1.87 h (better); max wait of 4.44 h instead of 4.3 h (worse).",
    "It starts jobs 3020, 3035 now.",
)


def state(nodes: int = 64, load: float = 3.0, **about: Any) -> Seen:
    machine = Cluster.checked(
        {"name": "c", "nodes": [{"name": "n", "count": nodes}], **about}, "cluster"
    )
    emulated = emulated_cluster(machine, endless_arrivals(machine, load=load))
    emulated.advance(3 * 3600.0)
    found = emulated.snapshot()
    mirror: Any = SimpleNamespace(
        machine=machine,
        unix_time=found.unix_time,
        jobs={job.spec.id: job for job in found.jobs},
        nodes={node.name: node for node in found.nodes},
    )
    pending = [job.spec.id for job in found.jobs if job.start_s is None]
    forecasts: list[Any] = [
        SimpleNamespace(job_id=i, start_s=now, low_s=now - 60, high_s=now + 600)
        for i, now in zip(pending, range(11_000, 10**6, 100), strict=False)
    ]
    status = {
        "cluster": "c", "mode": "act", "is_active": True, "time_s": 10_800.0,
        "running": len(found.jobs) - len(pending), "waiting": len(pending), "free_nodes": 0,
        "nodes": nodes, "policy": "sjf+easy", "cycle_s": 0.001,
    }  # fmt: skip
    return Seen(status, mirror, forecasts, (Counter({"sjf+easy": 3}), "jobs"), DECISION, ())


@pytest.fixture(scope="module")
def seen() -> Seen:
    return state()


def drawn(seen: Seen, view: View | None, width: int, height: int | None) -> tuple[list[str], View]:
    console = Console(width=width, height=height or 1000, record=True, file=io.StringIO())
    picture, shown = render(seen, view, width, height)
    console.print(picture)
    return console.export_text().splitlines(), shown


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 14), (200, 60), (60, 20), (300, 12)])
def test_the_picture_fills_the_terminal_and_shows_the_whole_decision(
    seen: Seen, size: tuple[int, int]
) -> None:
    lines, view = drawn(seen, View(), *size)
    assert len(lines) == size[1]
    assert max(map(len, lines)) <= size[0]
    assert " ".join(DECISION) in " ".join(" ".join(lines).split())
    assert "q quit" in lines[-1]
    if size != (60, 14):
        jobs = [line for line in lines if " user" in line]
        assert len(jobs) - 1 in (view.rows, view.rows - 1)
        assert view.rows >= 2
    assert view.jobs == seen.status["waiting"]


def test_in_the_smallest_terminal_the_decision_comes_first(seen: Seen) -> None:
    lines, _ = drawn(seen, View(), 40, 10)
    assert len(lines) <= len("".join(DECISION)) / 40 + 6
    assert "3020, 3035 now." in " ".join(lines)


def test_jobs_have_user_and_partition_and_all_are_listed_without_a_height() -> None:
    parts = [{"name": "batch", "default": True}, {"name": "debug", "max_walltime": "30m"}]
    seen = state(partitions=parts)
    lines, _ = drawn(seen, None, 120, None)
    table = "\n".join(lines)
    for job in seen.mirror.jobs.values():
        if job.start_s is None:
            assert any(
                line.split()[:3] == [job.spec.id, job.spec.user, job.spec.partition]
                for line in lines
            ), table


def test_keys_scroll_within_the_jobs(seen: Seen) -> None:
    _, view = drawn(seen, View(), 80, 24)
    tops = []
    for key in ("up", "down", "page down", "home", "end", "down", "page up"):
        view = view.press(key)
        _, view = drawn(seen, view, 80, 24)
        tops.append(view.top)
    last = view.jobs - view.rows
    assert tops == [0, 1, 1 + view.rows, 0, last, last, last - view.rows]


def test_keys_sort_and_list_running_jobs(seen: Seen) -> None:
    view = View().press("s")
    assert view.sort == "wait"
    lines, _ = drawn(seen, view, 80, 30)
    first = next(line for line in lines if " user" in line and not line.strip().startswith("job"))
    pending = [job for job in seen.mirror.jobs.values() if job.start_s is None]
    assert first.split()[0] == min(pending, key=lambda job: job.spec.submit_s).spec.id
    assert drawn(seen, view.press("r"), 80, 30)[0] != lines
    running, view = drawn(seen, View().press("tab"), 120, 40)
    assert view.jobs == seen.status["running"]
    assert any("n[" in line for line in running), "nodes as a host list"


def test_the_filter_is_typed_and_cleared(seen: Seen) -> None:
    view = View().press("/")
    for key in "USER1x":
        view = view.press(key)
    view = view.press("backspace").press("page up").press("enter")
    assert (view.filter, view.is_typing) == ("USER1", False)
    _, view = drawn(seen, view, 80, 24)
    users = [job.spec.user for job in seen.mirror.jobs.values() if job.start_s is None]
    assert 0 < view.jobs == sum(user.startswith("user1") for user in users) < len(users)
    assert view.press("escape").filter == ""
    assert view.press("q") == view


def test_help_names_every_key(seen: Seen) -> None:
    lines, view = drawn(seen, View().press("?"), 60, 14)
    assert len(lines) <= 14
    for key in ("q ", "PgUp", "Tab", "s, r", "/ or f", "Esc", "?"):
        assert any(line.startswith(key) or f" {key}" in line for line in lines), key
    assert not view.press("?").is_help


@pytest.mark.parametrize(
    ("racks", "words"),
    [([], "n            █"), (["5x800"], "rack"), (["80x50"], "80 racks from")],
)
def test_many_nodes_are_shown_by_rack(racks: list[str], words: str) -> None:
    seen = state(4000, load=0.5)
    if racks:
        count, each = map(int, racks[0].split("x"))
        switches = [
            {"name": f"rack{i:02}", "nodes": f"{i * each}-{(i + 1) * each - 1}"}
            for i in range(count)
        ]
        switches.append({"name": "top", "switches": [one["name"] for one in switches]})
        content = {
            "name": "c", "nodes": [{"name": "n", "count": 4000}], "switches": switches,
        }  # fmt: skip
        seen.mirror.machine = Cluster.checked(content, "c")
    lines, _ = drawn(seen, View(), 80, 40)
    assert any(words in line for line in lines), lines
    assert len(lines) == 40


def test_nodes_that_are_not_up_are_named_as_a_host_list() -> None:
    seen = state(16)
    for name in list(seen.mirror.nodes)[2:5]:
        seen.mirror.nodes[name] = seen.mirror.nodes[name].model_copy(update={"state": "drained"})
    lines, _ = drawn(seen, View(), 80, 24)
    assert any("drained: n[0003-0005]" in line for line in lines), lines


def test_special_keys_have_names_and_unknown_ones_are_omitted() -> None:
    assert parse_keys("a\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[15~\x01é\t\x7f\r") == [
        "a", "up", "down", "page up", "page down", "é", "tab", "backspace", "enter",
    ]  # fmt: skip
    assert parse_keys("\x1b") == ["escape"]


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *command: str, columns: int = 80, lines: int = 24) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hpctwin", *command], stdin=self.slave, stdout=self.slave,
            stderr=self.slave, env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, words: str, seconds: float = 120) -> None:
        """Read until the words are shown."""
        self.text = ""
        limit = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < limit, self.text[-3000:]
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65_536).decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        limit = time.monotonic() + 60
        ended = False
        # Once more after its end, for the rest of what it wrote.
        while not ended and time.monotonic() < limit:
            ended = self.process.poll() is not None
            while select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65_536).decode(errors="replace")
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is as before"
        assert self.text.rfind("\x1b[?1049l") > self.text.rfind("\x1b[?1049h"), "screen is left"
        return self.process.wait(1)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A twin of a cluster that goes on by itself."""
    pair = Pair(tmp_path_factory.mktemp("p"), act={"mode": "observe"}, cycle_interval=1.0)
    pair.begin_cluster("--nodes", "32", "--speed", "60", "--workload", "endless", "--load", "2")
    pair.begin_twin()
    pair.wait(lambda: (pair.status().get("waiting") or 0) >= 5, 60)
    yield pair.config
    pair.end()


def test_keys_act_in_a_terminal_and_q_leaves_it_as_before(config: Path) -> None:
    terminal = Terminal("twin", "top", "-c", str(config))
    terminal.until("last decision")
    terminal.press("\t")
    terminal.until("running jobs by end")
    terminal.press("fuser1\r")
    terminal.until("filter: user1")
    terminal.resize(130, 50)
    terminal.until("probably" if "pending jobs" in terminal.text else "ends within")
    terminal.press("?")
    terminal.until("leave this help")
    terminal.press("q")
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_before(config: Path, number: int) -> None:
    terminal = Terminal("twin", "top", "-c", str(config))
    terminal.until("q quit")
    terminal.process.send_signal(number)
    assert terminal.end() == 130


def test_an_error_while_it_runs_leaves_the_terminal_as_before(config: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import hpctwin.cli.live.screen as screen\n"
        "def press(self, key): raise ValueError('broken')\n"
        "screen.View.press = press\n"
    )
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        terminal = Terminal("twin", "top", "-c", str(config))
    finally:
        del os.environ["PYTHONPATH"]
    terminal.until("q quit")
    terminal.press("s")
    assert terminal.end() != 0
    assert "broken" in terminal.text


def test_once_prints_without_a_terminal_and_takes_no_keys(config: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hpctwin", "twin", "top", "-c", str(config)], check=True,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    assert "last decision" in done.stdout
