from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import formats
from hpctwin.errors import ConfigError, TraceError
from hpctwin.formats import SwfRules, read_workload
from hpctwin.formats.swf import reader, records
from hpctwin.formats.swf import records as swf_large
from hpctwin.formats.swf.reader import read_swf
from hpctwin.formats.swf.writer import write_swf
from hpctwin.model import DependencyKind, Workload
from tests.formats.format_strategies import assert_same_jobs, labels_of, swf_files

FIELDS = (
    *("job", "submit", "wait", "run", "alloc", "cpu", "mem", "nodes", "walltime"),
    *("reqmem", "status", "user", "group", "exe", "queue", "partition", "preceding", "think"),
)


def line(**fields: Any) -> str:
    usual = {"job": 1, "submit": 0, "run": 10, "nodes": 4, "walltime": 20, "status": 1}
    return " ".join(str({**usual, **fields}.get(name, -1)) for name in FIELDS)


def read(tmp_path: Path, *lines: str, rules: SwfRules | None = None, **how: Any) -> Workload:
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return read_swf(path, rules, **how)


def test_each_field_goes_where_it_belongs(tmp_path: Path) -> None:
    w = read(
        tmp_path,
        "; UnixStartTime: 1000",
        "; MaxNodes: 64",
        "; MaxProcs: 128",
        line(job=7, submit=5, wait=2.5, run=11, user=3, group=4, queue=2, partition=9),
        line(job=9, submit=8, preceding=7, think=1.5),
    )
    assert w.name == "log"
    assert w.job_id.tolist() == [7, 9]
    assert w.submit_ms.tolist() == [0, 3000]
    assert w.recorded_start_ms.tolist() == [2500, -1]
    assert w.runtime_ms.tolist() == [11000, 10000]
    assert w.walltime_ms.tolist() == [20000, 20000]
    assert w.nodes.tolist() == [4, 4]
    assert labels_of(w.user) == ["3", None]
    assert labels_of(w.account) == ["4", None]
    assert labels_of(w.partition) == ["2", None]
    assert w.dependencies.job.tolist() == [1]
    assert w.dependencies.on.tolist() == [0]
    assert w.dependencies.delay_ms.tolist() == [1500]
    assert w.nodes_hint == 128
    assert w.start_epoch_s == 1005
    assert w.header == ("; UnixStartTime: 1000", "; MaxNodes: 64", "; MaxProcs: 128")
    assert w.notes.counts == {}


def test_unix_submit_times_give_the_start_whatever_the_header_says(tmp_path: Path) -> None:
    lines = ["; UnixStartTime: 0", line(submit=1641021254)]
    assert read(tmp_path, *lines).start_epoch_s == 1641021254
    kept = read(tmp_path, *lines, rules=SwfRules(rebase=False))
    assert kept.start_epoch_s == 0
    assert kept.submit_ms.tolist() == [1641021254000]


def test_times_stay_without_rebase(tmp_path: Path) -> None:
    w = read(tmp_path, "; UnixStartTime: 50", line(submit=7), rules=SwfRules(rebase=False))
    assert w.submit_ms.tolist() == [7000]
    assert w.start_epoch_s == 50


def test_start_is_unknown_where_the_log_does_not_say_it(tmp_path: Path) -> None:
    assert read(tmp_path, line()).start_epoch_s is None
    assert read(tmp_path, line()).nodes_hint is None


def test_partition_field_is_chosen_by_rule(tmp_path: Path) -> None:
    one = line(queue=2, partition=9)
    by: dict[str, list[str | None]] = {
        field: labels_of(read(tmp_path, one, rules=SwfRules(partition_field=field)).partition)
        for field in ("queue", "partition", "none")
    }
    assert by == {"queue": ["2"], "partition": ["9"], "none": [None]}


def test_processors_make_nodes_rounded_up(tmp_path: Path) -> None:
    w = read(tmp_path, "; MaxProcs: 50", line(nodes=25), rules=SwfRules(procs_per_node=24))
    assert w.nodes.tolist() == [2]
    assert w.nodes_hint == 3


