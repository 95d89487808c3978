"""Layout of a text dump of ``sacct``: columns, separator, and header.

Source:
    Slurm's manual page sacct(1) and ``sacct --helpformat`` of versions 20.11 to 24.05. The column
    orders without a header are those that Open XDMoD 3.5 to 11.0 and APEL tell sites to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hpctwin.errors import ConfigError, TraceError, near
from hpctwin.formats.record import Tally

COLUMNS = (
    "JobID", "JobIDRaw", "Submit", "Start", "End", "ElapsedRaw", "Elapsed", "Suspended", "TimelimitRaw",
    "Timelimit", "NNodes", "AllocNodes", "ReqNodes", "AllocCPUS", "NCPUS", "ReqCPUS", "AllocTRES", "ReqTRES",
    "AllocGRES", "ReqGRES", "ReqMem", "User", "Account", "Partition", "QOS", "Priority", "State", "NodeList",
    "MaxRSS", "NTasks", "Constraints",
)  # fmt: skip
"""Columns that are read, in any order; additional ones improve the result."""

FREE = (
    "JobName", "SubmitLine", "Constraints", "Comment", "AdminComment", "SystemComment", "WorkDir",
    "Container", "Extra", "FailedNode", "StdOut", "StdErr", "StdIn",
)  # fmt: skip
"""Columns with any text, which may include the separator."""

NOT_MODELED = (
    "BlockID", "Eligible", "Flags", "Layout", "Licenses", "McsLabel", "QOSREQ", "ReqCPUFreq",
    "ReqCPUFreqGov", "ReqCPUFreqMax", "ReqCPUFreqMin", "Reservation", "ReservationId", "Restarts",
    "SegmentSize", "WCKey", "WCKeyID",
)  # fmt: skip
"""Columns that affect when and where jobs start, but are not read."""

_NO_BEARING = (
    *FREE, "AssocID", "AveCPU", "AveCPUFreq", "AveDiskRead", "AveDiskWrite", "AvePages", "AveRSS",
    "AveVMSize", "CPUTime", "CPUTimeRAW", "Cluster", "ConsumedEnergy", "ConsumedEnergyRaw", "DBIndex",
    "DerivedExitCode", "ExitCode", "GID", "Group", "MaxDiskRead", "MaxDiskReadNode", "MaxDiskReadTask",
    "MaxDiskWrite", "MaxDiskWriteNode", "MaxDiskWriteTask", "MaxPages", "MaxPagesNode", "MaxPagesTask",
    "MaxRSSNode", "MaxRSSTask", "MaxVMSize", "MaxVMSizeNode", "MaxVMSizeTask", "MinCPU", "MinCPUNode",
    "MinCPUTask", "Planned", "PlannedCPU", "PlannedCPURAW", "QOSRAW", "Reason", "Reserved", "ResvCPU",
    "ResvCPURAW", "SLUID", "SystemCPU", "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInMaxNode",
    "TRESUsageInMaxTask", "TRESUsageInMin", "TRESUsageInMinNode", "TRESUsageInMinTask", "TRESUsageInTot",
    "TRESUsageOutAve", "TRESUsageOutMax", "TRESUsageOutMaxNode", "TRESUsageOutMaxTask", "TRESUsageOutMin",
    "TRESUsageOutMinNode", "TRESUsageOutMinTask", "TRESUsageOutTot", "TotalCPU", "UID", "UserCPU",
)  # fmt: skip

FIELDS = tuple(sorted({*COLUMNS, *NOT_MODELED, *_NO_BEARING}, key=str.lower))
"""Every column of sacct(1).

