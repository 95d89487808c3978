"""Tables whose columns are not ours, read by a mapping."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from hpctwin import Workload
from hpctwin.cli import main
from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.formats import read_workload
from hpctwin.formats.mapped_table import Columns, columns_of

TABLE = """Id,Queued,Began,Over,Limit,Width,Who,How
a1,2024-03-31T00:30:00,2024-03-31T01:30:00,2024-03-31T03:30:00,1-00:00:00,4,ada,COMPLETED
a2,2024-03-31T00:40:00,2024-03-31T01:31:00,2024-03-31T01:41:00,00:30:00,2,ben,CANCELLED by 7
a3,2024-03-31T00:50:00,2024-03-31T04:00:00,2024-03-31T05:00:00,UNLIMITED,1,ada,FAILED
"""
MAPPING = (
    "submit=Queued,start=Began,end=Over,walltime=Limit,nodes=Width,user=Who,state=How,job_id=Id"
)


def table(folder: Path, text: str = TABLE) -> Path:
    path = folder / "site.csv"
    path.write_text(text)
    return path


def read(folder: Path, mapping: str, text: str = TABLE, **options: object) -> Workload:
    return read_workload(table(folder, text), columns=columns_of([mapping]), **options)


def test_dates_limits_and_states_as_sites_write_them(tmp_path: Path) -> None:
    jobs = read(tmp_path, MAPPING).to_frame()
    assert jobs["job_id"].to_list() == ["a1", "a2", "a3"]
    assert jobs["submit_s"].to_list() == [0, 600, 1200]
    assert jobs["runtime_s"].to_list() == [7200, 600, 3600]
    assert jobs["walltime_s"].to_list() == [86400, 1800, 3600]
    assert jobs["fails"].to_list() == [0, 0, 1]


def test_where_clocks_go_forward_at_night_an_hour_is_missing_in_runs(tmp_path: Path) -> None:
    # In Berlin it was 03:00 after 01:59:59.
    jobs = read(tmp_path, MAPPING, timezone="Europe/Berlin").to_frame()
    assert jobs["runtime_s"].to_list() == [3600, 600, 3600]


def test_expressions_numbers_and_waits_in_place_of_columns(tmp_path: Path) -> None:
    text = "gap,waited min,cpus,ok\n0,2,64,1\n30,0,100,0\n"
    mapping = (
        'interval=gap,wait="waited min"*60,runtime=90,nodes=ceil(cpus/64),'
        "state=CASE WHEN ok = 1 THEN 'COMPLETED' ELSE 'FAILED' END,qos='normal'"
    )
    jobs = read(tmp_path, mapping, text).to_frame()
    assert jobs["submit_s"].to_list() == [0, 30]
    assert jobs["recorded_start_s"].to_list() == [120, 30]
    assert jobs["runtime_s"].to_list() == [90, 90]
    assert jobs["nodes"].to_list() == [1, 2]
    assert jobs["fails"].to_list() == [0, 1]
    assert jobs["qos"].to_list() == ["normal", "normal"]


def test_jobs_that_share_nodes_ask_for_what_the_table_says(tmp_path: Path) -> None:
    text = "t,d,milli,mib,gpu\n0,60,12000,16384,460\n5,60,500,,1000\n"
    mapping = (
        "submit=t,runtime=d,nodes=1,cores=milli/1000,memory_gb=mib/1024,gpus=gpu/1000,shared=true"
    )
    jobs = read(tmp_path, mapping, text).to_frame()
    assert jobs["cores_per_task"].to_list() == [12, 0.5]
    assert jobs["memory_gb_per_task"].to_list() == [16, 0]
    assert jobs["gpus_per_task"].to_list() == [0.46, 1]


def test_a_mapping_in_yaml_and_one_from_parquet_say_the_same(tmp_path: Path) -> None:
    mapping = tmp_path / "columns.yaml"
    mapping.write_text(MAPPING.replace(",", "\n").replace("=", ": "))
    assert columns_of([str(mapping)]) == columns_of([MAPPING]) == columns_of(MAPPING.split(","))
    typed = pl.read_csv(table(tmp_path), try_parse_dates=True)
    typed.write_parquet(tmp_path / "site.parquet")
    again = read_workload(tmp_path / "site.parquet", columns=columns_of([str(mapping)]))
    assert again.to_frame().equals(read(tmp_path, MAPPING).to_frame())


def test_rows_under_one_id_are_jobs_of_their_own(tmp_path: Path) -> None:
    found = read(tmp_path, "submit=t,runtime=5,job_id=i", "i,t\n7,0\n7,0\n7,3\n")
    assert len(found) == 3
    assert len(set(found.to_frame()["job_id"])) == 3


def test_unreadable_entries_are_skipped_only_on_request_and_are_reported(tmp_path: Path) -> None:
    text = TABLE.replace("00:30:00,2,ben", "half an hour,2,ben")
    with pytest.raises(HpctwinError, match=r"line 3.*'half an hour'.*1-02:03:04"):
        read(tmp_path, MAPPING, text)
    found = read(tmp_path, MAPPING, text, skip_invalid=True)
    assert found.to_frame()["job_id"].to_list() == ["a1", "a3"]
    assert found.notes.counts["row skipped: a cell cannot be read"] == 1
    assert "half an hour" in found.notes.skipped[0]


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ("submit", "must be a YAML file, or field=column"),
        ("submit=", "must be a YAML file, or field=column"),
        ("submitted=Queued", "submitted.*did you mean 'submit'"),
        ("submit=Queued", "give runtime, or end with start or wait"),
        ("runtime=Width", "give either submit or interval"),
        ("submit=Queued,end=Over", "give runtime"),
        ("submit=Queued,start=Began,wait=Limit,end=Over", "give start or wait, not both"),
        ("submit=Qeued,runtime=Width", "there is no column 'Qeued'.*Did you mean 'Queued'"),
        ("submit=Queued,runtime=Width*", "neither a column nor an expression"),
        ("submit=Queued,runtime=Width*Scale", "there is no column 'Scale'"),
        ("submit=Queued,runtime=no_such(Width)", "no_such"),
        ("submit=Who,runtime=Width", "found 'ada', expected a date"),
        ("submit=Queued,runtime=Width,nodes=Who", "found 'ada', expected a number"),
        ("submit=Queued,runtime=Who*2", "runtime"),
    ],
)  # fmt: skip
def test_a_mapping_that_does_not_fit_is_reported_in_one_line(
    mapping: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(HpctwinError, match=f"(?i){said}") as caught:
        read(tmp_path, mapping)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_of_a_yaml_mapping_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("submit: Queued\nwalltme: Limit\n")
    with pytest.raises(ConfigError, match=r"m\.yaml, line 2, walltme.*walltime"):
        columns_of([str(tmp_path / "m.yaml")])


def test_fields_without_a_place_in_a_mapping_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without --only"):
        read(tmp_path, MAPPING, only=["Who=ada"])
    with pytest.raises(ConfigError, match="is only valid for CSV and Parquet"):
        read(tmp_path, MAPPING, format="swf")


def test_from_a_command_to_what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(table(tmp_path))
    with pytest.raises(SystemExit, match="0"):
        main(["simulate", path, "-n", "4", "--columns", MAPPING, "--json"])
    assert json.loads(capsys.readouterr().out)["jobs"] == 3
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", path, "-n", "4"])
    assert "--columns" in capsys.readouterr().err


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "jobs", "mapping"),
    [
        (
            "eagle_sample_1000.csv", 1000,
            "submit=submit_time,start=start_time,end=end_time,walltime=wallclock_req,nodes=nodes_req,"
            "user=user,state=state,job_id=job_id,timezone=America/Denver",
        ),
        (
            "lumos_data_theta.csv", 14374,
            "submit=submit_time,wait=wait_time,runtime=run_time,walltime=wall_time,nodes=node_num,job_id=job",
        ),
        (
            "alibaba_gpu_v2023_pod_list_default.csv", 7255,
            "job_id=name,submit=creation_time,start=scheduled_time,end=deletion_time,cores=cpu_milli/1000,"
            "memory_gb=memory_mib/1024,gpus=num_gpu*gpu_milli/1000,nodes=1,shared=true",
        ),
        (
            "gaia_mustang_2015_100k.csv.gz", 100000,
            "submit=arrival_time*3600,runtime=length*3600,nodes=cpus/24",
        ),
    ],
)  # fmt: skip
def test_files_of_real_sites_are_read_with_one_line_each(
    name: str, jobs: int, mapping: str, traces: Path
) -> None:
    found = read_workload(
        traces / "jobs_csv" / name, columns=Columns.model_validate(dict(columns_of([mapping])))
    )
    assert len(found) == jobs


@pytest.mark.parametrize(
    ("running", "hours"), [("elapsed", [1, 0.75]), ("limit", [1, 10]), ("drop", [1])]
)
def test_a_row_with_a_start_and_no_end_is_still_running(tmp_path, running, hours) -> None:
    text = (
        "sub,beg,fin,lim\n2026-01-01T00:00:00,2026-01-01T00:00:00,2026-01-01T01:00:00,02:00:00\n"
        "2026-01-01T00:00:00,2026-01-01T00:15:00,,10:00:00\n2026-01-01T00:00:00,,,10:00:00\n"
    )
    jobs = read(tmp_path, "submit=sub,start=beg,end=fin,walltime=lim", text, running=running)
    assert (jobs.runtime_ms / 3.6e6).tolist() == hours
    assert sum(n for what, n in jobs.notes.counts.items() if "still running" in what) == 1
    assert jobs.notes.counts["record skipped: unknown run time"] == 1