@pytest.mark.parametrize(
    ("rule", "walltime_ms", "counted"),
    [
        ("runtime", [10000, 1], "job without requested time, given its run time"),
        (60.0, [60000, 60000], "job without requested time, given 60 s"),
        ("drop", [], "job without requested time, skipped"),
    ],
)
def test_no_walltime(tmp_path: Path, rule: Any, walltime_ms: list[int], counted: str) -> None:
    lines = [line(walltime=-1), line(job=2, walltime=0, run=0)]
    w = read(tmp_path, *lines, rules=SwfRules(missing_walltime=rule))
    assert w.walltime_ms.tolist() == walltime_ms
    assert w.notes.counts == {counted: 2}


def test_no_nodes(tmp_path: Path) -> None:
    lines = [line(nodes=-1, alloc=6), line(job=2)]
    assert read(tmp_path, *lines).nodes.tolist() == [6, 4]
    w = read(tmp_path, *lines, rules=SwfRules(no_nodes="drop"))
    assert w.job_id.tolist() == [2]
    assert w.notes.counts == {"job without requested processors, skipped": 1}


def test_no_runtime(tmp_path: Path) -> None:
    lines = [line(run=-1), line(job=2)]
    assert read(tmp_path, *lines).notes.counts == {"job without run time, skipped": 1}
    w = read(tmp_path, *lines, rules=SwfRules(no_runtime="zero"))
    assert w.runtime_ms.tolist() == [0, 10000]
    assert w.notes.counts == {"job without run time, given 0 s": 1}


def test_jobs_cancelled_before_they_started(tmp_path: Path) -> None:
    lines = [
        line(status=5, run=0, wait=30),
        line(job=2, status=5, run=-1, wait=-1),
        line(job=3, status=5, run=7, wait=3),
        line(job=4, status=5, run=-1, wait=9, walltime=-1),
    ]
    dropped = read(tmp_path, *lines)
    assert dropped.job_id.tolist() == [3]
    assert dropped.notes.counts == {"job cancelled before it started, skipped": 3}
    kept = read(tmp_path, *lines, rules=SwfRules(cancelled="keep"))
    assert kept.job_id.tolist() == [1, 3, 4]
    assert kept.cancel_ms.tolist() == [30000, -1, 9000]
    assert kept.runtime_ms.tolist() == [20000, 7000, 0]
    assert kept.recorded_start_ms.tolist() == [-1, 3000, -1]
    assert kept.notes.counts == {
        "job cancelled before it started, kept": 2,
        "job cancelled before it started, skipped: unknown cancel time": 1,
        "job without requested time, given its run time": 1,
    }


def test_overrun(tmp_path: Path) -> None:
    assert read(tmp_path, line(run=50)).runtime_ms.tolist() == [50000]
    cut = read(tmp_path, line(run=50), rules=SwfRules(overrun="cut"))
    assert cut.runtime_ms.tolist() == [20000]
    assert cut.notes.counts == {"run time cut to the requested time": 1}


def test_parts_of_a_job_give_way_to_its_own_line(tmp_path: Path) -> None:
    w = read(tmp_path, line(run=30), line(run=10, status=2), line(run=20, status=3))
    assert w.runtime_ms.tolist() == [30000]
    assert list(w.notes.counts.values()) == [2]


def test_a_part_without_a_line_of_its_own_is_a_job(tmp_path: Path) -> None:
    assert len(read(tmp_path, line(status=3))) == 1


def test_negative_numbers_other_than_minus_one_are_unknown_and_counted(tmp_path: Path) -> None:
    w = read(tmp_path, line(wait=-7))
    assert w.recorded_start_ms.tolist() == [-1]
    assert w.notes.counts == {"job with a negative number other than -1, treated as unknown": 1}


def test_dependency_on_a_job_that_is_not_there_is_counted(tmp_path: Path) -> None:
    w = read(tmp_path, line(preceding=5), line(job=2))
    assert len(w.dependencies) == 0
    assert w.notes.counts == {"job with an unknown preceding job, dependency ignored": 1}


def test_a_think_time_makes_a_submission_and_none_a_dependency(tmp_path: Path) -> None:
    w = read(tmp_path, line(), line(job=2, preceding=1, think=0), line(job=3, preceding=1))
    assert w.dependencies.kind.tolist() == [DependencyKind.THINK, DependencyKind.AFTERANY]
    assert w.dependencies.delay_ms.tolist() == [0, 0]


