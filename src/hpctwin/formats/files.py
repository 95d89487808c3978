"""Files: read, decompress and decode them; write them whole or not at all.

Errors name the cause. XML is untrusted: it is read without entities and external files.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import importlib
import io
import json
import lzma
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast
from xml.parsers import expat

from hpctwin.errors import ConfigError, OutputError, TraceError
from hpctwin.model.files import cause, write_atomically

STANDARD_INPUT = Path("-")
PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed files that are read and written."""
_ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz")
_LINE = 256


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressed; ``-`` is the standard input.

    The content, not the name, shows how it is compressed.

    Raises:
        TraceError: The file cannot be opened, is empty, cut off or corrupt, or an archive of
            several files.
    """
    try:
        with open_binary(path) as file:
            content = file.read()
    except READING as error:
        raise unreadable(path, error) from error
    if not content[:_LINE].strip() and not content.strip():
        raise TraceError(path, "the file is empty")
    return content


def first_bytes(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first decompressed bytes of a file; nothing if it cannot be read.

    The reader of the whole file reports the reason.
    """
    try:
        with open_binary(path) as file:
            return file.read(size)
    except (*READING, TraceError):
        return b""


def check_readable(path: Path) -> None:
    """Check that a file can be opened and decompressed."""
    try:
        with open_binary(path) as file:
            empty = not file.read(1)
    except READING as error:
        raise unreadable(path, error) from error
    if empty and path == STANDARD_INPUT:
        raise TraceError(path, "the file is empty")


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed.

    An archive's only member is opened, and UTF-16 is read as UTF-8.

    Raises:
        TraceError: The file is an archive of several files, or its compression is not supported.
    """
    if path == STANDARD_INPUT or path.is_fifo():
        # It can be read once, but recognizing the format and reading it are two passes.
        return _unpacked(path, io.BytesIO(_piped(path)))
    with path.open("rb") as file:
        packing = _packing(file.read(tarfile.BLOCKSIZE))
    if packing is None:
        return path.open("rb")
    return _unpacked(path, packing(path, path))


def _unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """Return a file's content, even if it was compressed several times."""
    packing = _packing(file.read(tarfile.BLOCKSIZE))
    file.seek(0)
    return file if packing is None else _unpacked(path, packing(path, file))


Packing = Callable[[Path, Any], BinaryIO]
"""Function that opens a compressed file.

It takes the path for messages, and that path or an open file.
"""


def _packing(start: bytes) -> Packing | None:
    """Return the opener for a file that begins so; None if it is not compressed."""
    if start[257:262] == b"ustar":
        return _from_tar
    return next((one for magic, one in _PACKINGS.items() if start.startswith(magic)), None)


def _from_gzip(path: Path, source: Any) -> BinaryIO:
    name, file = (source, None) if source is path else (None, source)
    return cast(BinaryIO, gzip.GzipFile(name, "rb", fileobj=file))


def _from_zip(path: Path, source: Any) -> BinaryIO:
    with zipfile.ZipFile(source) as archive:
        names = [one.filename for one in archive.infolist() if not one.is_dir()]
        return io.BytesIO(archive.read(_only(path, "zip", names)))


def _from_tar(path: Path, source: Any) -> BinaryIO:
    name, file = (source, None) if source is path else (None, source)
    with tarfile.open(name, fileobj=file) as archive:
        names = [one.name for one in archive if one.isfile()]
        member = archive.extractfile(_only(path, "tar", names))
        assert member is not None
        return io.BytesIO(member.read())


def _from_utf16(path: Path, source: Any) -> BinaryIO:
    content = path.read_bytes() if source is path else source.read()
    return io.BytesIO(content.decode("utf-16").encode())


def _refused(what: str, command: str) -> Packing:
    def refuse(path: Path, source: Any) -> BinaryIO:
        raise TraceError(
            path, f"{what} files are not supported; unpack the file first ({command} {path.name})"
        )

    return refuse


def _only(path: Path, kind: str, names: list[str]) -> str:
    """Return the only file of an archive; files that macOS adds do not count."""
    files = [name for name in names if not name.startswith("__MACOSX/") and "/._" not in f"/{name}"]
    if len(files) == 1:
        return files[0]
    some = ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
    raise TraceError(
        path,
        f"the {kind} archive holds {len(files):,} files{f' ({some})' if files else ''}, expected "
        "one; unpack the archive and give the file, or the folder for a published data set",
    )


def _zstd() -> Any:
    """Return the module for Zstandard; None if there is none."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _from_zstd(path: Path, source: Any) -> BinaryIO:
    module = _zstd()
    if module is not None:
        return cast(BinaryIO, module.open(source))
    import polars as pl  # it decompresses text

    content = path.read_bytes() if source is path else source.read()
    try:
        lines = pl.read_lines(io.BytesIO(content))["line"]
    except pl.exceptions.PolarsError as error:
        why = f"Zstandard of anything but UTF-8 text needs {_ZSTD_NEEDED}"
        raise TraceError(path, why) from error
    return io.BytesIO("".join(f"{line}\n" for line in lines).encode())


_ZSTD_NEEDED = "Python 3.14 or the extra: pip install 'hpctwin[zstd]'"
_PACKINGS: dict[bytes, Packing] = {
    b"\x1f\x8b": _from_gzip,
    b"BZh": lambda _, source: cast(BinaryIO, bz2.BZ2File(source)),
    b"\xfd7zXZ\x00": lambda _, source: cast(BinaryIO, lzma.LZMAFile(source)),  # noqa: SIM115
    b"\x28\xb5\x2f\xfd": _from_zstd,
    b"PK\x03\x04": _from_zip,
    b"PK\x05\x06": _from_zip,  # empty
    codecs.BOM_UTF16_LE: _from_utf16,
    codecs.BOM_UTF16_BE: _from_utf16,
    b"7z\xbc\xaf\x27\x1c": _refused("7-Zip", "7z x"),
    b"Rar!\x1a\x07": _refused("RAR", "unrar x"),
    b"\x1f\x9d": _refused("compress (.Z)", "gzip -d"),
    b"\x04\x22\x4d\x18": _refused("LZ4", "lz4 -d"),
}
"""Openers by the first bytes of a file."""
READING = (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError,
           RuntimeError)  # fmt: skip
"""Errors that reading may raise.

