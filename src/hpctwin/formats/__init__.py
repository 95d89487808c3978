"""Reading and writing workloads: SWF, SPARS, Batsim and WfCommons JSON, CSV, Parquet.

Formats go by the file's name; ``.gz`` may follow any but ``.parquet``.

=========  =====================  =================================================================
format     file names             what it is
=========  =====================  =================================================================
swf        ``.swf``, ``.txt``     Standard Workload Format (Parallel Workloads Archive)
spars      ``.json``              workload of the simulator SPARS
batsim     ``.json``              workload of the simulator Batsim; told apart by its profiles
wfcommons  ``.json``              workflow in WfCommons' WfFormat; read only
csv        ``.csv``               our own columns (`hpctwin.model.frame`)
parquet    ``.parquet``           the same
=========  =====================  =================================================================

SWF has room for most of what a workload holds, CSV and Parquet for all its jobs (but not for
header, start date and machine size), SPARS and Batsim for little more than times and sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpctwin.errors import TraceError, UnknownNameError, WorkloadError
from hpctwin.formats._files import STANDARD_INPUT, read_bytes, read_json
from hpctwin.formats.swf_rules import SwfRules

if TYPE_CHECKING:
    from hpctwin.model import Workload

__all__ = ["FORMATS", "SwfRules", "read_workload", "write_workload"]

FORMATS = ("batsim", "csv", "parquet", "spars", "swf", "wfcommons")
"""The names of the formats."""

_SUFFIXES = {
    ".swf": "swf",
    ".txt": "swf",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}


def read_workload(
    path: str | Path,
    *,
    format: str | None = None,
    rules: SwfRules | None = None,
    skip_invalid: bool = False,
    flops_per_s: float = 1e9,
) -> Workload:
    """Read a workload; its name is the file's, its notes tell what was changed or left out.

    Args:
        path: the file; ``-`` for the standard input.
        format: one of `FORMATS`; read off the file's name (JSON and the standard input: off the
            content) if left out.
        rules: for SWF: what to do where the log leaves something open.
        skip_invalid: leave malformed records out and list them in the notes.
        flops_per_s: for Batsim: speed of a node, where profiles give flops.

    Raises:
        TraceError: the file cannot be read as what it claims to be; the message says what was
            found, where (line and field where known), and what was expected.
        UnknownNameError: there is no such format.
        ConfigError: ``flops_per_s`` is not above 0.
    """
    path = Path(path)
    if path == STANDARD_INPUT and format is None:
        kind = _format_of_content(read_bytes(path))
    else:
        kind = _format_of(path, format)
    if kind == "swf":
        from hpctwin.formats.swf import read_swf

        return read_swf(path, rules, skip_invalid=skip_invalid)
    if kind in ("csv", "parquet"):
        from hpctwin.formats import tables

        read_table = tables.read_csv if kind == "csv" else tables.read_parquet
        return read_table(path, skip_invalid=skip_invalid)
    from hpctwin.formats.batsim import is_batsim, read_batsim_document
    from hpctwin.formats.spars import is_spars, read_spars_document
    from hpctwin.formats.wfcommons import is_wfcommons, read_wfcommons_document

    document = read_json(path)
    if kind == "json":
        kind = "batsim" if is_batsim(document) and not is_spars(document) else "spars"
        kind = "wfcommons" if is_wfcommons(document) else kind
    if kind == "wfcommons":
        return read_wfcommons_document(path, document, skip_invalid=skip_invalid)
    if kind == "batsim":
        return read_batsim_document(
            path, document, flops_per_s=flops_per_s, skip_invalid=skip_invalid
        )
    return read_spars_document(path, document, skip_invalid=skip_invalid)


def write_workload(
    workload: Workload, path: str | Path, *, format: str | None = None
) -> tuple[str, ...]:
    """Write a workload; the file appears whole or not at all.

    Args:
        workload: what to write.
        path: the file; a name that ends in ``.gz`` means compressed.
        format: one of `FORMATS`; read off the file's name if left out (``.json`` is SPARS).

    Returns:
        What the format could not carry, a sentence each.

    Raises:
        WorkloadError: the format cannot express the workload, or the name does not tell the format.
        OutputError: the file cannot be written.
        UnknownNameError: there is no such format.
    """
    path = Path(path)
    kind = _format_of(path, format)
    if kind == "wfcommons":
        raise WorkloadError(
            "wfcommons is read only; write csv or parquet, which hold dependencies too"
        )
    if kind == "swf":
        from hpctwin.formats.swf_write import write_swf

        return write_swf(workload, path)
    if kind == "batsim":
        from hpctwin.formats.batsim import write_batsim

        return write_batsim(workload, path)
    if kind in ("csv", "parquet"):
        from hpctwin.formats import tables

        write_table = tables.write_csv if kind == "csv" else tables.write_parquet
        return write_table(workload, path)
    from hpctwin.formats.spars import write_spars

    return write_spars(workload, path)


def _format_of_content(content: bytes) -> str:
    """What content is, if it is a workload: our Parquet, some JSON, CSV with a header, else SWF."""
    if content.startswith(b"PAR1"):
        return "parquet"
    start = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"{", b"[")):
        return "json"
    return "csv" if start[:1].isalpha() or start.startswith(b'"') else "swf"


def _format_of(path: Path, name: str | None) -> str:
    if name is not None:
        if name not in FORMATS:
            raise UnknownNameError("format", name, FORMATS)
        return name
    lower = path.name.lower().removesuffix(".gz")
    for suffix, kind in _SUFFIXES.items():
        if lower.endswith(suffix):
            return kind
    raise TraceError(
        path,
        f"the name does not tell the format; expected one of {', '.join(_SUFFIXES)} (.gz may "
        f"follow), or give the format: {', '.join(FORMATS)}",
    )
