"""How commands that run for long tell what happens, on standard error, a line each; and how they are ended.

By Python's own logging; JSON is one class of it, and secrets are taken out of either form.
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

from hpctwin.model.files.secrets import without_password

__all__ = ["LogOptions", "set_when_asked_to_end"]

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+")


@Parameter(name="*")
@dataclass(frozen=True)
class LogOptions:
    """What is logged, and how."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Parameter(group="Log", env_var="HPCTWIN_LOG_LEVEL"),
    ] = "info"
    """The least that is logged."""
    log_format: Annotated[
        Literal["text", "json"], Parameter(group="Log", env_var="HPCTWIN_LOG_FORMAT")
    ] = "text"
    """A line of text, or a JSON object a line: time, level, logger, message, and fault where there is one."""

    def begin(self) -> None:
        """Log so from now on."""
        handler = logging.StreamHandler()
        handler.setFormatter(_Objects() if self.log_format == "json" else _Lines())
        logging.basicConfig(level=self.log_level.upper(), handlers=[handler])


def set_when_asked_to_end() -> threading.Event:
    """What is set by the signals that ask a process to end."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


class _Lines(logging.Formatter):
    """Time, level, message; passwords in URLs are left out."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return _safe(super().format(record))


class _Objects(_Lines):
    """The same as JSON objects, times in UTC."""

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