def test_a_job_that_names_itself_waits_for_none_and_is_counted(tmp_path: Path) -> None:
    w = read(tmp_path, line(), line(job=2, preceding=2, think=5), line(job=3, preceding=1))
    assert w.dependencies.job.tolist() == [2]
    assert w.notes.counts == {"job that names itself as preceding job, dependency ignored": 1}


def test_skip_invalid_reads_jobs_of_a_cycle_without_it(tmp_path: Path) -> None:
    lines = [
        line(job=n, preceding=on) for n, on in ((1, 3), (2, 1), (3, 2), (4, 3), (5, 4), (6, -1))
    ]
    w = read(tmp_path, *lines, skip_invalid=True)
    assert w.dependencies.job.tolist() == [3, 4]
    assert w.notes.counts == {"job in a cycle of preceding jobs, dependency ignored": 3}
    assert "1 → 3 → 2 → 1" in w.notes.skipped[0]


HEADER = "; MaxProcs: 8"


@pytest.mark.parametrize(
    ("mark", "lines"),
    [
        (",", ["1,0,0,100,4,,-1,4,120,-1,1,1,1,1,1,1,-1,-1"]),
        (";", ["1;0;0;100;4;-1;-1;4;120;-1;1;1;1;1;1;1;-1;-1"]),
        ("|", ["1| 0| 0| 100| 4| -1|-1|4|120|-1|1|1|1|1|1|1|-1|"]),
        ("11 columns", ["1 0 0 100 4 -1 -1 4 120 -1 1"]),
        ("11 columns by comma", ["1,0,0,100,4,-1,-1,4,120,-1,1"]),
        ("14 columns, # as comment", ["# a note", "1 0 0 100 4 -1 -1 4 120 -1 1 1 1 1"]),
    ],
)
def test_logs_of_other_programs_are_read_as_swf(
    tmp_path: Path, mark: str, lines: list[str]
) -> None:
    w = read(tmp_path, HEADER, *lines, "", "; the end")
    assert (w.job_id.tolist(), w.runtime_ms.tolist(), w.nodes.tolist()) == ([1], [100_000], [4])
    assert w.walltime_ms.tolist() == [120_000]
    assert any("columns" in remark for remark in w.notes.remarks) == ("columns" in mark)


def test_five_columns_need_comments_of_swf(tmp_path: Path) -> None:
    lines = "1 0 0 100 4", "2 5 0 50 8"
    assert read(tmp_path, "# MaxProcs: 8", *lines).nodes.tolist() == [4, 8]
    with pytest.raises(TraceError, match="line 1: found 5 columns, expected 18"):
        read(tmp_path, *lines)
    with pytest.raises(TraceError, match="line 2: found 5 columns, expected 18"):
        read(tmp_path, HEADER, lines[0], "2 5 0 50")


def test_a_separator_between_words_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 1: found 1 column, expected 18"):
        read(tmp_path, "job,submit,wait,run,procs,a", "1,0,0,100,4,1")


def test_a_job_known_by_its_parts_alone_runs_as_long_as_all(tmp_path: Path) -> None:
    parts = [
        line(run=60, wait=3, status=2),
        line(submit=-1, run=40, status=2),
        line(run=5, status=3),
    ]
    w = read(tmp_path, *parts, line(job=2, run=7), line(job=3, run=9, status=4))
    assert w.runtime_ms.tolist() == [105_000, 7_000, 9_000]
    assert w.recorded_start_ms.tolist() == [3_000, -1, -1]
    assert w.carried["status"].tolist() == [1, 1, 4]
    assert w.notes.counts == {
        "line about a part of a job (status 2, 3 or 4), added to its first part": 2
    }


def test_a_job_with_a_line_of_its_own_is_not_counted_twice(tmp_path: Path) -> None:
    lines = [line(run=60, status=2), line(run=100), line(run=40, status=3)]
    w = read(tmp_path, *lines)
    assert w.runtime_ms.tolist() == [100_000]


