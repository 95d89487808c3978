"""SWF lines as columns of numbers.

If every line is well-formed, all are read at once, else line by line. Large logs are read in one
pass by a compiled function, which is worth loading only for them.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import TraceError
from hpctwin.model.text import count_text

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
"""Fields of SWF 2.2, in the order of the columns."""

WHOLE = ("job number", "preceding job")
"""Fields that are whole numbers."""
_TIMES = ("submit time", "wait time", "run time", "average CPU time", "requested time")
_OTHER_BLANKS = b"\t\v\f"
_LINE_FEED, _SPACE = 10, 32
_BLANKS = b" \t\n\r\v\f"
_PIECE = 1 << 16
_HEAD = 1 << 13
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, eq=False)
class Records:
    """Lines of a log.

    Args:
        columns: One array for each of `FIELDS`: int64 for job numbers, else float64.
        wider: Number of lines with more than 18 fields.
        line: Line numbers, from 1; None if they were not kept.
        skipped: One message for each skipped line.
    """

    columns: dict[str, npt.NDArray[Any]]
    wider: int
    line: IntArray | None = None
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["job number"])


def unify_line_ends(content: bytes) -> bytes:
    """End every line with a line feed, and remove a byte order mark."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return content


def plain_lines(content: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Convert a log of other programs to SWF; its lines keep their numbers.

    - ``#`` begins a comment as ``;`` does.
    - Fields may be separated by ``,``, ``;`` or ``|``; an empty one is unknown.
    - All lines may end after the same field, and the other fields are unknown. This field is the
      11th (status) or a later one. If SWF comments identify the log, it may be the 5th
      (processors).

    Returns:
        The log, and what was assumed.
    """
    if b"#" in content:
        content = _HASH.sub(rb"\1;", content)
    found = _DATA.search(content)
    first = found[1].split() if found else []
    if found is None or len(first) >= len(FIELDS):
        return content, ()
    mark = max((b",", b";", b"|"), key=found[1].count)
    cells = [cell.strip() for cell in found[1].split(mark)]
    separated = len(cells) > max(len(first), _FEWEST - 1)
    if separated and all(not cell or _NUMBER.fullmatch(cell) for cell in cells):
        first = cells

        def blanks(line: re.Match[bytes]) -> bytes:
            return b" ".join(cell.strip() or b"-1" for cell in line[1].split(mark))

        content = _DATA.sub(blanks, content)
    if not _FEWEST <= len(first) < len(FIELDS) or not all(map(_NUMBER.fullmatch, first)):
        return content, ()
    widths = {len(line[1].split()) for line in _DATA.finditer(content)}
    named = _HEADER.search(content) is not None
    if len(widths) > 1 or (len(first) < _STATUS and not named):
        return content, ()
    unknown = b" -1" * (len(FIELDS) - len(first))
    content = _DATA.sub(lambda line: line[1].rstrip() + unknown, content)
    said = (
        f"lines have {len(first)} columns: they were read as the first {len(first)} fields of SWF, from job "
        f"number to {FIELDS[len(first) - 1]}; the others are unknown"
    )
    return content, (said,)


_HASH = re.compile(rb"(?m)^([ \t]*)#")
_DATA = re.compile(rb"(?m)^[ \t]*([^;\s][^\n]*)")
_HEADER = re.compile(rb"(?mi)^[ \t]*;\s*(Version|Computer|Installation|Max\w+|UnixStartTime)\s*:")
_FEWEST = 5
_STATUS = 11


def split_comments(content: bytes) -> tuple[tuple[str, ...], bytes | memoryview]:
    """Separate comment lines from a log, wherever they are.

    Returns:
        The comment lines, from their semicolon on, and all other lines. If the latter are
        contiguous, they are not copied.
    """
    comments: list[bytes] = []
    others: list[memoryview] = []
    view = memoryview(content)
    begin = 0
    found = content.find(b";")
    while found >= 0:
        start = content.rfind(b"\n", 0, found) + 1
        end = content.find(b"\n", found)
        end = len(content) if end < 0 else end
        if not content[start:found].strip():
            comments.append(content[found:end].rstrip())
            others.append(view[begin:start])
            begin = end + 1
        found = content.find(b";", end)
    last = len(content)
    while last > begin and content[last - 1] in _BLANKS:
        last -= 1
    others = [part for part in (*others, view[begin:last]) if len(part)]
    body = others[0] if len(others) == 1 else b"".join(others)
    return tuple(_text(comment) for comment in comments), body


def parse_fast(body: bytes | memoryview) -> Records | None:
    """Parse lines without comments, all at once.

    Returns:
        The records; None if any line is malformed, without saying which.
    """
    body = _squeezed(bytes(body).strip())
    if not body:
        return _empty()
    body, wider = _cut_to_fields(body)
    # Whole numbers are read in half the time, and few logs have others.
    frame = _frame(body, _look_whole(body))
    if frame is None:
        frame = _frame(body, WHOLE)
    if frame is None:
        return None
    columns: dict[str, npt.NDArray[Any]] = {}
    for field in FIELDS:
        series = frame[field]
        if series.null_count():
            return None
        columns[field] = series.to_numpy()
        if field not in WHOLE:
            columns[field] = columns[field].astype(np.float64, copy=False)
            if not np.isfinite(columns[field]).all():
                return None
    return Records(columns, wider)


def _look_whole(body: bytes) -> tuple[str, ...]:
    """Return the fields that are whole numbers in the first lines."""
    first = body[: body.rfind(b"\n", 0, _HEAD) + 1] or body
    rows = [line.split(b" ") for line in first.splitlines()]
    if any(len(row) != len(FIELDS) for row in rows):
        return WHOLE
    columns = zip(FIELDS, zip(*rows, strict=True), strict=True)
    return tuple(f for f, texts in columns if f in WHOLE or b"." not in b"".join(texts))


def _frame(body: bytes, whole: tuple[str, ...]) -> pl.DataFrame | None:
    """Return squeezed lines as a frame, some fields as int64.

    None if any line is malformed.
    """
    schema: dict[str, Any] = {field: pl.Int64 if field in whole else pl.Float64 for field in FIELDS}
    try:
        return pl.read_csv(body, has_header=False, schema=schema, separator=" ", quote_char=None)
    except (pl.exceptions.PolarsError, OSError):  # OSError: it takes the bytes for compressed ones
        return None


def parse_lines(path: Path, content: bytes, *, skip_invalid: bool) -> Records:
    """Parse a log line by line.

    Raises:
        TraceError: A line is malformed and ``skip_invalid`` is false.
    """
    whole = {field: array("q") for field in WHOLE}
    numbers = array("d")
    lines = array("q")
    skipped: list[str] = []
    wider = 0
    for line, tokens in _token_lines(content):
        try:
            values, job, preceding = _parse_line(path, line, tokens)
        except TraceError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
            continue
        whole["job number"].append(job)
        whole["preceding job"].append(preceding)
        numbers.extend(values)
        lines.append(line)
        wider += len(tokens) > len(FIELDS)
    table = np.frombuffer(numbers, np.float64).reshape(-1, len(FIELDS)) if numbers else _no_rows()
    columns: dict[str, npt.NDArray[Any]] = {
        field: np.ascontiguousarray(table[:, column]) for column, field in enumerate(FIELDS)
    }
    columns |= {field: np.array(values, np.int64) for field, values in whole.items()}
    return Records(columns, wider, np.array(lines, np.int64), tuple(skipped))


def _token_lines(content: bytes) -> Iterator[tuple[int, list[bytes]]]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        tokens = line.split()
        if tokens and not tokens[0].startswith(b";"):
            yield number, tokens


def _parse_line(path: Path, line: int, tokens: list[bytes]) -> tuple[list[float], int, int]:
    if len(tokens) < len(FIELDS):
        raise TraceError(
            path,
            f"found {count_text(len(tokens), 'column')}, expected {len(FIELDS)}; the line starts with "
            f"{_text(b' '.join(tokens))[:40]!r}. Write unknown fields as -1; read a table with a "
            "header row as CSV with --columns",
            line=line,
        )
    values = []
    for field, token in zip(FIELDS, tokens, strict=False):
        value = float(token) if _NUMBER.fullmatch(token) else math.nan
        if not math.isfinite(value):
            unit = " of seconds" if field in _TIMES else ""
            kind = "a whole number" if field in WHOLE else "a number"
            unknown = "" if field in ("job number", "submit time") else " or -1"
            raise TraceError(
                path,
                f"found {_text(token)[:40]!r}, expected {kind}{unit}{unknown}",
                line=line,
                field=field,
            )
        values.append(value)
    job, preceding = (_whole(path, line, field, tokens[FIELDS.index(field)]) for field in WHOLE)
    return values, job, preceding


def _whole(path: Path, line: int, field: str, token: bytes) -> int:
    value = float(token)
    if value.is_integer() and abs(value) < 2**62:
        # As floats, job numbers beyond 2**53 would lose their last digits.
        return int(token) if token.lstrip(b"+-").isdigit() else int(value)
    raise TraceError(
        path, f"found {_text(token)!r}, expected a whole number", line=line, field=field
    )


def _squeezed(body: bytes) -> bytes:
    """Return the lines with one space between fields, none around, no empty lines."""
    if any(blank in body for blank in (b"\t", b"\v", b"\f")):
        body = body.translate(bytes.maketrans(_OTHER_BLANKS, b" " * len(_OTHER_BLANKS))).strip()
    if not _has_neighbours(body):
        return body
    while b"  " in body:
        body = body.replace(b"    ", b" ").replace(b"  ", b" ")
    body = body.replace(b"\n ", b"\n").replace(b" \n", b"\n")
    while b"\n\n" in body:
        body = body.replace(b"\n\n", b"\n")
    return body


def _has_neighbours(body: bytes) -> bool:
    """Return whether two spaces or line feeds are adjacent.

    This goes by pieces that fit into a core's cache.
    """
    text = np.frombuffer(body, np.uint8)
    for first in range(0, len(text), _PIECE):
        # Other bytes up to a space can only be control characters, which are not in numbers.
        blank = text[first : first + _PIECE + 1] <= _SPACE
        if (blank[1:] & blank[:-1]).any():
            return True
    return False


def _cut_to_fields(body: bytes) -> tuple[bytes, int]:
    """Return squeezed lines with 18 fields, and the number of lines that had more."""
    text = np.frombuffer(body, np.uint8)
    pieces = [text[first : first + _PIECE] for first in range(0, len(text), _PIECE)]
    lines = 1 + sum(np.count_nonzero(piece == _LINE_FEED) for piece in pieces)
    if sum(np.count_nonzero(piece == _SPACE) for piece in pieces) == lines * (len(FIELDS) - 1):
        return body, 0
    parts = [line.split(b" ", len(FIELDS)) for line in body.split(b"\n")]
    wider = sum(len(part) > len(FIELDS) for part in parts)
    return b"\n".join(b" ".join(part[: len(FIELDS)]) for part in parts), wider


def _text(raw: bytes) -> str:
    """Return a comment's text.

    It is UTF-8 or, as in many old logs, Latin-1, which fits any bytes.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _no_rows() -> FloatArray:
    return np.empty((0, len(FIELDS)))


def _empty() -> Records:
    return Records(
        {field: np.empty(0, np.int64 if field in WHOLE else np.float64) for field in FIELDS}, 0
    )


_LINES = 1 << 12  # at a time, so that they fit into a core's cache
_SHORTEST = 2 * len(FIELDS)  # a line has a digit and a blank for each field


class _Column:
    """A field of all lines so far; if it is -1 throughout, it uses no memory.

    Args:
        most: Largest number of lines.
        dtype: Type of the numbers.
    """

    def __init__(self, most: int, dtype: type[np.generic]) -> None:
        self._most = most
        self._dtype = dtype
        self._values: npt.NDArray[Any] | None = None

    def put(self, first: int, values: npt.NDArray[Any]) -> None:
        """Add the next lines, from number ``first`` on."""
        if self._values is None:
            if (values == -1).all():
                return
            self._values = np.empty(self._most, self._dtype)
            self._values[:first] = -1
        self._values[first : first + len(values)] = values

    def of(self, lines: int) -> npt.NDArray[Any]:
        """Return all values."""
        if self._values is None:
            return np.broadcast_to(np.array(-1, self._dtype), lines)
        return self._values[:lines]


def parse_large(body: bytes | memoryview) -> Records | None:
    """Return the records of lines, as `hpctwin.formats.swf.records.parse_fast` does.

    Line ends and blanks need not be normalized.

    Returns:
        The records; None if any line is malformed, or has a number in an unusual form.
    """
    # Numba is imported here so that reading a small log does not load it.
    from hpctwin.engine.compile.jit import prepare
    from hpctwin.engine.containers.number_table import NOT_IN_ORDER, READ_LINES

    prepare([READ_LINES])
    text = np.frombuffer(body, np.uint8)
    most = len(text) // _SHORTEST + 1
    columns = {f: _Column(most, np.int64 if f in WHOLE else np.float64) for f in FIELDS}
    numbers = np.empty((len(FIELDS), _LINES))
    exact = np.empty((len(WHOLE), _LINES), np.int64)
    whole = np.array([field in WHOLE for field in FIELDS], np.int8)
    found = np.zeros(2, np.int64)
    first = 0
    while lines := READ_LINES(text, int(found[0]), whole, numbers, exact, found):
        if lines == NOT_IN_ORDER:
            return None
        tables = {**dict(zip(FIELDS, numbers, strict=True)), **dict(zip(WHOLE, exact, strict=True))}
        for field, column in columns.items():
            column.put(first, tables[field][:lines])
        first += lines
    return Records({field: column.of(first) for field, column in columns.items()}, int(found[1]))