``sacct`` takes a shortened name for the first column that begins with it.
"""

_XDMOD = (
    "cluster,partition,{qos}account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,"
    "ncpus,reqcpus,reqmem,{tres}timelimit,nodelist,jobname"
)
_XDMOD_3 = "jobid,cluster,partition,account,group,user,submit,eligible,start,end"
_ORDERS = {
    "Open XDMoD 11": "jobid,jobidraw," + _XDMOD.format(qos="qos,", tres="reqtres,alloctres,"),
    "Open XDMoD 9.5": "jobid,jobidraw," + _XDMOD.format(qos="", tres="reqtres,alloctres,"),
    "Open XDMoD 7": "jobid,jobidraw," + _XDMOD.format(qos="", tres="reqgres,reqtres,"),
    "Open XDMoD 5.5": "jobid,jobidraw," + _XDMOD.format(qos="", tres=""),
    "Open XDMoD 5": (
        "jobid,cluster,partition,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,"
        "nnodes,ncpus,reqcpus,timelimit,nodelist,jobname"
    ),
    "Open XDMoD 4.5": f"{_XDMOD_3},elapsed,exitcode,nnodes,ncpus,nodelist,jobname",
    "Open XDMoD 3.5": f"{_XDMOD_3},exitcode,nnodes,ncpus,nodelist,jobname",
    "APEL": (
        "jobid,jobname,user,group,start,end,elapsed,cputimeraw,partition,ncpus,nnodes,nodelist,maxrss,maxvmsize,"
        "state"
    ),
    "hpctwin's sacct command": ",".join(name for name in COLUMNS if not name.endswith("GRES")),
}
"""Column orders of dumps without a header, by software.

