from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import TraceError
from hpctwin.formats import read_workload, write_workload
from hpctwin.formats.mapped_table import Columns
from hpctwin.model import Category, DependencyKind, Workload
from tests.formats.format_strategies import assert_same_jobs, labels_of, workloads

HEAD = "job_id,submit_s,runtime_s,nodes,user\n"


def table(tmp_path: Path, text: str, **how: Any) -> Workload:
    (tmp_path / "w.csv").write_text(text)
    return read_workload(tmp_path / "w.csv", **how)


@given(
    workload=workloads(min_size=1, number_labels=False, kinds=tuple(DependencyKind)),
    name=st.sampled_from(["w.csv", "w.csv.gz", "w.parquet"]),
)
def test_all_jobs_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload, name: str
) -> None:
    path = tmp_path_factory.mktemp("tables") / name
    write_workload(workload, path)
    back = read_workload(path)
    assert back.name == "w"
    assert_same_jobs(back, workload)


@pytest.mark.parametrize("name", ["w.csv", "w.parquet"])
def test_resources_come_back_and_the_rest_is_reported(tmp_path: Path, name: str) -> None:
    w = Workload.build(
        submit_s=[0, 1],
        runtime_s=[1, 1],
        nodes=[1, 1],
        priority=[0.5, -2],
        per_node={"cores": [1, 2.5]},
        resources={"licence": [0, 1]},
        recorded_nodes=["n[1-2]", None],
        cancel_s=[-1, 4],
        header=["; x"],
        start_epoch_s=3,
        nodes_hint=8,
    )
    lost = write_workload(w, tmp_path / name)
    assert [sentence.rpartition("the ")[2] for sentence in lost] == [
        "header",
        "start date",
        "machine size",
    ]
    back = read_workload(tmp_path / name)
    assert_same_jobs(back, w)
    assert back.recorded_nodes == w.recorded_nodes
    assert back.per_node["cores"].tolist() == [1, 2.5]
    assert back.resources["licence"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("ids", "kind", "found"),
    [
        ("3 1 2", "i", [3, 1, 2]),
        ("3 x 2", "U", ["3", "x", "2"]),
        ("007 7 8", "U", ["007", "7", "8"]),
    ],
)
def test_job_ids_are_integers_only_where_nothing_is_lost(
    tmp_path: Path, ids: str, kind: str, found: list[Any]
) -> None:
    rows = [f"{job},{n},1,1,a\n" for n, job in enumerate(ids.split())]
    w = table(tmp_path, HEAD + "".join(rows))
    assert w.job_id.dtype.kind == kind
    assert w.job_id.tolist() == found


def test_quotes_blank_lines_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_bytes(
        b'\xef\xbb\xbfjob_id,submit_s,runtime_s,nodes,user\r\n1,0,1,1,"a,b"\r\n\r\n2,1,1,1,\r\n'
    )
    w = read_workload(tmp_path / "w.csv")
    assert labels_of(w.user) == ["a,b", None]


def test_an_empty_walltime_is_the_run_time_and_counted(tmp_path: Path) -> None:
    w = table(tmp_path, "submit_s,runtime_s,nodes,walltime_s\n0,5,1,\n1,0,1,9\n")
    assert w.walltime_ms.tolist() == [5000, 9000]
    assert w.notes.counts == {"job without walltime, given its run time": 1}


def test_columns_that_are_none_of_ours_are_counted(tmp_path: Path) -> None:
    w = table(tmp_path, "submit_s,runtime_s,nodes,walltime\n0,5,1,9\n")
    assert w.notes.counts == {"cell of unknown column 'walltime', ignored": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2,0,1,1", "line 3: found 4 cells, expected 5"),
        ("2,0,1,1,a,b", "line 3: found 6 cells, expected 5"),
        ("2,x,1,1,a", "line 3, field submit_s: found 'x', expected a number, 0 or more"),
        ("2,,1,1,a", "line 3, field submit_s: found nothing, expected a number"),
        ("2,nan,1,1,a", "line 3, field submit_s: found 'nan'"),
        ("2,1e13,1,1,a", "line 3, field submit_s: found '1e13'"),
        ("2,0,-1,1,a", "line 3, field runtime_s: found '-1', expected a number, 0 or more"),
        ("2,0,1,1.5,a", "line 3, field nodes: found '1.5', expected a whole number, 1 or more"),
        ("1,0,1,1,a", "line 3, field job_id: found '1', expected an id that no other row has"),
        (",0,1,1,a", "line 3, field job_id: found nothing, expected an id"),
    ],
)
def test_a_malformed_row_is_named_or_skipped(tmp_path: Path, row: str, message: str) -> None:
    text = f"{HEAD}1,0,1,1,a\n{row}\n3,0,1,1,b\n"
    with pytest.raises(TraceError) as caught:
        table(tmp_path, text)
    assert message in str(caught.value)
    w = table(tmp_path, text, skip_invalid=True)
    assert w.job_id.tolist() == [1, 3]
    assert len(w.notes.skipped) == 1
    assert message in w.notes.skipped[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("submit_s,runtime_s\n0,1\n", "field nodes: the column is missing; required are submit_s"),
        ("submit_s,runtime_s,nodes,nodes\n0,1,1,1\n", "line 1, field nodes: two columns"),
        ('submit_s,runtime_s,nodes\n0,1,"1\n', "not CSV: unexpected end of data"),
        ("submit_s,runtime_s,nodes,depends\n0,1,1,soon\n", "job 1: depends is 'soon'"),
    ],
)
def test_an_invalid_table_is_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        table(tmp_path, text)
    assert message in str(caught.value)
    assert "w.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("shared_with", "usr", "anyone, user or account (0 to 2)"),
        ("shared_with", "3", "anyone, user or account (0 to 2)"),
        ("shared_with", "-1", "anyone, user or account (0 to 2)"),
        ("shared_with", "1.5", "anyone, user or account (0 to 2)"),
        ("exclusive", "yes", "false or true (0 to 1)"),
    ],
)
def test_a_column_of_words_names_those_there_are(
    tmp_path: Path, column: str, cell: str, expected: str
) -> None:
    with pytest.raises(TraceError) as caught:
        table(tmp_path, f"submit_s,runtime_s,nodes,tasks,{column}\n0,1,1,4,0\n0,1,1,4,{cell}\n")
    said = f"line 3, field {column}: found '{cell}', expected {expected}"
    assert str(caught.value).endswith(said)