@pytest.mark.parametrize(
    ("header", "hint", "said"),
    [
        (["; MaxProcs: 8"], 8, "1 of 2 jobs request more, job 2 for 64"),
        (["; MaxNodes: 8"], 64, "too few for jobs of up to 64 processors"),
        (["; MaxNodes: 8", "; MaxProcs: 64"], 64, ""),
        (["; MaxNodes: 100"], 100, ""),
        (["; MaxProcs: 64 (8,56)", "; MaxJobs: 1"], 64, "but the log has 2 job lines"),
        ([], None, ""),
    ],
)
def test_a_header_that_does_not_fit_the_jobs_is_reported(
    tmp_path: Path, header: list[str], hint: int | None, said: str
) -> None:
    w = read(tmp_path, *header, line(), line(job=2, nodes=64))
    assert w.nodes_hint == hint
    assert [said in remark for remark in w.notes.remarks] == [True] * bool(said)


def test_a_column_full_of_one_preceding_job_is_a_placeholder(tmp_path: Path) -> None:
    w = read(tmp_path, line(preceding=1, think=1), line(job=2, preceding=1, think=1))
    assert len(w.dependencies) == 0
    assert list(w.notes.counts.values()) == [2]


def test_a_cycle_of_dependencies_names_file_and_jobs(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"log\.swf: dependencies form a cycle: 1 → 2 → 1"):
        read(tmp_path, line(preceding=2), line(job=2, preceding=1), line(job=3))


def test_more_columns_are_counted(tmp_path: Path) -> None:
    w = read(tmp_path, line() + " {1,2} q", line(job=2))
    assert len(w) == 2
    assert w.notes.counts == {"line with more than 18 fields, the others ignored": 1}


def test_comments_are_kept_wherever_they_are(tmp_path: Path) -> None:
    w = read(tmp_path, "; a", line() + " ;no comment", "  ; b", "", line(job=2), ";")
    assert w.header == ("; a", "; b", ";")
    assert len(w) == 2


def test_latin_1_comments_are_read(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_bytes("; Université\n".encode("latin-1") + line().encode())
    assert read_swf(tmp_path / "log.swf").header == ("; Université",)


def test_a_log_with_comments_only_holds_no_jobs(tmp_path: Path) -> None:
    assert len(read(tmp_path, "; MaxProcs: 8")) == 0


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_of_all_systems(tmp_path: Path, end: bytes) -> None:
    (tmp_path / "log.swf").write_bytes(
        b"\xef\xbb\xbf; a" + end + line().encode() + end + line(job=2).encode()
    )
    assert len(read_swf(tmp_path / "log.swf")) == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            line(job=2, run="abc"),
            "line 4, field run time: found 'abc', expected a number of seconds",
        ),
        ("2 0 1", "line 4: found 3 columns, expected 18"),
        (line(job=1), "line 4, field job number: job 1 occurs twice in the file"),
        (line(job=-2), "line 4, field job number: found -2, expected a whole number, 0 or more"),
        (line(job="2.5"), "line 4, field job number: found '2.5', expected a whole number"),
        (line(job=2, submit=-1), "line 4, field submit time: found -1, expected"),
        (line(job=2, submit=1.7e12), "line 4, field submit time: found 1700000000000, expected"),
        (line(job=2, nodes=0), "line 4, field requested processors: found 0, expected a number ab"),
        (line(job=2, nodes=2.5), "line 4, field requested processors: found 2.5, expected a whole"),
        (line(job=2, user="nan"), "line 4, field user: found 'nan', expected a number or -1"),
        (line(job=2, mem="1_000"), "line 4, field used memory: found '1_000', expected"),
        (line(job=2, think="1e999"), "line 4, field think time: found '1e999', expected"),
    ],
)
def test_a_malformed_line_is_named_or_skipped(tmp_path: Path, bad: str, message: str) -> None:
    lines = ["; head", "", line(), bad, line(job=3)]
    with pytest.raises(TraceError) as caught:
        read(tmp_path, *lines)
    assert message in str(caught.value)
    assert str(tmp_path / "log.swf") in str(caught.value)
    assert caught.value.line == 4
    w = read(tmp_path, *lines, skip_invalid=True)
    assert w.job_id.tolist() == [1, 3]
    assert len(w.notes.skipped) == 1
    assert message in w.notes.skipped[0]


