"""Large tables of text in which a cell may contain the separator.

`sacct` quotes nothing: a job's name may contain the separator, and a line feed too. Lines with as
many cells as the header go to Polars, a block at once. Only the others are examined and repaired
one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.files import READING, open_binary, unreadable
from hpctwin.formats.record import Tally

_BLOCK = 8 << 20
_MOST_EXTRA = 60
_MOST_JOINED = 8
_MOST_WAYS = 2000

Line = tuple[int, bytes]
"""Number, from 1, and bytes without the line feed."""


@dataclass
class Table:
    """How to read the lines of a file.

    Args:
        path: File.
        names: Columns, in the order of the header.
        separator: One byte.
        wanted: Columns to read.
        free: Columns that may contain any text, the separator too.
        fits: Whether a text may be a cell of a column; lines with surplus cells are repaired with
            it.
        strict: Whether a line that cannot be repaired is an error; else it is skipped.
        trailing: Whether each line ends with the separator.
        header: Header line, which may occur again.
        lines: Number of lines read, the header included.
    """

    path: Path
    names: Sequence[str]
    separator: bytes
    wanted: Sequence[str]
    free: Sequence[str]
    fits: Callable[[str, str], bool]
    strict: bool = False
    trailing: bool = False
    header: bytes = b""
    lines: int = 1

    @property
    def cells(self) -> int:
        """Number of cells of a whole line."""
        return len(self.names) + self.trailing


def lines_in(path: Path, block: int = _BLOCK) -> Iterator[bytes]:
    """Yield blocks of whole lines, each ended by a line feed."""
    try:
        with open_binary(path) as file:
            rest = b""
            returns = False
            while more := file.read(block):
                end = more.rfind(b"\n") + 1
                if not end:
                    rest += more
                    continue
                whole, rest = rest + more[:end], more[end:]
                # A file has them at all line ends or at none; to look for them everywhere is slow.
                returns = returns or b"\r\n" in whole[:65536]
                yield whole.replace(b"\r\n", b"\n") if returns else whole
            if rest:
                yield rest.replace(b"\r\n", b"\n") + b"\n"
    except READING as error:
        raise unreadable(path, error) from error


def tables_in(blocks: Iterator[bytes], table: Table, tally: Tally) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns of all lines, as text, block by block."""
    held: list[Line] = []
    for block in blocks:
        good, bad = _sorted_out(block, table)
        table.lines += block.count(b"\n")
        if good:
            yield _parsed(good, table)
        held = yield from _others([*held, *bad], table, tally, table.lines)
    yield from _others(held, table, tally, None)


def _others(
    lines: list[Line], table: Table, tally: Tally, end: int | None
) -> Generator[pl.DataFrame, None, list[Line]]:
    """Yield a frame of repaired lines.

    Return the lines that may continue after line ``end``.
    """
    if not lines:
        return []
    rows, held = _mended(lines, table, tally, end)
    if rows:
        index = [list(table.names).index(name) for name in table.wanted]
        picked = [[row[i] for i in index] for row in rows]
        yield pl.DataFrame(picked, schema=dict.fromkeys(table.wanted, pl.String), orient="row")
    return held


