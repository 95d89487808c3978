"""Files: written whole or not at all, written in parts, or locked.

Libraries write single files whole (atomicwrites is abandoned by its author), but none handles
folders, pipes and modes. The library filelock locks in the same way, but does not say who has the
lock, as messages must.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from hpctwin._version import __version__
from hpctwin.errors import HpctwinError, OutputError

if TYPE_CHECKING:
    import polars as pl


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
        return f"{self.path}: another process keeps deleting the file"

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


_LONGEST_STEM = (
    180  # with prefix and suffix, a temporary name stays within the 255 bytes of file systems
)


@contextmanager
def write_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """Give a buffer for a file's bytes; write the file if there was no error.

    A reader of the path meanwhile sees the old file or none, never half of the new one. A new file
    has the mode that the umask gives, an old one keeps its mode. A link stays, and its target is
    replaced. A path that is no file but can be written, such as a pipe, is written directly.

    Raises:
        OutputError: The file cannot be written.
    """
    # Libraries that write into a file report a full disk as an error of their own; in memory they
    # do not.
    content = io.BytesIO()
    yield content
    named = Path(path)
    try:
        target = named.resolve() if named.is_symlink() else named
        if target.exists() and not target.is_file():
            with target.open("wb") as file, content.getbuffer() as view:
                file.write(view)
            return
        temporary = _beside(target)
        try:
            with temporary.open("xb") as file, content.getbuffer() as view:
                file.write(view)
            with suppress(FileNotFoundError):
                temporary.chmod(target.stat().st_mode & 0o7777)
            temporary.replace(target)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise OutputError(named, cause(error)) from error


def put_file(source: Path, path: str | Path) -> None:
    """Write a copy of a file of any size atomically."""
    target = Path(path)
    try:
        temporary = _beside(target)
        try:
            shutil.copyfile(source, temporary)
            temporary.replace(target)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise OutputError(target, cause(error)) from error


@contextmanager
def write_folder(folder: str | Path) -> Iterator[Path]:
    """Give a folder for files; move them to ``folder`` if there was no error.

    Files of the same name are replaced, others stay. After an error, no new file and no new folder
    is left.
    """
    target = Path(folder)
    made: list[Path] = []
    try:
        there = target.exists()
        if there and not target.is_dir():
            raise OutputError(target, "it is a file, but a folder is needed")
        made = _make_parents(target.parent)
        temporary = target / f".{secrets.token_hex(4)}" if there else _beside(target)
        temporary.mkdir()
        try:
            yield temporary
            if there:
                _move_files(temporary, target)
            else:
                _rename_folder(temporary, target)
            made = []
        except OutputError as error:
            within = Path(error.path)
            if within.is_relative_to(temporary):
                within = target / within.relative_to(temporary)
            raise OutputError(within, error.reason) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except HpctwinError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(target, cause(error)) from error
    finally:
        for empty in made:
            with suppress(OSError):
                empty.rmdir()


def check_file(path: str | Path) -> None:
    """Check before the work that a file can be written after it; nothing is written."""
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(target, "it is a folder, but a file is needed")
        if not target.parent.is_dir():
            reason = "is a file" if target.parent.exists() else "is not there"
            raise OutputError(target, f"the folder {target.parent} {reason}")
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            raise OutputError(target, "permission denied")
    except HpctwinError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(target, cause(error)) from error


def check_folder(path: str | Path) -> None:
    """Check before the work that a folder can be written into after it.

    Nothing is written.
    """
    target = Path(path)
    try:
        near = target
        while not near.exists() and near != near.parent:
            near = near.parent
        if not near.is_dir():
            at = "it" if near == target else str(near)
            raise OutputError(target, f"{at} is a file, but a folder is needed")
        if not os.access(near, os.W_OK | os.X_OK):
            raise OutputError(target, f"permission denied in {near}")
    except HpctwinError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(target, cause(error)) from error


def cause(error: Exception) -> str:
    """Return the system's message for an error, without its number."""
    return getattr(error, "strerror", None) or str(error)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:_LONGEST_STEM]}.{secrets.token_hex(4)}")


def _make_parents(folder: Path) -> list[Path]:
    """Create a folder and those above it; return the created ones, the deepest first."""
    lacking = []
    while not folder.exists():
        lacking.append(folder)
        folder = folder.parent
    for one in reversed(lacking):
        one.mkdir(exist_ok=True)
    return lacking


def _rename_folder(source: Path, target: Path) -> None:
    try:
        source.replace(target)
    except OSError as error:
        if target.exists():
            reason = "another process has written it meanwhile; use another folder, or try again"
            raise OutputError(target, reason) from error
        raise


def _move_files(source: Path, target: Path) -> None:
    lock = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Files of two processes must not mix. Some network file systems cannot lock folders.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        _move_each(source, target)
    finally:
        os.close(lock)


def _move_each(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        moved = target / path.relative_to(source)
        if path.is_dir():
            moved.mkdir(exist_ok=True)
        else:
            path.replace(moved)


def other_format(path: Path, found: object, reads: int, writer: object = None) -> str:
    """Return the message about a file in a format that this version does not read."""
    by = "" if writer is None else f", written by hpctwin {writer}"
    return (
        f"{path}: format {found}{by}; this is hpctwin {__version__}, which reads format {reads}: "
        "use the version that wrote it, or create it again"
    )


class Parts:
    """Parquet files by table in a folder; a context manager.

    The files are ``TABLE/part-000000.parquet`` and so on.

    Args:
        folder: Folder; `begin` creates it if it is missing.

    Raises:
        OutputError: It has parts already, or could not be created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._check()
        check_folder(folder)
        self._lock = FileLock(folder / ".lock")
        self.written: dict[str, int] = {}
        self._thread = ThreadPoolExecutor(1, "hpctwin-parts")
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        if self._lock.held():
            self._lock.path.unlink()
        self._lock.release()

    def begin(self) -> None:
        """Create the folder, and lock it until the end."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(self.folder, error.strerror or str(error)) from error
        if (holder := self._lock.take()) is not None:
            raise OutputError(self.folder, f"another run writes to it: {holder}")
        self._check()

    def _check(self) -> None:
        there = next(self.folder.glob("*/part-*.parquet"), None)
        if there is not None:
            raise OutputError(there, "it belongs to another run; use another folder, or remove it")

    def write(self, **tables: pl.DataFrame) -> None:
        """Write the next part of some tables.

        If a part is being written, this one follows after it.
        """
        self.finish()
        self._last = self._thread.submit(self._write, tables)

    def finish(self) -> None:
        """Wait until all is written."""
        if self._last is not None:
            last, self._last = self._last, None
            last.result()

    def _write(self, tables: dict[str, pl.DataFrame]) -> None:
        for name, table in tables.items():
            if not len(table) and name in self.written:
                continue
            number = self.written.get(name, 0)
            path = self.folder / name / f"part-{number:06}.parquet"
            path.parent.mkdir(exist_ok=True)
            with write_atomically(path) as file:
                table.write_parquet(file, compression="zstd", compression_level=1)
            self.written[name] = number + 1