def test_job_numbers_beyond_double_precision_stay_exact(tmp_path: Path) -> None:
    big = 2**60 + 1
    lines = [line(job=big), line(job=2, preceding=big)]
    assert read(tmp_path, *lines).job_id.tolist() == [2, big]
    w = read(tmp_path, *lines, "broken", skip_invalid=True)
    assert w.job_id.tolist() == [2, big]
    assert len(w.dependencies) == 1


def test_gzip_is_known_by_content_and_not_by_name(tmp_path: Path) -> None:
    packed, plain = tmp_path / "a.swf", tmp_path / "b.swf.gz"
    packed.write_bytes(gzip.compress(line().encode()))
    plain.write_text(line())
    assert len(read_workload(packed)) == len(read_workload(plain)) == 1
    assert read_workload(plain).name == "b"


@pytest.mark.parametrize("cut", [3, 15, 100, -9, -1])
def test_a_cut_gzip_is_never_a_shorter_log(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.swf.gz"
    whole = gzip.compress("\n".join(line(job=n) for n in range(500)).encode())
    path.write_bytes(whole[:cut])
    with pytest.raises(TraceError, match="truncated or corrupt"):
        read_swf(path)


def test_a_gzip_with_a_wrong_checksum_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    whole = bytearray(gzip.compress(line().encode()))
    whole[-6] ^= 1
    path.write_bytes(whole)
    with pytest.raises(TraceError, match="truncated or corrupt"):
        read_swf(path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("missing_walltime", "guess"),
        ("missing_walltime", -5.0),
        ("missing_walltime", float("nan")),
        ("no_nodes", "keep"),
        ("procs_per_node", 0),
        ("partition_field", "user"),
    ],
)
def test_an_invalid_rule_is_rejected(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"SWF rule {option} is"):
        SwfRules(**{option: value})


