"""The PBS hook: it notes what happens and accepts, whatever is wrong around it."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest

from hpctwin.rms.pbs.install import HookSettings, hook_text
from hpctwin.rms.polling.redis_stream import RedisLines, ship
from hpctwin.rms.polling.spool import Spool
from tests.rms.recorded import PBS
from tests.twin.redis_server import RedisServer

RECORDED = [json.loads(line) for line in PBS["hook-lines.jsonl"].splitlines()]
POSTQUEUEJOB = 0x8000000
FAST_S = 10.0  # it takes milliseconds; what waits for a server, waits for longer
"""Bound on one run of the hook; it takes less than a millisecond."""


class Accepted(SystemExit):
    """What accept() raises inside PBS."""


class Attributes:
    """A job as PBS gives it: an attribute that is not set is None, some cannot be read."""

    def __init__(self, texts: dict[str, str], unreadable: tuple[str, ...] = ()) -> None:
        self.texts = texts
        self.unreadable = unreadable

    def __getattr__(self, name: str) -> Any:
        if name in self.unreadable:
            raise RuntimeError("no such attribute in this event")
        return self.texts.get(name)


class Event:
    def __init__(self, line: dict[str, Any], unreadable: tuple[str, ...] = ()) -> None:
        self.type = line["type"]
        self.accepted = 0
        if "job" in line:
            self.job = Attributes(line["job"], unreadable)

    def accept(self) -> None:
        self.accepted += 1
        raise Accepted

    def reject(self, *_: object) -> None:
        raise AssertionError("a hook must not reject")


def run_hook(spool: Path, event: Event, monkeypatch: pytest.MonkeyPatch) -> float:
    """Run the hook as PBS does; seconds that it took."""
    pbs = types.ModuleType("pbs")
    pbs.event = lambda: event  # type: ignore[attr-defined]
    pbs.logmsg = lambda *_: None  # type: ignore[attr-defined]
    pbs.LOG_DEBUG = 4  # type: ignore[attr-defined]
    pbs.POSTQUEUEJOB = 0x8000000  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pbs", pbs)
    code = compile(hook_text(HookSettings(spool)), "hook", "exec")
    begin = time.perf_counter()
    with pytest.raises(Accepted):
        exec(code, {"__name__": "hook"})
    assert event.accepted == 1
    return time.perf_counter() - begin


def test_each_recorded_event_is_noted_as_it_was_in_pbs(tmp_path: Path, monkeypatch) -> None:
    spool = tmp_path / "spool"
    for line in RECORDED:
        assert run_hook(spool, Event(line), monkeypatch) < FAST_S
    noted = [one for one in map(json.loads, spool.read_text().splitlines()) if "job" in one]
    # Of an array's job, PBS tells each time that it tries to start it.
    told = [
        line for line in RECORDED
        if line["type"] != POSTQUEUEJOB or not re.search(r"\[\d+\]", line["job"]["id"])
    ]  # fmt: skip
    assert len(told) < len(RECORDED)
    for before, after in zip(told, noted, strict=True):
        assert {k: before[k] for k in ("type", "job")} == {k: after[k] for k in ("type", "job")}
    assert stat.S_IMODE(spool.stat().st_mode) & 0o007 == 0


def test_an_unreadable_attribute_is_skipped(tmp_path: Path, monkeypatch) -> None:
    spool = tmp_path / "spool"
    run_hook(spool, Event(RECORDED[0], unreadable=("euser", "Resource_List")), monkeypatch)
    assert set(RECORDED[0]["job"]) - set(json.loads(spool.read_text())["job"]) == {
        "euser", "Resource_List",
    }  # fmt: skip


def test_a_spool_that_cannot_be_written_does_not_reject_or_delay(
    tmp_path: Path, monkeypatch
) -> None:
    event = RECORDED[0]
    assert run_hook(tmp_path / "no" / "folder", Event(event), monkeypatch) < FAST_S
    (tmp_path / "folder").mkdir()
    assert run_hook(tmp_path / "folder", Event(event), monkeypatch) < FAST_S
    os.mkfifo(tmp_path / "pipe")  # nobody reads it: opening it plainly would wait for ever
    assert run_hook(tmp_path / "pipe", Event(event), monkeypatch) < FAST_S
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    assert run_hook(tmp_path / "link", Event(event), monkeypatch) < FAST_S
    assert not target.exists()
    (tmp_path / "other").write_text("somebody's\n")
    (tmp_path / "second-name").hardlink_to(tmp_path / "other")
    assert run_hook(tmp_path / "second-name", Event(event), monkeypatch) < FAST_S
    assert (tmp_path / "other").read_text() == "somebody's\n"
    full = tmp_path / "full"
    with full.open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    assert run_hook(full, Event(event), monkeypatch) < FAST_S
    assert full.stat().st_size == 256 * 1024 * 1024


def test_an_event_of_unknown_shape_is_accepted(tmp_path: Path, monkeypatch) -> None:
    spool = tmp_path / "spool"
    event = Event({"type": "not a number"})
    run_hook(spool, event, monkeypatch)
    (said,) = map(json.loads, spool.read_text().splitlines())
    assert "job" not in said
    assert said["fault"].startswith("take_in: ValueError")


@pytest.mark.redis
def test_lines_reach_redis_in_order_though_it_is_slow_and_then_down(
    tmp_path: Path, monkeypatch
) -> None:
    redis = RedisServer(tmp_path)
    redis.begin()
    assert redis.process is not None
    spool = tmp_path / "spool"
    stop = threading.Event()
    reader = RedisLines(redis.url, "news")
    assert reader.read(0.01) == []
    shipping = threading.Thread(
        target=ship, args=(Spool(spool), redis.url, "news", stop), daemon=True
    )
    shipping.start()

    def note(first: int, last: int) -> float:
        """The longest that the hook took."""
        took = []
        for number in range(first, last):
            line = {**RECORDED[0], "job": {"id": f"{number}.x"}}
            took.append(run_hook(spool, Event(line), monkeypatch))
        return max(took)

    try:
        assert note(0, 20) < FAST_S
        deadline = time.monotonic() + 120
        lines: list[str] = []
        while len(lines) < 20 and time.monotonic() < deadline:
            lines += reader.read(0.2)
        os.kill(redis.process.pid, signal.SIGSTOP)  # it takes connections and never answers
        assert note(20, 40) < FAST_S
        os.kill(redis.process.pid, signal.SIGCONT)
        redis.end()
        assert note(40, 60) < FAST_S
        redis.begin()
        while time.monotonic() < deadline:
            lines += reader.read(0.2)
            if lines and '"59.x"' in lines[-1]:
                break
    finally:
        stop.set()
        shipping.join(120)
        reader.close()
        redis.end()
    ids = [int(json.loads(line)["job"]["id"].partition(".")[0]) for line in lines]
    assert set(ids) == set(range(60))
    first_seen = list(dict.fromkeys(ids))
    assert first_seen == sorted(first_seen)
