"""Read and write workloads: traces, tables, and accounting of Slurm and PBS.

The file name gives the format. ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` may follow any name but
``.parquet``. If the name does not give the format (``.txt``, ``.log``, no suffix), the content
does. Accounting is always recognized by its content.

=========  =====================  ================================================================
format     file names             contents
=========  =====================  ================================================================
swf        ``.swf``, ``.txt``     Standard Workload Format (Parallel Workloads Archive)
spars      ``.json``              workload of the simulator SPARS
batsim     ``.json``              workload of the simulator Batsim; recognized by its profiles
elastisim  ``.json``              jobs of the simulator ElastiSim; read only
wfcommons  ``.json``              workflow in WfCommons' WfFormat; read only
csv        ``.csv``, ``.tsv``     hpctwin's own columns (`hpctwin.model.workload.frame`)
parquet    ``.parquet``           the same
sacct      any                    output of Slurm's ``sacct``, or slurm2sql's copy; read only
pbs        any                    accounting log of PBS or Torque; read only
=========  =====================  ================================================================

A published data set (`hpctwin.formats.datasets`) is a file or a folder, and is recognized by its
columns. Its name is a format too.

SWF holds most of a workload. CSV and Parquet hold all its jobs, but not its header, start date and
cluster size. SPARS and Batsim hold little more than times and sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpctwin.errors import (
    ArgumentError,
    ConfigError,
    TraceError,
    UnknownNameError,
    WorkloadError,
    in_brief,
)
from hpctwin.formats.files import (
    PACKED,
    STANDARD_INPUT,
    check_readable,
    first_bytes,
    read_json,
    without_packing,
)
from hpctwin.formats.swf.rules import SwfRules
from hpctwin.model.arguments import check_arguments

if TYPE_CHECKING:
    from hpctwin.formats.datasets import DataSet
    from hpctwin.formats.datasets.declared import Use
    from hpctwin.formats.mapped_table import Columns
    from hpctwin.formats.record import Running
    from hpctwin.model import Workload

__all__ = [
    "FORMATS",
    "SwfRules",
    "accounting_of",
    "dataset_of",
    "first_bytes",
    "read_workload",
    "write_workload",
]

FORMATS = ("batsim", "csv", "elastisim", "parquet", "pbs", "sacct", "spars", "swf", "wfcommons")
"""Names of the formats."""

_SUFFIXES = {
    ".swf": "swf",
    ".txt": "swf",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}


@check_arguments()
def read_workload(
    path: str | Path,
    *,
    format: str | None = None,
    rules: SwfRules | None = None,
    skip_invalid: bool = False,
    timezone: str | None = None,
    use: Use = "measured",
    only: Sequence[str] = (),
    columns: Columns | Mapping[str, str | float] | Sequence[str] | str | None = None,
    running: Running = "elapsed",
) -> Workload:
    """Read a workload from a file.

    The workload has the file's name, and its notes list what was changed or skipped.

    Args:
        path: File; ``-`` for the standard input.
        format: One of `FORMATS` or a data set's name; by default from the file's name or content.
        rules: For SWF, how to read what the log leaves open. For WfCommons, whether nodes are
            shared (``processors``).
        skip_invalid: Skip malformed records and list them in the notes.
        timezone: For sacct and data sets, time zone of times that name none, such as
            ``Europe/Berlin``; by default UTC, or the data set's own.
        use: For data sets, what to read as the jobs' resource use; see `datasets.USES`.
        only: For data sets, the rows to read, as ``column=value,value``.
        columns: For CSV and Parquet with other columns, the meaning of these: a `Columns`, a dict,
            or text as for ``--columns``. For Slurm's accounting without a header, the ``--format``
            of the ``sacct`` call.
        running: For accounting and for tables with ``columns``, how to read jobs that still ran
            when they were recorded: ``elapsed`` ends them at that time, ``limit`` at their time
            limit, ``drop`` skips them.

    Raises:
        TraceError: The file is not what it claims to be. The message says what was found, where
            (line and field if known), and what was expected.
        UnknownNameError: There is no such format.
        ConfigError: ``only`` is given for a file that is no data set, or ``columns`` do not fit
            the file.
    """
    path = Path(path)
    if isinstance(columns, str):
        from hpctwin.formats.accounting.sacct import read_sacct

        if only or format not in (None, "sacct"):
            raise ConfigError(
                f"--columns {columns[:40]!r} names columns of sacct; use it with --format sacct "
                "and without --only"
            )
        return read_sacct(
            path, skip_invalid=skip_invalid, timezone=timezone, columns=columns, running=running
        )
    if columns is not None:
        from hpctwin.formats.mapped_table import as_columns, read_mapped

        columns = as_columns(columns)

        if only or format not in (None, "csv", "parquet"):
            raise ConfigError(
                "a mapping of columns (--columns) is only valid for CSV and Parquet, without --only"
            )
        return read_mapped(
            path, columns, timezone=timezone, skip_invalid=skip_invalid, running=running
        )
    only = tuple(only)
    published = dataset_of(path, format)
    if published is not None:
        from hpctwin.formats.datasets import read_dataset

        return read_dataset(
            path, published, use=use, only=only, skip_invalid=skip_invalid, timezone=timezone
        )
    if only:
        raise ConfigError(
            f"--only is only valid for published data sets, and {path} is not a known one"
        )
    if path != STANDARD_INPUT and not path.exists():
        raise TraceError(path, "No such file or directory")
    kind = _format_of(path, format)
    if timezone is not None:
        from hpctwin.formats.accounting.sacct_json import is_sacct_document

        if kind != "sacct" and not (kind == "json" and is_sacct_document(read_json(path))):
            raise ConfigError(
                "--timezone is only valid for dates without a zone (Slurm accounting, data "
                f"sets, --columns); times in {path} need no zone"
            )
    if kind == "swf":
        from hpctwin.formats.swf.reader import read_swf

        return read_swf(path, rules, skip_invalid=skip_invalid)
    if kind == "sacct":
        from hpctwin.formats.accounting.sacct import read_sacct

        return read_sacct(path, skip_invalid=skip_invalid, timezone=timezone, running=running)
    if kind == "pbs":
        from hpctwin.formats.accounting.pbs_accounting import read_pbs_accounting

        return read_pbs_accounting(path, skip_invalid=skip_invalid, running=running)
    if kind in ("csv", "parquet"):
        from hpctwin.formats import own_columns

        read_table = own_columns.read_csv if kind == "csv" else own_columns.read_parquet
        return read_table(path, skip_invalid=skip_invalid)
    from hpctwin.formats.accounting.sacct import read_sacct
    from hpctwin.formats.accounting.sacct_json import is_sacct_document
    from hpctwin.formats.json.batsim import is_batsim, read_batsim
    from hpctwin.formats.json.elastisim import is_elastisim, read_elastisim
    from hpctwin.formats.json.spars import is_spars, read_spars
    from hpctwin.formats.json.wfcommons import is_wfcommons, read_wfcommons

    document = read_json(path)
    if kind == "json" and is_sacct_document(document):
        return read_sacct(path, timezone=timezone, running=running)
    if kind == "json":
        kind = "batsim" if is_batsim(document) and not is_spars(document) else "spars"
        kind = "elastisim" if is_elastisim(document) else kind
        kind = "wfcommons" if is_wfcommons(document) else kind
    try:
        if kind == "wfcommons":
            shared = rules is not None and rules.processors == "cores"
            return read_wfcommons(path, document, skip_invalid=skip_invalid, shared=shared)
        read = {"batsim": read_batsim, "elastisim": read_elastisim}.get(kind, read_spars)
        return read(path, document, skip_invalid=skip_invalid)
    except TraceError:
        raise
    except WorkloadError as error:
        raise TraceError(path, str(error)) from error


def dataset_of(path: Path, format: str | None = None) -> DataSet | None:
    """Return the data set of a file, folder or format name; None if there is none."""
    if format in FORMATS or (format is None and _is_plain_swf(path)):
        return None
    from hpctwin.formats.datasets import DATASETS, told_by

    if format is not None:
        if format not in DATASETS:
            raise UnknownNameError("format", format, (*FORMATS, *DATASETS))
        return DATASETS[format]
    return told_by(path) if path.exists() else None


@check_arguments()
def write_workload(
    workload: Workload, path: str | Path, *, format: str | None = None
) -> tuple[str, ...]:
    """Write a workload; the file appears whole or not at all.

    Args:
        workload: Workload to write.
        path: File; compressed if its name ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
        format: One of `FORMATS`; by default from the file's name. ``.json`` is Batsim if jobs
            compute or communicate, and otherwise SPARS.

    Returns:
        One sentence for each thing that the format cannot hold.

    Raises:
        WorkloadError: The format cannot express the workload, or the name does not give the format.
        OutputError: The file cannot be written.
        UnknownNameError: There is no such format.
    """
    from hpctwin.model import Workload

    if not isinstance(workload, Workload):
        raise ArgumentError(f"workload is {in_brief(workload)}; it must be a Workload")
    path = Path(path)
    kind = _known(format) or _told_by_name(path)
    if kind is None:
        raise _unknown(path, "the file name has no known suffix")
    works = any(one and one.length_s is None for one in workload.profiles or ())
    if kind == "json" and (works or workload.demands):
        kind = "batsim"
    if kind in ("elastisim", "pbs", "sacct", "wfcommons"):
        raise WorkloadError(
            f"{kind} can only be read; write csv or parquet, which also store dependencies"
        )
    if kind == "swf":
        from hpctwin.formats.swf.writer import write_swf

        return write_swf(workload, path)
    if kind == "batsim":
        from hpctwin.formats.json.batsim import write_batsim

        return write_batsim(workload, path)
    if kind in ("csv", "parquet"):
        from hpctwin.formats import own_columns

        write_table = own_columns.write_csv if kind == "csv" else own_columns.write_parquet
        return write_table(workload, path)
    from hpctwin.formats.json.spars import write_spars

    return write_spars(workload, path)


def _format_of_content(content: bytes) -> str | None:
    """Return the format of a file that begins like this, or None if it is no workload."""
    if content.startswith(b"PAR1"):
        return "parquet"
    if kind := accounting_of(content):
        return kind
    lines = [line.strip() for line in content.removeprefix(b"\xef\xbb\xbf").splitlines()]
    lines = [line for line in lines if line]
    first = next((line for line in lines if not line.startswith((b";", b"#"))), b"")
    if b"\0" in content or not lines:
        return None
    if first.startswith((b"{", b"[")):
        return "json"
    if not first or all(map(_is_number, first.split())):
        return "swf"
    numbers = sum(map(_is_number, re.split(rb"[,;|\s]+", first)))
    if numbers >= 18 or (numbers and first != lines[0]):
        return "swf"
    # Column names are no numbers.
    return "csv" if not numbers and re.search(rb"[,;|\t]", first) else None


def _known(name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        raise UnknownNameError("format", name, FORMATS)
    return name


def _format_of(path: Path, name: str | None) -> str:
    if name is not None:
        return _known(name) or name
    told = None if path == STANDARD_INPUT else _told_by_name(path)
    if told in ("parquet", "json") or (told == "swf" and _is_plain_swf(path)):
        return told
    content = first_bytes(path)
    if without_packing(path.name).endswith(".txt"):
        told = _format_of_content(content) or told
    kind = accounting_of(content) or told or _format_of_content(content)
    if kind is None:
        if not content:
            check_readable(path)
        raise _unknown(path, "the format is not recognized by file name or content")
    return kind


def _unknown(path: Path, why: str) -> TraceError:
    return TraceError(
        path,
        f"{why}; expected one of {', '.join(_SUFFIXES)} ({', '.join(PACKED)} may follow), or give the format "
        f"(--format): {', '.join(FORMATS)}. --columns reads a table without a header row: submit=1,runtime=3",
    )


def _told_by_name(path: Path) -> str | None:
    name = without_packing(path.name)
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def _is_plain_swf(path: Path) -> bool:
    """Return whether a file's first record is 18 numbers and its name fits SWF."""
    if path == STANDARD_INPUT or path.is_dir() or _told_by_name(path) not in ("swf", None):
        return False
    for line in first_bytes(path, 1 << 14).splitlines()[:-1]:
        fields = line.split()
        if fields and not fields[0].startswith(b";"):
            return len(fields) == 18 and all(map(_is_number, fields))
    return False


def _is_number(field: bytes) -> bool:
    return re.fullmatch(rb"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", field) is not None


def accounting_of(content: bytes) -> str | None:
    """Return ``sacct`` or ``pbs`` if a file that begins like this is such accounting."""
    from hpctwin.formats.accounting.pbs_accounting import is_pbs_accounting
    from hpctwin.formats.accounting.sacct import is_sacct

    if is_pbs_accounting(content):
        return "pbs"
    return "sacct" if is_sacct(content) else None
