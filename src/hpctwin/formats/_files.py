"""Files: read whole, decompressed and decoded with faults named; written all or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import json
import struct
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from hpctwin.errors import TraceError
from hpctwin.model.files import cause, write_atomically

__all__ = [
    "STANDARD_INPUT", "decode", "first_bytes", "open_binary", "read_bytes", "read_json", "stem",
    "write_bytes",
]  # fmt: skip

STANDARD_INPUT = Path("-")
_GZIP_MAGIC = b"\x1f\x8b"
_LINE = 256


def read_bytes(path: Path) -> bytes:
    """Read a file; what starts as gzip does is decompressed, whatever its name.

    ``-`` is the standard input.

    Raises:
        TraceError: the file cannot be opened, is empty, or its gzip data is cut off or corrupt.
    """
    try:
        content = _standard_input() if path == STANDARD_INPUT else path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise TraceError(path, cause(error)) from error
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error, struct.error) as error:
            raise TraceError(path, f"the gzip file is cut off or corrupt ({error})") from error
    if not content[:_LINE].strip() and not content.strip():
        raise TraceError(path, "the file is empty")
    return content


def first_bytes(path: Path, size: int = 1 << 16) -> bytes:
    """What a file begins with, decompressed; nothing if it cannot be read, which its reader will say."""
    try:
        with open_binary(path) as file:
            return file.read(size)
    except (OSError, ValueError, EOFError, zlib.error):
        return b""


def open_binary(path: Path) -> BinaryIO:
    """A file for reading, decompressed if it begins as gzip does; a standard input is read whole."""
    if path == STANDARD_INPUT:
        return io.BytesIO(read_bytes(path))
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")


@cache
def _standard_input() -> bytes:
    """All of it: it can be read once, and telling the format and reading are two readings."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "the standard input is closed")
    return sys.stdin.buffer.read()


def decode(path: Path, content: bytes) -> str:
    """Decode UTF-8, with or without byte order mark.

    Raises:
        TraceError: the bytes are not UTF-8; the message gives the line.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TraceError(
            path,
            f"found the byte 0x{error.object[error.start]:02x}, expected UTF-8 text",
            line=line,
        ) from error


def read_json(path: Path) -> Any:
    """Read one JSON document.

    Raises:
        TraceError: the file is not JSON; the message gives line and column.
    """
    text = decode(path, read_bytes(path))

    def not_a_number(constant: str) -> NoReturn:
        raise TraceError(path, f"found {constant}, expected a finite number")

    try:
        return json.loads(text, parse_constant=not_a_number)
    except json.JSONDecodeError as error:
        raise TraceError(
            path, f"not JSON: {error.msg} (column {error.colno})", line=error.lineno
        ) from error
    except RecursionError as error:
        raise TraceError(path, "the JSON is nested too deeply for a workload") from error
    except TraceError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise TraceError(path, f"not a usable JSON number: {error}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, compressed if its name ends in ``.gz``.

    Raises:
        OutputError: the file cannot be written.
    """
    if path.name.lower().endswith(".gz"):
        packed = io.BytesIO()
        # No name and time inside: the same workload gives the same file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
            file.write(content)
        content = packed.getvalue()
    with write_atomically(path) as target:
        target.write(content)


def stem(path: Path) -> str:
    """The file's name without the endings that tell its format."""
    if path == STANDARD_INPUT:
        return "standard input"
    name = path.name
    for suffix in (".gz", ".swf", ".json", ".csv", ".parquet", ".txt"):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
    return name