@given(content=swf_files())
def test_both_tiers_read_the_same(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    path.write_bytes(content)
    fast = read_swf(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "parse_fast", lambda body: None)
        slow = read_swf(path)
    assert_same_jobs(slow, fast)
    assert slow.notes == fast.notes
    assert (slow.header, slow.start_epoch_s) == (fast.header, fast.start_epoch_s)


@given(content=swf_files())
def test_all_tiers_parse_the_same_numbers(content: bytes) -> None:
    content = records.unify_line_ends(content)
    body = records.split_comments(content)[1]
    slow = records.parse_lines(Path("x"), content, skip_invalid=False)
    for fast in (records.parse_fast(body), swf_large.parse_large(body)):
        if fast is not None:
            assert fast.wider == slow.wider
            for field, values in slow.columns.items():
                np.testing.assert_array_equal(fast.columns[field], values, field)
                assert fast.columns[field].dtype == values.dtype


NUMBERS = st.one_of(
    st.integers(-(10**18) + 1, 10**18 - 1).map(str),
    st.decimals(-(10**6), 10**6, places=6).map("{:f}".format),
    st.from_regex(r"[+-]?([0-9]{1,9}\.[0-9]{0,6}|\.[0-9]{1,15})", fullmatch=True),
)


@given(
    rows=st.lists(st.lists(NUMBERS, min_size=16, max_size=16), min_size=1, max_size=6),
    blank=st.sampled_from([" ", "\t", "  ", " \v"]),
    end=st.sampled_from(["\n", " \n\n", "\n \t\n"]),
)
def test_numbers_of_large_logs_are_read_as_python_does(
    rows: list[list[str]], blank: str, end: str
) -> None:
    numbered = [[str(job), *row, "-1"] for job, row in enumerate(rows)]
    text = end.join(blank.join([*row[:16], row[17], row[16]]) for row in numbered)
    found = swf_large.parse_large(text.encode())
    assert found is not None
    for column, field in enumerate(records.FIELDS):
        expected = [[*row[:16], row[17], row[16]][column] for row in numbered]
        assert found.columns[field].tolist() == [float(text) for text in expected]


@pytest.mark.parametrize(
    "bad",
    [
        "1",
        line(job=2)[:-3],
        line(job=2).replace(" ", ",", 1),
        line(job=2, run="x"),
        line(job=2, run="1e3"),
        line(job=2, run="0x1"),
        line(job=2, run="--1"),
        line(job=2, run="."),
        line(job=2, run="-"),
        line(job=2, run="1.2.3"),
        line(job=2, run="1.2345678901234567"),
        line(job=2, run="1" * 19),
        line(job="2.0"),
        line(job=2, run="1\0"),
    ],
)
def test_additional_content_of_a_large_log_is_left_to_the_other_tiers(bad: str) -> None:
    good = "\n".join(line(job=job) for job in range(5000))
    assert swf_large.parse_large(good.encode()) is not None
    for text in (f"{good}\n{bad}", f"{bad}\n{good}"):
        assert swf_large.parse_large(text.encode()) is None


def test_a_field_of_a_large_log_may_be_known_from_some_line_on() -> None:
    lines = [line(job=job) for job in range(5000)] + [line(job=5000, cpu=7, think=2)]
    found = swf_large.parse_large("\n".join(lines).encode())
    assert found is not None
    assert found.columns["average CPU time"].tolist() == [-1.0] * 5000 + [7.0]
    assert found.columns["think time"][-1] == 2
    assert found.columns["job number"].tolist() == list(range(5001))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_large_log_is_the_same_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    lines = [
        "; MaxProcs: 8",
        line(job=1, run=1.5),
        "; within",
        line(job=2) + " more",
        "",
        line(job=3),
    ]
    path = tmp_path / "log.swf"
    path.write_bytes(end.join(lines).encode())
    small = read_swf(path)
    monkeypatch.setattr(reader, "LARGE", 1)
    monkeypatch.setattr(reader, "parse_fast", None)
    large = read_swf(path)
    assert_same_jobs(small, large)
    assert (large.notes, large.header) == (small.notes, small.header)
    path.write_bytes(end.join([*lines, "4 5 6"]).encode())
    monkeypatch.undo()
    with pytest.raises(TraceError) as said:
        read_swf(path)
    monkeypatch.setattr(reader, "LARGE", 1)
    with pytest.raises(TraceError) as said_large:
        read_swf(path)
    assert str(said_large.value) == str(said.value)


def test_lines_in_order_are_never_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(reader, "parse_lines", slow)
    spread = "   " + line(job=2).replace(" ", " \t ") + "  "
    assert len(read(tmp_path, "; head", line(run=1.5), spread, "", line(job=3) + " q {1,2}")) == 3


def test_decimals_after_thousands_of_whole_numbers_are_read_at_once_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "parse_lines", None)
    lines = [line(job=j) for j in range(2000)]
    w = read(tmp_path, *lines, line(job=2000, run="12.25"), line(job=2001, cpu="1e3"))
    assert w.runtime_ms.tolist() == [10_000] * 2000 + [12_250, 10_000]
    assert set(w.notes.counts) == set()


def test_the_package_names_its_formats() -> None:
    assert formats.FORMATS == (
        "batsim",
        "csv",
        "elastisim",
        "parquet",
        "pbs",
        "sacct",
        "spars",
        "swf",
        "wfcommons",
    )


def test_processors_are_cores_of_shared_nodes_if_the_rule_says_so(tmp_path: Path) -> None:
    lines = ("1 0 5 10 4 -1 -1 4 20 2097152", "2 3 5 10 2 -1 -1 -1 20 -1")
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{line} 1 1 1 1 1 1 -1 -1\n" for line in lines))
    workload = read_swf(log, SwfRules(processors="cores"))
    assert workload.chunks["tasks"].tolist() == [4, 2]
    assert workload.chunks["cores_per_task"].tolist() == [1, 1]
    assert workload.chunks["memory_gb_per_task"].tolist() == [2, 0]
    assert workload.nodes.tolist() == [1, 1]
    write_swf(workload, tmp_path / "again.swf")
    again = read_swf(tmp_path / "again.swf", SwfRules(processors="cores"))
    assert again.chunks["tasks"].tolist() == [4, 2]
    assert again.chunks["memory_gb_per_task"].tolist() == [2, 0]
