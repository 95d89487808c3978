"""What commands that run for long log: as text or as JSON, from a level on, and nothing secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from hpctwin.cli.logs import LogOptions
from tests.cli.test_shape import COMMANDS, options

logger = logging.getLogger("hpctwin.twin.some")


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[LogOptions], None]]:
    """Begins to log as in a process of its own, without the handlers that pytest has while a test runs."""
    root = logging.getLogger()
    level = root.level

    def begin(how: LogOptions) -> None:
        monkeypatch.setattr(root, "handlers", [])
        how.begin()

    yield begin
    root.setLevel(level)


def test_each_json_line_is_an_object_with_time_level_logger_message_and_fault(
    begin: Callable[[LogOptions], None], capsys: pytest.CaptureFixture[str]
) -> None:
    begin(LogOptions(log_format="json"))
    logger.debug("not this")
    logger.warning("the controller has %d jobs,\nand one more", 3)
    try:
        raise OSError("no answer")
    except OSError:
        logger.exception("a look failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"]) == ("warning", "hpctwin.twin.some")
    assert first["message"] == "the controller has 3 jobs,\nand one more"
    assert datetime.fromisoformat(first["time"]).utcoffset() is not None
    assert "fault" not in first
    assert second["fault"].splitlines()[-1] == "OSError: no answer"


def test_text_logs_have_time_level_and_message_from_the_level_up(
    begin: Callable[[LogOptions], None], capsys: pytest.CaptureFixture[str]
) -> None:
    begin(LogOptions(log_level="error"))
    logger.warning("not this")
    logger.error("this")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" ERROR this")


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_password_in_a_url_is_not_logged(
    kind: str, begin: Callable[[LogOptions], None], capsys: pytest.CaptureFixture[str]
) -> None:
    begin(LogOptions(log_format=kind))  # type: ignore[arg-type]
    logger.info("Redis at %s is away", "rediss://twin:s3cret@redis.example.org:6380/2")
    try:
        raise OSError("redis://:s3cret@localhost refused")
    except OSError:
        logger.exception("away")
    told = capsys.readouterr().err
    assert "s3cret" not in told
    assert "rediss://twin@redis.example.org:6380/2 is away" in told


def test_each_command_that_runs_until_it_is_ended_lets_its_log_be_chosen() -> None:
    chosen = {
        name
        for name, command in COMMANDS.items()
        if {"--log-level", "--log-format"}
        <= {text for one in options(command) for text in one.names}
    }
    assert chosen == {"twin run", "facility run", "rms forward", "rms emulate", "serve"}
