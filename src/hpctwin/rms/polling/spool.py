"""Local file to which hooks append lines; each is read once, across restarts."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from pathlib import Path
from typing import Protocol

from hpctwin.errors import ConfigError
from hpctwin.model import write_atomically

logger = logging.getLogger(__name__)

STEP_S = 0.01
"""Pause between two checks of the file's length."""
ROTATE_BYTES = 32 * 1024 * 1024
MOST_AT_ONCE = 4 * 1024 * 1024


_PATH = re.compile(r"/[A-Za-z0-9._/-]{1,200}")


def checked_path(path: Path) -> Path:
    """Return a path that is safe to write into a script as it is."""
    if not _PATH.fullmatch(str(path)) or ".." in path.parts:
        raise ConfigError(
            f"spool {path}: expected an absolute path of letters, digits, and . _ - /"
        )
    return path


class Lines(Protocol):
    """Source of pushed lines."""

    def read(self, timeout_s: float) -> list[str]:
        """Return new lines after at most ``timeout_s`` seconds; none if there are none."""

    def keep_place(self) -> None:
        """Record that all lines read so far are processed: begin after them next time."""

    def close(self) -> None:
        """Close the connections."""


class Tail:
    """Reads a file to which others append whole lines, each line once.

    If the file was replaced or has become shorter, it is read from its start.

    Args:
        path: Path of the file, which need not exist yet.
        inode, place: Inode of the file read so far, and number of its bytes read.
    """

    def __init__(self, path: Path, inode: int = 0, place: int = 0) -> None:
        self.path, self.inode, self.place = path, inode, place

    @classmethod
    def at_end(cls, path: Path) -> Tail:
        """Return a reader that skips the current content of the file."""
        try:
            about = path.stat()
        except FileNotFoundError:
            return cls(path)
        return cls(path, about.st_ino, about.st_size)

    def lines(self) -> list[str]:
        """Return new whole lines; none if there are none, or the file does not exist."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self.inode or about.st_size < self.place:
                    self.inode, self.place = about.st_ino, 0
                if about.st_size == self.place:
                    return []
                file.seek(self.place)
                data = file.read(MOST_AT_ONCE)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == MOST_AT_ONCE:
            # No line is that long: hpctwin did not write it.
            end = len(data)
        self.place += end
        return data[:end].decode("utf-8", errors="replace").splitlines()


class Spool:
    """Reads a file to which others append whole lines.

    The position is saved, so that a restarted reader continues where it stopped. A large file that
    has been read to its end is moved aside. It is deleted once no writer can still be writing to
    it, if the reader may write in its folder. Otherwise that is left to logrotate.

    Args:
        path: Path of the file, which need not exist yet.
        place: File for the saved position, by default next to ``path``. Its name gets the ending
            ``.place``.

    Raises:
        ConfigError: The folder of one of them does not exist, or the position cannot be saved.
    """

    def __init__(self, path: Path, place: Path | None = None) -> None:
        self.path = path
        place = path if place is None else place
        self._place_path = place.with_name(place.name + ".place")
        if not os.access(place.parent, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{place.parent}: the folder for the read position is missing or not writable"
            )
        if not os.access(path.parent, os.X_OK):
            raise ConfigError(f"{path.parent}: the folder is missing or not readable")
        self._rotates = os.access(path.parent, os.W_OK)
        self._tail = Tail(path, *self._kept_place())

    def read(self, timeout_s: float) -> list[str]:
        """Return new whole lines, as soon as there are any."""
        give_up = time.monotonic() + timeout_s
        while True:
            lines = self._tail.lines()
            if lines or time.monotonic() >= give_up:
                return lines
            time.sleep(min(STEP_S, max(0.0, give_up - time.monotonic())))

    def keep_place(self) -> None:
        """Save the position; move a large file aside."""
        with write_atomically(self._place_path) as file:
            file.write(json.dumps({"inode": self._tail.inode, "place": self._tail.place}).encode())
        if self._tail.place >= ROTATE_BYTES and self._rotates:
            self._rotate()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _kept_place(self) -> tuple[int, int]:
        try:
            kept = json.loads(self._place_path.read_bytes())
            return int(kept["inode"]), int(kept["place"])
        except FileNotFoundError:
            return 0, 0
        except (ValueError, KeyError, TypeError) as error:
            # Lines read twice do no harm: their content is known already.
            logger.warning(
                "%s cannot be read; reading all lines again: %s", self._place_path, error
            )
            return 0, 0

    def _rotate(self) -> None:
        """Move the file aside if it was read to its end.

        Writers open the file again for every write.
        """
        aside = self.path.with_name(self.path.name + ".old")
        if self.path.stat().st_size != self._tail.place:
            return
        self.path.rename(aside)
        # A writer that opened it before the rename has finished long before this.
        time.sleep(0.05)
        with aside.open("rb") as file:
            file.seek(self._tail.place)
            late = file.read()
        if late:
            # Append to the new file: it began a moment ago at most, so nothing is ahead of these
            # lines.
            with self.path.open("ab") as file:
                file.write(late)
        aside.unlink()
        self._tail = Tail(self.path)
