"""Databases that slurm2sql makes, held against the dump of ``sacct`` that they were made of."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from hpctwin.cli import main
from hpctwin.errors import TraceError
from hpctwin.formats import read_workload

DAY = 1_767_225_600  # 2026-01-01, in UTC
COLUMNS = {
    "JobID": "text UNIQUE", "JobIDnostep": "text", "JobStep": "text", "User": "text", "Account": "text",
    "State": "text", "Timelimit": "real", "Elapsed": "real", "Time": "int", "Submit": "int", "Start": "int",
    "End": "int", "Partition": "text", "NodeList": "text", "Priority": "int", "NNodes": "int",
    "ReqTRES": "text", "AllocTRES": "text", "NCPUS": "int", "ReqMem": "real",
}  # fmt: skip
TRES = "billing=8,cpu=8,gres/gpu=2,mem=16G,node=2"
JOBS: list[dict[str, Any]] = [
    {"JobID": "17", "User": "ann", "Account": "a", "State": "COMPLETED", "Timelimit": 90060.0,
     "Elapsed": 3000.0, "Submit": DAY, "Start": DAY + 60, "End": DAY + 3060, "Partition": "p",
     "NodeList": "n[1-2]", "Priority": 7, "NNodes": 2, "ReqTRES": TRES, "AllocTRES": TRES, "NCPUS": 8,
     "ReqMem": 16 * 2.0**30},
    {"JobID": "17.batch", "JobStep": "batch", "State": "COMPLETED", "Elapsed": 3000.0, "Submit": DAY + 60,
     "Start": DAY + 60, "End": DAY + 3060, "NNodes": 1, "NCPUS": 4},
    {"JobID": "18_3", "User": "ben", "Account": "b", "State": "CANCELLED by 12", "Timelimit": 600.0,
     "Elapsed": 5.0, "Submit": DAY + 9, "Start": DAY + 70, "End": DAY + 75, "Partition": "q",
     "NodeList": "n4", "NNodes": 1, "NCPUS": 1, "ReqMem": 3 * 2.0**29},
    {"JobID": "19", "User": "ben", "Account": "b", "State": "RUNNING", "Timelimit": 1200.0,
     "Elapsed": 30.0, "Submit": DAY + 20, "Start": DAY + 80, "Partition": "q", "NodeList": "n5",
     "NNodes": 1, "NCPUS": 1},
    {"JobID": "20", "User": "eve", "Account": "b", "State": "PENDING", "Timelimit": 60.0, "Elapsed": 0.0,
     "Submit": DAY + 90, "Partition": "q", "NodeList": "None assigned", "NNodes": 1, "NCPUS": 1},
]  # fmt: skip
DUMP = f"""\
JobID|User|State|Timelimit|Elapsed|Submit|Start|End|Account|Partition|NodeList|Priority|NNodes|AllocTRES|NCPUS|ReqMem
17|ann|COMPLETED|1-01:01:00|00:50:00|D00:00:00|D00:01:00|D00:51:00|a|p|n[1-2]|7|2|{TRES}|8|16G
17.batch||COMPLETED||00:50:00|D00:01:00|D00:01:00|D00:51:00|||||1||4|
18_3|ben|CANCELLED by 12|00:10:00|00:00:05|D00:00:09|D00:01:10|D00:01:15|b|q|n4||1||1|1536M
19|ben|RUNNING|00:20:00|00:00:30|D00:00:20|D00:01:20|Unknown|b|q|n5||1||1|
20|eve|PENDING|00:01:00|00:00:00|D00:01:30|Unknown|Unknown|b|q|None assigned||1||1|
""".replace("|D0", "|2026-01-01T0")


def database(
    path: Path, jobs: Sequence[dict[str, Any]] = JOBS, columns: dict[str, str] = COLUMNS
) -> Path:
    with closing(sqlite3.connect(path)) as made, made:
        made.execute(f"CREATE TABLE slurm ({', '.join(f'{n!r} {t}' for n, t in columns.items())})")
        for job in jobs:
            values = [job.get(name) for name in columns]
            made.execute(f"INSERT INTO slurm VALUES ({', '.join('?' * len(values))})", values)
    return path


def test_a_database_is_read_as_the_dump_that_it_was_made_of(tmp_path: Path) -> None:
    (tmp_path / "dump.log").write_text(DUMP)
    dump = read_workload(tmp_path / "dump.log")
    found = read_workload(database(tmp_path / "july.sqlite3"))
    assert len(found) == 3
    assert_frame_equal(found.to_frame(), dump.to_frame())
    assert found.notes.counts["step, a part of its job"] == 1


def test_a_missing_time_limit_is_replaced_by_the_runtime(tmp_path: Path) -> None:
    found = read_workload(database(tmp_path / "a.db", [{**JOBS[0], "Timelimit": None}, JOBS[2]]))
    assert found.to_frame().select("walltime_s", "runtime_s").rows() == [
        (3000.0, 3000.0),
        (600.0, 5.0),
    ]
    assert found.notes.counts["job without walltime, given its run time"] == 1


def test_in_a_database_of_2020_the_id_is_slurms_and_memory_is_per_core(tmp_path: Path) -> None:
    columns = {
        "JobID": "",
        "JobIDSlurm": "",
        **dict(list(COLUMNS.items())[1:-4]),
        "NCPUS": "",
        "ReqMem": "",
    }
    jobs = [
        {**job, "JobIDSlurm": job["JobID"], "JobID": 17, "ReqMem": "2Gc"}
        for job in JOBS[:2]
    ]  # fmt: skip
    found = read_workload(database(tmp_path / "a.db", jobs, columns))
    assert len(found) == 1
    assert found.to_frame()["memory_gb_per_node"].to_list() == [8.0]


def test_import_takes_it_with_the_settings_and_leaves_another_database_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "slurm.conf").write_text(
        "ClusterName=c\nSlurmctldHost=h\nSelectType=select/linear\nNodeName=n[1-8] CPUs=4\n"
        "PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE\nPartitionName=q Nodes=ALL\n"
    )
    database(site / "jobs.db")
    with closing(sqlite3.connect(site / "other.db")) as made, made:
        made.execute("CREATE TABLE slurm (name text)")
    with pytest.raises(SystemExit) as ended:
        main(["import", "slurm", "--from", str(site), "--out", str(tmp_path / "out"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert said["jobs"] == 3


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"Elapsed": "real"}, "field JobID: the column is missing"),
        ({"JobID": "text", "Elapsed": "real"}, "field Submit: the column is missing"),
        ({"JobID": "text", "Submit": "int"}, "no column has the run time"),
    ],
)
def test_a_table_of_other_columns_is_rejected(tmp_path: Path, columns, says) -> None:
    with pytest.raises(TraceError, match=says):
        read_workload(database(tmp_path / "a.db", [{}], columns))


def test_other_broken_and_packed_databases_are_reported(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as made, made:
        made.execute("CREATE TABLE decisions (id int)")
    with pytest.raises(TraceError, match=r"has no table 'slurm'.* found decisions"):
        read_workload(tmp_path / "other.db")
    whole = database(tmp_path / "a.db").read_bytes()
    (tmp_path / "cut.db").write_bytes(whole[:5000])
    (tmp_path / "a.db.gz").write_bytes(gzip.compress(whole))
    for name in ("cut.db", "a.db.gz"):
        with pytest.raises(TraceError, match=r"cannot be read as an SQLite file .*unpacked"):
            read_workload(tmp_path / name)
