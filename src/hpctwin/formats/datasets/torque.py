"""Blue Waters: day's logs of Torque, which are accounting as PBS writes it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from hpctwin.formats.accounting.pbs_accounting import pbs_records
from hpctwin.formats.datasets.declared import Column, DataSet, File, Given

__all__ = ["BLUE_WATERS"]


def _line() -> pl.Expr:
    made = pl.col
    hosts = pl.int_ranges("first_node", made("first_node") + made("nodes"))
    where = hosts.list.eval(pl.format("{}/0-31", pl.element())).list.join("+")
    whole = [made(name).cast(pl.Int64) for name in ("submit", "submit", "submit", "start", "end")]
    moment = pl.from_epoch(made("end").cast(pl.Int64)).dt.strftime("%m/%d/%Y %H:%M:%S")
    limit = made("walltime").cast(pl.Int64)
    clock = [
        part.cast(pl.String).str.zfill(2) for part in (limit // 3600, limit // 60 % 60, limit % 60)
    ]
    return pl.format(
        "{};E;{}.bw;user=user{} group=grp account=abc jobname=name queue=normal ctime={} qtime={} "
        "etime={} start={} "
        "end={} owner=user exec_host={} Resource_List.nodes={}:ppn=32 Resource_List.walltime={}:{}:{} "
        "unique_node_count={} total_execution_slots={} Exit_status={} resources_used.cput=0 "
        "resources_used.energy_used=0",
        moment,
        "number",
        "user",
        *whole,
        where,
        "nodes",
        *clock,
        "nodes",
        32 * made("nodes"),
        made("failed").cast(pl.Int64),
    )


_COLUMNS = (
    Column(
        "line",
        "MM/DD/YYYY HH:MM:SS;E;ID.bw;key=value …: ctime, qtime, etime, start, end (Unix), exec_host, "
        "Resource_List.walltime, unique_node_count, Exit_status",
        "text",
        needed=True,
        made=_line(),
    ),
)


def _read(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        lines = file.read().decode("utf-8", "replace").splitlines()
    return pl.DataFrame({"line": pl.Series(lines, dtype=pl.String)})


def _write(rows: pl.DataFrame) -> bytes:
    return ("\n".join(rows["line"]) + "\n").encode()


def _records(given: Given) -> pl.LazyFrame:
    lines = given.main.select("line").collect()["line"]
    return pbs_records(lines, given.tally).lazy()


BLUE_WATERS = DataSet(
    name="bluewaters",
    title="Day's logs of Torque on Blue Waters (NCSA)",
    source="https://bluewaters.ncsa.illinois.edu/data-sets (torque_logs/YYYYMMDD)",
    licence="public and anonymised; terms: see the page",
    citation="Blue Waters sustained-petascale computing project (NSF OCI-0725070, ACI-1238993)",
    files=(
        File(
            "YYYYMMDD",
            ("[12][0-9]*[0-9]", "torque_logs/[12][0-9]*[0-9]"),
            _COLUMNS,
            form="other",
            read=_read,
            write=_write,
        ),
    ),
    records=_records,
    system="bluewaters",
    rules=(
        "read as accounting of PBS and Torque is (docs/workloads.md); nodes and cores as exec_host says",
        "nothing is known of power (energy_used is 0): components count as in full use",
    ),
    content=r"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Z];\d+(?:\[\d*\])?\.bw;",
)