Newer orders are first.
"""

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None|N/A|INVALID|\d{9,11}|"
_SPAN = r"(?:\d+-)?(?:\d+:)?\d+:\d+(?:[.,]\d+)?|UNLIMITED|Partition_Limit|INVALID|"
_NUMBER = r"\d*"
_FORMS = {
    **dict.fromkeys(("Submit", "Start", "End", "Eligible"), _TIME),
    **dict.fromkeys(
        ("Elapsed", "Suspended", "Timelimit", "CPUTime", "TotalCPU", "UserCPU", "SystemCPU"), _SPAN
    ),
    **dict.fromkeys(
        (
            "ElapsedRaw", "ReqCPUS", "AssocID", "CPUTimeRAW", "UID", "GID", "Priority", "QOSRAW", "DBIndex",
            "NTasks",
        ),
        _NUMBER,
    ),
    **dict.fromkeys(("AllocNodes", "NNodes", "AllocCPUS", "NCPUS"), r"\d+(?:\.\d+)?[KMG]?"),
    "TimelimitRaw": r"\d*|UNLIMITED|Partition_Limit|INVALID",
    "JobID": r"\d+(?:[_+.].*)?",
    "JobIDRaw": r"\d+(?:[_+.].*)?",
    "State": r"[A-Z_]+\+?(?: by \d+)?|",
    "ExitCode": r"\d+:\d+|",
    "DerivedExitCode": r"\d+:\d+|",
    "ReqMem": r"[\d.,]*[KMGTPE]?[nc]?\??|",
    "MaxRSS": r"[\d.,]*[KMGTPE]?",
    **dict.fromkeys(("AllocTRES", "ReqTRES"), r"(?:[\w/:.\-]+=[\d.]+[KMGTPE]?,?)*"),
    **dict.fromkeys(("AllocGRES", "ReqGRES"), r"[^=|\s]*"),
    **dict.fromkeys(("Partition", "Cluster", "QOS"), r"[^\s|]*"),
}  # fmt: skip

_NAME = r"[A-Za-z]\w*(?:%-?\d+)?"
_ONE_BYTE = b"\x1f"
"""Replacement for separators of several bytes and gaps of fixed-width columns."""
_SAMPLE = 500
_LABELS = ("User", "Account", "Partition", "QOS", "State", "JobID", "JobIDRaw")


@dataclass(frozen=True)
class Layout:
    """How to read the lines of a dump.

    Args:
        names: Columns in the file's order, as sacct(1) spells them.
        separator: Text between columns.
        trailing: Whether each line ends with the separator.
        header: Header line; empty if there is none.
        spans: Begin and end of each column, in characters, if columns have a fixed width.
        order: Software whose column order this is, if it was found from the values.
    """

    names: tuple[str, ...]
    separator: bytes
    trailing: bool = False
    header: bytes = b""
    spans: tuple[tuple[int, int], ...] = ()
    order: str = ""

    def plain(self, blocks: Iterator[bytes], tally: Tally) -> tuple[Iterator[bytes], bytes]:
        """Return blocks of lines whose columns are separated by one byte, and this byte."""
        if self.spans:
            return (self._cells(block, tally) for block in blocks), _ONE_BYTE
        if len(self.separator) == 1:
            return blocks, self.separator
        return (block.replace(self.separator, _ONE_BYTE) for block in blocks), _ONE_BYTE

    def _cells(self, block: bytes, tally: Tally) -> bytes:
        """Return fixed-width lines as lines of cells.

        A truncated text keeps its certain part.
        """
        lines = []
        for line in block.decode("utf-8", "replace").splitlines():
            if not line.strip() or not line.strip("- ") or line.encode() == self.header:
                continue
            cells = [line[begin:end].strip() for begin, end in self.spans]
            for i, (name, (begin, end)) in enumerate(zip(self.names, self.spans, strict=True)):
                cut = cells[i].endswith("+") and len(cells[i]) == end - begin
                if cut and name in COLUMNS and name != "State" and "." not in cells[0]:
                    kept = name in _LABELS
                    tally.add(
                        f"cell of column {name} that sacct truncated at the column width, "
                        + ("read unchanged" if kept else "read up to the truncation"),
                    )
                    cells[i] = cells[i] if kept else _certain(name, cells[i])
            lines.append(_ONE_BYTE.decode().join(cells))
        return "".join(f"{line}\n" for line in lines).encode()


def _certain(name: str, cell: str) -> str:
    """Return the certain part of a truncated text."""
    return cell.rpartition(",")[0] if name.endswith("TRES") else ""


def is_text_dump(head: bytes) -> bool:
    """Return whether a file that begins like this is ``sacct`` text, with any columns."""
    lines = _lines(head)
    if not lines or "submit_s" in lines[0].lower():
        return False
    if _named(lines) is not None:
        return True
    separator = _of_record(lines[0])
    if separator is None:
        return False
    cells = lines[0].split(separator)
    if _told_by_values(lines) is not None:
        return True
    dated = any(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", cell) for cell in cells)
    words = "COMPLETED|FAILED|CANCELLED(?: by .*)?|TIMEOUT|RUNNING|PENDING|OUT_OF_MEMORY|NODE_FAIL|PREEMPTED"
    return dated and len(cells) > 3 and any(re.fullmatch(words, cell) for cell in cells)


def layout_of(path: Path, head: bytes, columns: str | None = None) -> Layout:
    """Return the layout of a dump that begins like this.

    Args:
        path: File, for messages.
        columns: Columns as in the ``--format`` of ``sacct``, for a dump without a header.

    Raises:
        TraceError: The columns are unknown.
        ConfigError: ``columns`` is no such list.
    """
    lines = _lines(head)
    found = _named(lines)
    if found is None and columns is not None:
        found = _as_told(path, lines, named_columns(columns))
    if found is None:
        found = _told_by_values(lines)
    if found is None:
        raise TraceError(
            path,
            f"found {lines[0][:60]!r}, which is not a header, and no known column order matches; "
            "write the file with sacct -P without -n, or give the --format of that sacct: "
            "--columns JobID,Submit,Start,…",
            line=1,
        )
    return found


def named_columns(text: str) -> tuple[str, ...]:
    """Return the columns in a ``--format``: any case, shortened, with widths."""
    asked = [name.partition("%")[0].strip() for name in text.split(",") if name.strip()]
    names = []
    for name in asked:
        if name.lower() == "all":
            raise ConfigError(
                "--columns ALL: these differ between versions of Slurm; write the names of the columns"
            )
        full = _full(name)
        if full is None:
            raise ConfigError(
                f"--columns: {name!r} is not a column of sacct(1).{near(name, FIELDS)}"
            )
        names.append(full)
    return tuple(names)


def check_columns(path: Path, names: Sequence[str], *, line: int | None = None) -> None:
    """Reject a dump without submit times or run times.

    Raises:
        TraceError: A column is missing; the message names it.
    """
    there = set(names)
    for needed in (("JobID", "JobIDRaw"), ("Submit",)):
        if not there & set(needed):
            raise TraceError(
                path,
                "the column is missing; required are JobID, Submit and ElapsedRaw or Start and "
                f"End, as in sacct -a -D -P -o ALL; found {', '.join(names)[:200]}",
                line=line,
                field=needed[0],
            )
    if not there & {"ElapsedRaw", "Elapsed"} and not {"Start", "End"} <= there:
        raise TraceError(
            path,
            "no column has the run time: ElapsedRaw, Elapsed, or Start and End are required",
            line=line,
        )


def fits(name: str, cell: str) -> bool:
    """Return whether this may be a cell of that column."""
    form = _form(name)
    return form is None or form.fullmatch(cell) is not None


def _lines(head: bytes) -> list[str]:
    """Return the first lines, without one that is cut off."""
    text = head[: 1 << 16].removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").decode("utf-8", "replace")
    lines = text.split("\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    return [line.rstrip("\r") for line in whole[:_SAMPLE] if line.strip()]


def _named(lines: Sequence[str]) -> Layout | None:
    """Return the layout that a header gives; None if the first line is no header."""
    header = lines[0] if lines else ""
    if len(lines) > 1 and re.fullmatch(r"-+(?: +-+)* *", lines[1].lstrip()):
        spans = [match.span() for match in re.finditer("-+", lines[1])]
        cells = [header[begin:end].strip() for begin, end in spans]
        names = tuple(_full(cell) or cell for cell in cells)
        return (
            Layout(names, b"", header=header.encode(), spans=tuple(spans))
            if _has_id(names)
            else None
        )
    match = re.match(rf"\s*{_NAME}([^\w\s%]+|\t)", header)
    if match is None:
        return None
    cells = header.strip("\r\n").split(match[1])
    if len(cells) < 2 or not all(re.fullmatch(_NAME, cell.strip()) for cell in cells if cell):
        return None
    trailing = cells[-1] == ""
    exact = {name.lower(): name for name in FIELDS}
    plain = [cell.strip().partition("%")[0] for cell in (cells[:-1] if trailing else cells)]
    names = tuple(exact.get(name.lower(), name) for name in plain)
    return Layout(names, match[1].encode(), trailing, header.encode()) if _has_id(names) else None


def _has_id(names: Sequence[str]) -> bool:
    return bool({"JobID", "JobIDRaw"} & set(names))


def _as_told(path: Path, lines: Sequence[str], names: tuple[str, ...]) -> Layout:
    """Return the layout of lines whose columns are given."""
    if not _has_id(names):
        check_columns(path, names)
    separator = _of_record(lines[0]) if names[0] in ("JobID", "JobIDRaw") else None
    candidates = [separator] if separator else [*"|\t;,", "::", "^", "~", "!", "#", "@"]
    for one in candidates:
        for trailing in (False, True):
            if _fitting(names, lines, one, trailing=trailing):
                return Layout(names, one.encode(), trailing)
    found = lines[0].count(separator or "|") + 1
    raise TraceError(
        path,
        f"found {found} cells in {lines[0][:60]!r}, but --columns names {len(names)}, or a cell "
        "does not fit its column; give the --format of the sacct call",
        line=1,
    )


def _told_by_values(lines: Sequence[str]) -> Layout | None:
    """Return the layout of the first known order that fits the values, else None."""
    separator = _of_record(lines[0])
    if separator is None:
        return None
    for order, names in _known_orders().items():
        for trailing in (False, True):
            if _fitting(names, lines, separator, trailing=trailing):
                return Layout(names, separator.encode(), trailing, order=order)
    return None


def _of_record(line: str) -> str | None:
    """Return the separator after the id at the beginning of a record, if there is one."""
    match = re.match(r"\d+(?:_\d+|_\[[^\]]*\]|\+\d+)?(?:\.\w+)?([^\w\s.+\[]+|\t)", line)
    return None if match is None else match[1]


def _fitting(
    names: Sequence[str], lines: Sequence[str], separator: str, trailing: bool = False
) -> bool:
    """Return whether nearly all lines have these columns; a cell may contain commas."""
    rows = [line.split(separator) for line in lines]
    rows = [
        row for row in rows if len(row) == len(names) + trailing and (not trailing or not row[-1])
    ]
    if len(rows) * 2 < len(lines):
        return separator == "," and all(line.count(",") + 1 >= len(names) for line in lines)
    good = sum(all(map(fits, names, row)) for row in rows)
    return good * 10 >= len(rows) * 9


@cache
def _known_orders() -> dict[str, tuple[str, ...]]:
    return {order: named_columns(text) for order, text in _ORDERS.items()}


def _full(name: str) -> str | None:
    """Return the column that ``sacct`` takes a name for, in any case or shortened."""
    lower = name.lower()
    exact = (one for one in FIELDS if one.lower() == lower)
    begun = (one for one in FIELDS if lower and one.lower().startswith(lower))
    return next(exact, None) or next(begun, None)


@cache
def _form(name: str) -> re.Pattern[str] | None:
    return re.compile(_FORMS[name]) if name in _FORMS else None