def test_a_table_without_rows_holds_no_jobs(tmp_path: Path) -> None:
    assert len(table(tmp_path, HEAD)) == 0


def test_parquet_says_which_row_is_malformed(tmp_path: Path) -> None:
    frame = pl.DataFrame({"submit_s": [0, 1], "runtime_s": [1, -1], "nodes": [1, 1]})
    frame.write_parquet(tmp_path / "w.parquet")
    with pytest.raises(TraceError, match=r"w\.parquet, field runtime_s: row 2: found -1"):
        read_workload(tmp_path / "w.parquet")
    assert len(read_workload(tmp_path / "w.parquet", skip_invalid=True)) == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("runtime_s", [dt.datetime(2024, 1, 1)]),
        ("nodes", [[1, 2]]),
        ("job_id", [{"a": 1}]),
        ("user", [dt.date(2024, 1, 1)]),
    ],
)
def test_parquet_columns_of_a_type_that_does_not_fit(
    tmp_path: Path, column: str, values: list[Any]
) -> None:
    frame = pl.DataFrame({"submit_s": [0], "runtime_s": [1], "nodes": [1]})
    frame.with_columns(pl.Series(column, values)).write_parquet(tmp_path / "w.parquet")
    with pytest.raises(TraceError, match=rf"field {column}: the column holds .*, expected numbers"):
        read_workload(tmp_path / "w.parquet")


def test_parquet_dates_are_times_since_the_first_submission(tmp_path: Path) -> None:
    days = [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 5)]
    frame = pl.DataFrame({"submit_s": days, "runtime_s": [1, 1], "nodes": [1, 1]})
    frame.write_parquet(tmp_path / "w.parquet")
    jobs = read_workload(tmp_path / "w.parquet")
    assert jobs.submit_ms.tolist() == [0, 5000]
    assert jobs.start_epoch_s == dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()


def test_whole_floating_point_ids_are_integers(tmp_path: Path) -> None:
    frame = pl.DataFrame({"job_id": [4.0], "submit_s": [0], "runtime_s": [1], "nodes": [1]})
    frame.write_parquet(tmp_path / "w.parquet")
    assert read_workload(tmp_path / "w.parquet").job_id.tolist() == [4]


def test_a_cut_parquet_is_a_trace_error(tmp_path: Path) -> None:
    path = tmp_path / "w.parquet"
    write_workload(Workload.build(submit_s=[0], runtime_s=[1], nodes=[1]), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TraceError, match="not a Parquet file, or truncated"):
        read_workload(path)


def test_numbered_users_come_back_in_order_of_number(tmp_path: Path) -> None:
    w = Workload.build(submit_s=[0, 1], runtime_s=[1, 1], nodes=[1, 1], user=Category.of([10, 9]))
    write_workload(w, tmp_path / "w.csv")
    assert read_workload(tmp_path / "w.csv").user.labels == ("9", "10")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("quoted", [False, True])
def test_tables_with_other_separators_may_have_decimal_commas(
    tmp_path: Path, mark: str, quoted: bool
) -> None:
    rows = [
        ["submit_s", "runtime_s", "nodes", "user"],
        ["0,5", "10", "2", "a,b"],
        ["1", "2,25", "1", "c"],
    ]
    if quoted:
        rows[2][3] = '"c"'
    w = table(tmp_path, "".join(mark.join(row) + "\n" for row in rows))
    assert (w.submit_ms.tolist(), w.runtime_ms.tolist()) == ([500, 1000], [10_000, 2250])
    assert labels_of(w.user) == ["a,b", "c"]
    assert "numbers of column submit_s, runtime_s have a decimal comma" in w.notes.remarks


def test_commas_stay_commas_where_they_separate(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 2, field runtime_s: found '1,5'"):
        table(tmp_path, 'submit_s,runtime_s,nodes\n0,"1,5",1\n')


def test_latin_1_is_read_and_reported(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_bytes(f"{HEAD}1,0,1,1,Jürgen\n".encode("latin-1"))
    w = read_workload(tmp_path / "w.csv")
    assert labels_of(w.user) == ["Jürgen"]
    assert "the text is not UTF-8 (line 2): read as Latin-1" in w.notes.remarks


@pytest.mark.parametrize("text", ["1,0,5,4\n2,1,6,8\n", "1;0;5;4\r\n2;1;6;8\r\n"])
def test_a_table_without_header_asks_for_columns_by_number(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match=r"line 1: .*expected a header row.*--columns submit=1"):
        table(tmp_path, text)
    columns = Columns(job_id="1", submit="2", runtime="3", nodes="4")
    w = table(tmp_path, text, columns=columns)
    assert (w.job_id.tolist(), w.runtime_ms.tolist()) == ([1, 2], [5000, 6000])
    assert w.nodes.tolist() == [4, 8]