ValueError: a path with a NUL in it; RuntimeError: a zip with a password.
"""


def unreadable(path: Path, error: Exception) -> TraceError:
    """Return the error that says why a file cannot be read, given one of `READING`."""
    if isinstance(error, UnicodeDecodeError):
        return TraceError(
            path, f"it starts like UTF-16 text, but is not valid UTF-16 ({error.reason})"
        )
    if isinstance(error, TraceError):
        return error
    damaged = isinstance(error, EOFError) or not isinstance(error, (OSError, ValueError))
    if damaged or isinstance(error, gzip.BadGzipFile) or getattr(error, "errno", 0) is None:
        return TraceError(path, f"the compressed file is truncated or corrupt ({error})")
    return TraceError(path, cause(error))


@cache
def _piped(path: Path) -> bytes:
    """Return all that comes through the standard input or a pipe."""
    if path != STANDARD_INPUT:
        return path.read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "the standard input is closed")
    return sys.stdin.buffer.read()


def without_packing(name: str) -> str:
    """Return a file's name in lower case without the suffixes for its compression."""
    lower = name.lower()
    while suffix := next((s for s in (*PACKED, *_ARCHIVES) if lower.endswith(s)), None):
        lower = lower.removesuffix(suffix)
    return lower


def decode(path: Path, content: bytes) -> str:
    """Decode UTF-8, with or without byte order mark.

    Raises:
        TraceError: The bytes are not UTF-8; the message gives the line.
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
        TraceError: The file is not JSON; the message gives line and column.
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
    """Write a file atomically, compressed if its name ends in one of `PACKED`."""
    lower = path.name.lower()
    if lower.endswith(".gz"):
        packed = io.BytesIO()
        # No name and time inside: the same workload gives the same file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
            file.write(content)
        content = packed.getvalue()
    elif lower.endswith(".bz2"):
        content = bz2.compress(content)
    elif lower.endswith(".xz"):
        content = lzma.compress(content)
    elif lower.endswith(".zst"):
        module = _zstd()
        if module is None:
            raise OutputError(
                path, f"writing .zst needs {_ZSTD_NEEDED}; .gz, .bz2 and .xz work without it"
            )
        content = module.compress(content)
    with write_atomically(path) as target:
        target.write(content)


def stem(path: Path) -> str:
    """Return the file's name without the suffixes for format and compression."""
    if path == STANDARD_INPUT:
        return "standard input"
    name = path.name[: len(without_packing(path.name))] or path.name
    for suffix in (".swf", ".json", ".csv", ".tsv", ".parquet", ".txt", ".log"):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
    return name


_MOST_DEPTH = 100


@dataclass
class Element:
    """An element.

    Args:
        path: File, for messages.
        tag: Its tag.
        line: Its line, from 1.
        attributes: Its attributes.
        children: Elements inside.
    """

    path: Path
    tag: str
    line: int
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    @property
    def where(self) -> str:
        """File, line and tag with its id, for messages."""
        name = self.attributes.get("id")
        return f"{self.path}, line {self.line}, {self.tag}{f' {name[:60]!r}' if name else ''}"

    def fault(self, what: str) -> ConfigError:
        """Return the error about this element."""
        return ConfigError(f"{self.where}: {what}")

    def text(self, name: str) -> str:
        """Return a required attribute."""
        if name not in self.attributes:
            raise self.fault(f"attribute {name!r} is missing")
        return self.attributes[name]

    def inside(self, *tags: str) -> Iterator[Element]:
        """Yield the elements directly inside that have one of some tags."""
        return (child for child in self.children if child.tag in tags)

    def all(self) -> Iterator[Element]:
        """Yield the element and all inside, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.all()


def parse_xml(path: Path, text: str) -> Element:
    """Return the root element of a file.

    Empty lines before the XML declaration, which many of Batsim's files have, are skipped.

    Raises:
        ConfigError: It is not XML, declares entities, or is nested too deeply.
    """
    skipped = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    lines_before = text.count("\n", 0, skipped)
    parser = expat.ParserCreate()
    open_elements: list[Element] = []
    roots: list[Element] = []

    def line() -> int:
        return parser.CurrentLineNumber + lines_before

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(path, tag, line(), attributes)
        if len(open_elements) >= _MOST_DEPTH:
            raise element.fault(f"nested more than {_MOST_DEPTH} levels deep")
        (open_elements[-1].children if open_elements else roots).append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements.pop()

    def entity(name: str, *_: object) -> NoReturn:
        raise ConfigError(
            f"{path}, line {line()}: the file declares the entity {name[:40]!r}; "
            "replace it by its text"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = entity
    try:
        # The text is already decoded; the declaration of its encoding is ignored.
        parser.Parse(text[skipped:].encode(), True)
    except expat.ExpatError as error:
        said = expat.ErrorString(error.code)
        raise ConfigError(f"{path}, line {error.lineno + lines_before}: not XML: {said}") from error
    return roots[0]
