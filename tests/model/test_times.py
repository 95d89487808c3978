"""Times that users give: dates, durations, seconds, against a workload that knows its date or does not."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, Workload
from hpctwin.energy import Series
from hpctwin.errors import ConfigError, TraceError
from hpctwin.formats import read_workload
from hpctwin.model.cluster.cluster import Reservation
from hpctwin.model.text import parse_moment, since
from hpctwin.simulation.running.window import moment
from hpctwin.sweep.settings import Span
from tests.cli.test_cli import run

ZERO = dt.datetime(2023, 1, 1, tzinfo=dt.UTC).timestamp()
"""Time zero of the workloads here."""


@pytest.mark.parametrize(
    "written",
    [
        "2023-01-01T00:20",
        "2023-01-01 00:20:00",
        "2023-01-01T00:20:00Z",
        "2023-01-01T01:20:00+01:00",
        "2023-01-01 01:20:00 +0100",
        "2023-01-01 01:20 Europe/Berlin",
        "2023-01-01 00:20 UTC",
        "2023/01/01 00:20",
        "1/1/2023 12:20 AM",
        "01.01.2023 00:20",
        "@1672532400",
        1672532400,
        dt.datetime(2023, 1, 1, 0, 20),
        dt.datetime(2023, 1, 1, 0, 20, tzinfo=dt.UTC),
        "20m",
        "20:00",
        "0-00:20:00",
        1200,
        "1200",
        dt.timedelta(minutes=20),
    ],
)
def test_every_way_to_write_a_time_gives_the_same_time(written: object) -> None:
    jobs = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], start_epoch_s=ZERO)
    assert moment(written, jobs) == 1200
    assert since(parse_moment(written), ZERO, "w") == 1200
    group = {"name": "n", "count": 1}
    fields = {"name": "m", "start": written, "end": "2023-01-02T00:00Z"}
    cluster = Cluster.model_validate({"nodes": [group], "reservations": [fields]})
    assert cluster.at(ZERO, "w").reservations[0] == Reservation(name="m", start=1200, end=86400)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("3/4/2023", "day and month are ambiguous"),
        ("2023-13-01", "is not a duration or a date"),
        ("2023-02-30T00:00", "is not a duration or a date"),
        ("next monday", "2024-01-31T13:00 (UTC unless it names a zone)"),
        ("2023-01-01 00:20 Mars/Phobos", "is not a duration or a date"),
        (True, "True is not a duration"),
        (None, "None is not a duration"),
        ([1], "is not a duration"),
    ],
)
def test_an_invalid_time_is_reported_with_the_accepted_form(written: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_moment(written)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


JOBS = """job_id,submit_s,runtime_s,walltime_s,nodes
1,{0},500,900,2
2,{0},100,1200,2
3,{1},100,900,2
4,{2},100,2000,4
"""
MACHINE = """name: m
nodes: [{name: c, count: 4}]
reservations:
  - {name: past, start: 2022-12-31, end: 2022-12-31T12:00:00}
  - {name: m1, start: 2023-01-01T00:20:00, end: 2023-01-01T02:00:00}
failures: {outages: [{node: 3, start: 2023-01-01 03:00:00+01:00, duration: 1h}]}
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(MACHINE)
    return path


@pytest.mark.parametrize(
    "times",
    [
        ("2023-01-01", "2023-01-01T00:00:10", "2023-01-01T00:00:20"),
        ("2023-01-01T00:00:00Z", "2023-01-01T01:00:10+01:00", "2023-01-01 00:00:20"),
        ("1/1/2023 12:00 AM", "1/1/2023 12:00:10 AM", "1/1/2023 12:00:20 AM"),
        ("1672531200", "1672531210", "1672531220"),
    ],
)
def test_maintenance_with_dates_delays_jobs_of_a_table_with_dates(
    tmp_path: Path, machine: Path, times: tuple[str, str, str]
) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text(JOBS.format(*times))
    jobs = read_workload(table)
    cluster = Cluster.from_yaml(machine)
    assert cluster.reservations[1].start == dt.datetime(2023, 1, 1, 0, 20, tzinfo=dt.UTC)
    found = Simulation(jobs, cluster, "fcfs+easy").run().jobs
    begun = dict(zip(found["job_id"], found["start_s"] - found["submit_s"].min(), strict=True))
    # The last needs all nodes for 2000 s: it waits for maintenance, then for the node that fails at 02:00.
    assert begun == {1: 0, 2: 0, 3: 100, 4: 10800}


def test_a_date_in_a_cluster_needs_a_workload_with_a_date(
    tmp_path: Path, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS.format(0, 10, 20))
    for command in ("simulate", "compare"):
        assert run(command, tmp_path / "jobs.csv", "-M", machine) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert "cluster 'm', reservations: 2022-12-31T00:00:00Z: jobs has no start date" in told


