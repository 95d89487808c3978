"""Logging of long-running commands on standard error, and their end by signals.

A message is one line. Python's logging is used, with JSON as one formatter. Both formatters remove
secrets.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from hpctwin.model.web import without_password

__all__ = ["LogOptions", "set_when_asked_to_end"]

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+")


@Parameter(name="*")
@dataclass(frozen=True)
class LogOptions:
    """Level and format of the log."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Parameter(group="Log", env_var="HPCTWIN_LOG_LEVEL"),
    ] = "info"
    """Minimum level of logged messages."""
    log_format: Annotated[
        Literal["text", "json"], Parameter(group="Log", env_var="HPCTWIN_LOG_FORMAT")
    ] = "text"
    """Log lines of text, or JSON objects with time, level, logger, message and fault."""

    def begin(self) -> None:
        """Start logging with these options."""
        handler = logging.StreamHandler()
        handler.setFormatter(_Objects() if self.log_format == "json" else _Lines())
        logging.basicConfig(level=self.log_level.upper(), handlers=[handler])


def set_when_asked_to_end() -> threading.Event:
    """Return an event that is set by the signals that ask the process to end."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


class _Lines(logging.Formatter):
    """Formatter of time, level and message, without passwords in URLs."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return _safe(super().format(record))


class _Objects(_Lines):
    """The same as JSON objects, with times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _safe(record.getMessage()),
        }
        if record.exc_info:
            told["fault"] = _safe(self.formatException(record.exc_info))
        return json.dumps(told, ensure_ascii=False)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        from datetime import UTC, datetime

        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _safe(text: str) -> str:
    return _URL.sub(lambda found: without_password(found[0]), text)