def _sorted_out(block: bytes, table: Table) -> tuple[bytes, list[Line]]:
    """Return the lines with as many cells as there are columns, and the others."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == 10)
    begins = np.concatenate(([0], ends[:-1] + 1))
    separators = np.flatnonzero(data == table.separator[0])
    counts = np.diff(np.searchsorted(separators, np.concatenate((begins, [len(data)]))))
    good = counts == table.cells - 1
    if table.header and table.header in block:
        repeated = [
            block[b:e] == table.header for b, e in zip(begins[good], ends[good], strict=True)
        ]
        good[np.flatnonzero(good)[repeated]] = False
    if good.all():
        return block, []
    bad = [(table.lines + int(i) + 1, block[begins[i] : ends[i]]) for i in np.flatnonzero(~good)]
    keep = np.repeat(good, ends - begins + 1)
    return data[keep].tobytes(), bad


def _parsed(block: bytes, table: Table) -> pl.DataFrame:
    # Polars may give columns in the order of the file.
    index = sorted(list(table.names).index(name) for name in table.wanted)
    frame = pl.read_csv(
        block,
        separator=table.separator.decode(),
        has_header=False,
        columns=index,
        infer_schema=False,
        quote_char=None,
        encoding="utf8-lossy",
    )
    frame.columns = [table.names[i] for i in index]
    return frame


def _mended(
    lines: list[Line], table: Table, tally: Tally, end: int | None
) -> tuple[list[list[str]], list[Line]]:
    """Return repaired rows, and the lines that may continue after line ``end``.

    The lines have too many or too few cells.
    """
    rows: list[list[str]] = []
    at = 0
    while at < len(lines):
        number, line = lines[at]
        if table.header and line == table.header:
            tally.add("line skipped: repeated header")
            at += 1
            continue
        if not line.strip():
            at += 1
            continue
        together = [line]
        for next_number, more in lines[at + 1 : at + _MOST_JOINED]:
            if next_number != number + len(together):
                break
            together.append(more)
        row, joined = _joined(together, table)
        if row is not None:
            rows.append(row)
            if joined == 1:
                tally.add("line repaired: text contains the separator")
            tally.add("line joined to the previous one: text contains a line break", joined - 1)
            at += joined
        elif end is not None and number + len(together) > end and len(together) < _MOST_JOINED:
            return rows, lines[at:]
        else:
            _refuse(number, line, table, tally)
            at += 1
    return rows, []


def _joined(lines: list[bytes], table: Table) -> tuple[list[str] | None, int]:
    """Return the row that begins in the first line, and its number of lines.

    The row is None if none fits.
    """
    for count in range(1, len(lines) + 1):
        text = b"\n".join(lines[:count]).decode("utf-8", "replace")
        cells = text.split(table.separator.decode())
        if len(cells) > table.cells + _MOST_EXTRA:
            break
        if len(cells) >= table.cells and (row := _fitted(cells, table)):
            return row, count
    return None, 0


def _refuse(number: int, line: bytes, table: Table, tally: Tally) -> None:
    found = line.count(table.separator) + 1
    start = line[:60].decode("utf-8", "replace")
    error = TraceError(
        table.path, f"found {found} cells, expected {table.cells}, in {start!r}…", line=number
    )
    if table.strict:
        raise error
    why = "fewer cells than the header (perhaps truncated)"
    if found >= table.cells:
        why = "more cells than the header, and the text with the separator is ambiguous"
    tally.add(f"line skipped: it has {why}")
    tally.skip(str(error))


def _fitted(cells: list[str], table: Table) -> list[str] | None:
    """Return the only row that fits these cells; None if there is no such row.

    Surplus cells are put back into texts.

    A text that several fitting rows divide differently is left empty.
    """
    names = [*table.names, ""][: table.cells]
    extra = len(cells) - table.cells
    if extra > _MOST_EXTRA or (extra and not set(table.free) & set(names)):
        return None
    index = [names.index(name) for name in table.wanted if name not in table.free]
    texts = [names.index(name) for name in table.wanted if name in table.free]
    found: list[str] | None = None
    for row in itertools.islice(_rows(cells, names, 0, extra, table), _MOST_WAYS):
        found = found or row
        if any(row[i] != found[i] for i in index):
            return None
        for i in texts:
            found[i] = found[i] if row[i] == found[i] else ""
    return found


def _rows(
    cells: list[str], names: list[str], at: int, extra: int, table: Table
) -> Iterator[list[str]]:
    """Yield the rows that fit the cells from ``at`` on, with ``extra`` surplus cells."""
    begin = at
    column = at_column = len(names) - (len(cells) - at - extra)
    while column < len(names) and not (extra and names[column] in table.free):
        if not table.fits(names[column], cells[at]):
            return
        column, at = column + 1, at + 1
    fixed = cells[begin : begin + column - at_column]
    if column == len(names):
        if not extra:
            yield fixed
        return
    for more in range(extra + 1):
        text = table.separator.decode().join(cells[at : at + 1 + more])
        if not table.fits(names[column], text):
            continue
        for rest in _rows(cells, names, at + 1 + more, extra - more, table):
            yield [*fixed, text, *rest]