def test_times_of_a_cluster_are_resolved_in_one_place_and_written_as_given(machine: Path) -> None:
    cluster = Cluster.from_yaml(machine)
    assert Cluster.model_validate(cluster.model_dump(mode="json")) == cluster
    found = cluster.at(ZERO, "w")
    assert [one.name for one in found.reservations] == ["m1"]
    assert found.failures.outages[0].start == 7200
    late = cluster.at(ZERO + 3600, "w")
    assert (late.reservations[0].start, late.reservations[0].end) == (0, 3600)
    assert found.at(ZERO, "w") is found


def test_a_reservation_that_ends_before_it_starts_is_rejected_as_dates_and_once_resolved() -> None:
    group = {"name": "n", "count": 1}
    wrong = {"start": "2023-01-02", "end": "2023-01-01"}
    with pytest.raises(ConfigError, match="ends at 2023-01-01T00:00:00Z, not after start"):
        Cluster.model_validate({"nodes": [group], "reservations": [wrong]})
    mixed = {"start": "2d", "end": "2023-01-02"}
    cluster = Cluster.model_validate({"nodes": [group], "reservations": [mixed]})
    with pytest.raises(ConfigError, match="not after start"):
        cluster.at(ZERO, "w")


def test_a_part_of_a_workload_is_cut_by_dates_durations_and_seconds() -> None:
    jobs = Workload.build(
        submit_s=np.arange(10) * 3600.0, runtime_s=[1] * 10, nodes=[1] * 10, start_epoch_s=ZERO
    )[2:]
    assert len(jobs.window("2023-01-01T04:00", dt.datetime(2023, 1, 1, 6))) == 2
    assert len(jobs.window("2h", "4h")) == len(jobs.window(7200, 14400)) == 2
    assert len(jobs.window(dt.date(2023, 1, 1))) == 8
    assert Span(begin="2023-01-01", end=dt.datetime(2023, 1, 2)).label  # type: ignore[arg-type]


def test_a_filter_by_dates_keeps_the_jobs_of_those_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS.format("2023-01-01", "2023-01-02", "2023-01-03"))
    given = ("--after", "2023-01-02", "--before", "3/1/2023")
    out = tmp_path / "few.csv"
    assert run("workload", "filter", tmp_path / "jobs.csv", out, *given) == 2
    assert "day and month are ambiguous" in capsys.readouterr().err
    given = ("--after", "2023-01-02", "--before", "03.01.2023")
    assert run("workload", "filter", tmp_path / "jobs.csv", out, *given) == 0
    assert len(read_workload(out)) == 1


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("2023-01-01,soon,2023-01-01", "line 4, field submit_s: found 'soon'"),
        ("2023-01-01,2023-02-30,2023-01-01", "line 4, field submit_s: found '2023-02-30'"),
    ],
)
def test_a_date_that_cannot_be_read_names_its_line(tmp_path: Path, cells: str, told: str) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS.format(*cells.split(",")))
    with pytest.raises(TraceError) as caught:
        read_workload(tmp_path / "jobs.csv")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("31/03/2024 05:30", "01/04/2024 05:30"),
        ("3/31/2024 5:30 AM", "4/1/2024 5:30 AM"),
        ("31.03.2024 05:30", "01.04.2024 05:30"),
        ("1711863000000", "1711949400000"),
        ("1711863000", "1711949400"),
        ("2024-03-31T07:30+02:00", "2024-04-01 05:30:00.000Z"),
    ],
)
def test_a_column_of_times_is_read_as_spreadsheets_and_programs_write_it(
    tmp_path: Path, first: str, second: str
) -> None:
    table = tmp_path / "times.csv"
    table.write_text(f"Submit,Run\n{first},60\n{second},60\n")
    columns = ["--columns", "submit=Submit,runtime=Run"]
    assert run("workload", "convert", table, tmp_path / "out.swf", *columns) == 0
    jobs = read_workload(tmp_path / "out.swf")
    assert jobs.start_epoch_s == 1711863000
    assert jobs.submit_ms.tolist() == [0, 86_400_000]


def test_prices_by_unix_seconds_have_a_date(tmp_path: Path) -> None:
    path = tmp_path / "price.csv"
    path.write_text("time,price (EUR/MWh)\n1672531200,10\n1672534800,20\n")
    assert Series.read(path).start_epoch_s == ZERO
    path.write_text("time,price (EUR/MWh)\n2023-01-01 01:00:00 +01:00,10\n2023-01-01T01:00Z,20\n")
    assert Series.read(path).start_epoch_s == ZERO


def test_the_schema_of_a_cluster_takes_dates_as_text() -> None:
    schema = json.dumps(Cluster.model_json_schema()["$defs"]["Reservation"]["properties"]["start"])
    assert '"string"' in schema
