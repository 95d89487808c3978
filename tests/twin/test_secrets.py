"""Nothing secret is written down: passwords in URLs, and what the journal's file lets others read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hpctwin.cli import main
from hpctwin.errors import ConfigError, JournalError
from hpctwin.model.web import without_password
from hpctwin.rms.polling.redis_stream import redis_url
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.settings.config import TwinConfig

PASSWORD = "s3cr€t/pass:word"
URL = "rediss://twin:s3cr%E2%82%ACt%2Fpass%3Aword@redis.example.org:6380/2"
BY_QUERY = "redis://h/0?db=1&password=s3cr%E2%82%ACt"


def test_a_url_loses_its_password_and_nothing_else() -> None:
    assert without_password(URL) == "rediss://twin@redis.example.org:6380/2"
    assert without_password("redis://:hidden@[::1]:6379/0") == "redis://[::1]:6379/0"
    assert without_password(BY_QUERY) == "redis://h/0?db=1"
    assert without_password("unix:///run/redis.sock?db=3") == "unix:///run/redis.sock?db=3"
    assert without_password("redis://localhost:6379/0") == "redis://localhost:6379/0"
    assert without_password("redis://[broken:secret@") == ""


@pytest.mark.parametrize("url", [URL, BY_QUERY])
def test_a_password_in_a_url_reaches_redis_and_nothing_that_is_written(
    url: str, tmp_path: Path
) -> None:
    config = TwinConfig.of(
        {
            "manager": {"kind": "slurm", "events": {"url": url}},
            "bus": {"kind": "redis", "url": url},
        }
    )
    assert config.bus.url == url
    journal = Journal(tmp_path / "j.sqlite")
    with journal.writing():
        journal.settings(config.model_dump(mode="json"), 0.0)
    for text in (
        config.model_dump_json(),
        repr(config),
        str(config.model_dump()),
        str(journal.last_settings()),
        (tmp_path / "j.sqlite-wal").read_bytes().decode(errors="replace"),
    ):
        assert "s3cr" not in text
    journal.close()


def test_a_yaml_error_does_not_quote_the_line(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(f"manager: {{kind: slurm}}\nbus: {{kind: redis, url: '{PASSWORD}\n")
    with pytest.raises(ConfigError, match=r"twin\.yaml, line \d, column \d+: not YAML") as fault:
        TwinConfig.from_yaml(path)
    assert "s3cr" not in str(fault.value)


def test_the_journal_and_the_files_next_to_it_are_readable_by_the_owner_only(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.sqlite"
    mask = os.umask(0o000)
    try:
        journal = Journal(path)
        with journal.writing():
            journal.latest("status", {}, 0.0)
        beside = sorted(tmp_path.iterdir())
        assert [p.name for p in beside] == ["j.sqlite", "j.sqlite-shm", "j.sqlite-wal"]
        assert {stat.S_IMODE(p.stat().st_mode) for p in beside} == {0o600}
        # One of an earlier version.
        for file in beside:
            file.chmod(0o644)
        Journal(path).close()
        assert {stat.S_IMODE(p.stat().st_mode) for p in beside} == {0o600}
        journal.close()
    finally:
        os.umask(mask)


def test_another_user_is_informed_that_the_journal_is_not_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Journal(tmp_path / "j.sqlite").close()
    monkeypatch.setattr("hpctwin.twin.journal.journal.os.access", lambda *_: False)
    with pytest.raises(JournalError, match="only the twin's user may read its journal"):
        Journal(tmp_path / "j.sqlite", read_only=True)


def test_a_password_on_the_command_line_is_rejected_and_taken_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in ("redis://:s3cr3t@host:6379/0", "redis://host/0?password=s3cr3t"):
        with pytest.raises(SystemExit) as stop:
            main(["rms", "forward", str(tmp_path / "spool"), "--url", url])
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert "--url-file" in said
        assert "s3cr3t" not in said
    monkeypatch.delenv("HPCTWIN_REDIS_URL", raising=False)
    assert redis_url(None, None) == "redis://localhost:6379/0"
    assert redis_url("rediss://ship@host:6380/1", None) == "rediss://ship@host:6380/1"
    monkeypatch.setenv("HPCTWIN_REDIS_URL", URL)
    assert redis_url(None, None) == URL
    path = tmp_path / "url"
    path.write_text("redis://:from-file@host/0\n")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        redis_url(None, path)
    path.chmod(0o600)
    assert redis_url(None, path) == "redis://:from-file@host/0"
    with pytest.raises(ConfigError, match="give one of them"):
        redis_url("redis://host", path)
