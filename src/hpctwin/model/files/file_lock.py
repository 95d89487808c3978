"""Lock files: a process holds one for as long as it lives.

The library filelock locks in the same way, but does not say who has the lock, as messages must.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

__all__ = ["FileLock"]


class FileLock:
    """A lock that the system takes back when its holder dies, for any reason.

    The file itself stays and means nothing; it names the last holder, for messages only. Over NFS
    the server keeps the lock, so it holds between hosts (unless mounted with ``local_lock``).

    Args:
        path: File; created with mode 0600.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> str | None:
        """Take the lock if it is free; return the reason if that fails."""
        if self.held():
            return None
        self.release()
        # A file that was deleted between opening and locking would lock nothing.
        for _ in range(10):
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self.path, flags, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = self._holder()
                self.release()
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES) and holder:
                    return f"{holder} has the lock {self.path}"
                return f"{self.path}: cannot be locked: {error.strerror}"
            if self.held():
                me = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, me, 0)
                return None
            self.release()
        return f"{self.path}: is deleted again and again"

    def held(self) -> bool:
        """Return whether this object has the lock, and the file is still at its path."""
        if self._file is None:
            return False
        try:
            mine, there = os.fstat(self._file), os.stat(self.path)
        except OSError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _holder(self) -> str:
        """Return the holder's name from the file."""
        if self._file is None:
            return ""
        try:
            return (
                os.pread(self._file, 200, 0).decode(errors="replace").strip() or "another process"
            )
        except OSError:
            return "another process"
