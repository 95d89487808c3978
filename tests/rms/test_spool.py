"""The spool: each whole line once, in order, through restarts, rotation and truncation."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.rms.polling import spool as spool_module
from hpctwin.rms.polling.spool import Spool, checked_path
from hpctwin.rms.settings import HookEventSettings
from hpctwin.twin.service.service import open_lines


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_whole_lines_are_given_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    assert spool.read(0.0) == []
    append(path, "one\ntwo\nthr")
    assert spool.read(0.0) == ["one", "two"]
    append(path, "ee\n")
    assert spool.read(0.0) == ["three"]
    assert spool.read(0.0) == []


def test_a_restarted_reader_continues_after_the_processed_events(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spool"
    append(path, "one\n")
    first = Spool(path)
    assert first.read(0.0) == ["one"]
    first.keep_place()
    append(path, "two\n")
    assert first.read(0.0) == ["two"]  # read, but not dealt with when it dies
    append(path, "three\n")
    assert Spool(path).read(0.0) == ["two", "three"]
    (tmp_path / "spool.place").write_text("{broken")
    assert Spool(path).read(0.0) == ["one", "two", "three"]


def test_a_recreated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    append(path, "one\ntwo\n")
    spool = Spool(path)
    spool.read(0.0)
    path.unlink()
    append(path, "new\n")
    assert spool.read(0.0) == ["new"]


def test_no_line_is_lost_when_a_large_file_is_rotated_under_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "ROTATE_BYTES", 200)
    path = tmp_path / "spool"
    count = 2000
    writer = threading.Thread(
        target=lambda: [append(path, f"line {i}\n") for i in range(count)], daemon=True
    )
    spool = Spool(path)
    writer.start()
    seen: list[str] = []
    until = time.monotonic() + 120
    while len(set(seen)) < count and time.monotonic() < until:
        seen += spool.read(0.05)
        spool.keep_place()
    writer.join()
    assert sorted(seen) == sorted(f"line {i}" for i in range(count))
    spool.keep_place()
    assert not path.exists() or path.stat().st_size < 400


def test_the_place_can_be_kept_where_the_reader_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "slurms"
    folder.mkdir()
    path, place = folder / "spool", tmp_path / "j.sqlite.news"
    may = os.access
    # Mode 0750, and we are of the group.
    monkeypatch.setattr(
        spool_module.os,
        "access",
        lambda p, mode: may(p, mode) and not (p == folder and mode & os.W_OK),
    )
    with pytest.raises(
        ConfigError, match="the folder for the read position is missing or not writable"
    ):
        Spool(path)
    monkeypatch.setattr(spool_module, "ROTATE_BYTES", 5)
    append(path, "one\ntwo\n")
    first = Spool(path, place)
    assert first.read(0.0) == ["one", "two"]
    first.keep_place()
    append(path, "three\n")
    assert Spool(path, place).read(0.0) == ["three"]
    assert [p.name for p in folder.iterdir()] == ["spool"]  # nor is it put aside


def test_a_twin_keeps_its_position_in_the_event_feed_next_to_its_journal(tmp_path: Path) -> None:
    (tmp_path / "news").mkdir()
    settings = HookEventSettings(spool=tmp_path / "news" / "events.jsonl")
    lines = open_lines(settings, tmp_path / "j.sqlite")
    append(tmp_path / "news" / "events.jsonl", "one\n")
    assert lines.read(0.0) == ["one"]
    lines.keep_place()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["j.sqlite.news.place", "news"]


def test_a_folder_that_is_not_there_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the folder for the read position is missing"):
        Spool(tmp_path / "no" / "spool")


@pytest.mark.parametrize("path", ["relative", "/a b", '/a"b', "/a/../b", "/a$(id)"])
def test_a_path_that_would_say_more_in_a_script_is_rejected(path: str) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        checked_path(Path(path))
