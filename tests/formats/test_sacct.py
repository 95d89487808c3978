"""What Slurm's accounting says of jobs, in all the ways in which sacct says it."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError, TraceError
from hpctwin.formats import read_workload
from hpctwin.formats.accounting.sacct import sacct_table
from hpctwin.formats.delimited import Table, tables_in
from hpctwin.formats.record import Tally

RECORDED = Path(__file__).parent / "recorded"
ALL = RECORDED / "sacct-22.05-all.txt.gz"
HEADER = "JobID|Submit|Start|End|ElapsedRaw|Timelimit|NNodes|NCPUS|User|State"


def dump(tmp_path: Path, *lines: str, header: str = HEADER, name: str = "dump.txt") -> Path:
    path = tmp_path / name
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def line(
    job: str, submit: str, start: str, end: str, elapsed: int, state: str = "COMPLETED"
) -> str:
    return f"{job}|{submit}|{start}|{end}|{elapsed}|1-00:00:00|2|8|ada|{state}"


JANUARY = "2026-01-01T10:00:00", "2026-01-01T11:00:00", "2026-01-01T12:00:00"


def test_all_columns_a_selection_and_json_of_one_slurm_have_the_same_jobs():
    told = [
        read_workload(RECORDED / f"sacct-22.05{name}").to_frame().sort("job_id")
        for name in ("-all.txt.gz", "-selection.txt", ".json.gz")
    ]
    assert told[0].equals(told[1])
    assert told[0].equals(told[2])


def test_a_limit_that_is_infinite_and_not_set_is_no_limit(tmp_path: Path):
    """As Slurm writes it since 23.02; a limit that is not set and not infinite is unknown."""
    said = json.loads(gzip.decompress((RECORDED / "sacct-22.05.json.gz").read_bytes()))
    found = {}
    for infinite in (True, False):
        for job in said["jobs"]:
            job["time"]["limit"] = {"set": False, "infinite": infinite, "number": 0}
        path = tmp_path / f"{infinite}.json"
        path.write_text(json.dumps(said))
        found[infinite] = read_workload(path)
    assert len(found[True]) == len(found[False])
    assert not found[True].notes.remarks
    assert found[False].notes.remarks[0].startswith("no walltimes found")


def test_real_jobs_are_reported_with_their_requests():
    jobs = {row["job_id"]: row for row in read_workload(ALL).to_frame().iter_rows(named=True)}
    assert jobs["5"]["gpus_per_node"] == 2
    assert jobs["3"]["walltime_s"] == 60
    assert jobs["3"]["runtime_s"] == 83  # ended late, by a real Slurm
    assert (jobs["10"]["nodes"], jobs["10"]["cores_per_node"]) == (2, 2)  # of two parts
    assert jobs["34"]["runtime_s"] == 25  # of 30 s, 5 of them suspended
    assert jobs["6"]["fails"] == 1
    assert {"4_1", "4_6", "32", "32r2"} <= jobs.keys()  # an array; a job that was requeued
    assert not {"12", "26", "24"} & jobs.keys()  # held, waiting, cancelled before it started


def test_skipped_entries_of_a_real_dump_are_counted_with_their_reason():
    counts = read_workload(ALL).notes.counts
    lines = gzip.decompress(ALL.read_bytes()).count(b"\n") - 1
    out = sum(n for why, n in counts.items() if why.startswith("record skipped"))
    # Each line is a job, a step, a part of another line, or counted as left out.
    joined = counts["line joined to the previous one: text contains a line break"]
    parts = counts["heterogeneous job, its parts merged into one job with all their nodes"]
    steps = counts["step, a part of its job"]
    assert lines == len(read_workload(ALL)) + parts + steps + out + joined


def test_a_job_name_with_separators_and_line_ends_does_not_shift_columns():
    jobs = read_workload(ALL).to_frame()
    assert jobs.filter(pl.col("job_id") == "1")["user"].item() == "alice"  # named a|b job
    assert jobs.filter(pl.col("job_id") == "4_2")["user"].item() == "dave"  # of two lines


@pytest.mark.traces
def test_dumps_of_two_versions_of_a_real_site_are_read(traces):
    folder = traces / "jobs_csv"
    old = read_workload(folder / "ubccr_sacct_dump2101.log", skip_invalid=True)
    assert old.job_id.tolist() == [4822203, 4830973, 4830974, 4830975, 4830976, 4830977]
    assert old.per_node["memory_gb"][0] == pytest.approx(550000 / 1024)
    assert old.notes.counts["record skipped: the job was cancelled before it started"] == 6
    assert len(old.notes.skipped) == 1
    assert "line 16: found 74 cells, expected 107" in old.notes.skipped[0]
    new = read_workload(folder / "ubccr_sacct_dump2110.log")
    assert new.job_id.tolist() == [7957382]
    assert new.notes.counts["line repaired: text contains the separator"] == 5


def test_a_cut_line_is_an_error_with_its_number_or_counted(tmp_path):
    path = dump(
        tmp_path, line("1", *JANUARY, 3600), "2|2026-01-01T10:00", line("3", *JANUARY, 3600)
    )
    with pytest.raises(TraceError, match=r"line 3: found 2 cells, expected 10"):
        read_workload(path)
    workload = read_workload(path, skip_invalid=True)
    assert workload.job_id.tolist() == [1, 3]
    assert any(why.startswith("line skipped") for why in workload.notes.counts)


def test_an_unknown_state_is_named_and_an_unreadable_time_too(tmp_path):
    path = dump(
        tmp_path,
        line("1", *JANUARY, 3600, "DREAMING"),
        line("2", "gestern", *JANUARY[1:], 3600),
    )
    workload = read_workload(path)
    assert workload.job_id.tolist() == [1]
    told = " ".join(workload.notes.counts)
    assert "state DREAMING" in told
    assert "'gestern'" in told
    assert "unknown submit time" in told


def test_a_state_that_is_cut_is_the_one_that_begins_so(tmp_path):
    """As with ``State%10``; of one that several begin with it is not told which it is."""
    states = ("OUT_OF_ME+", "CANCELLED+", "RE+")
    tally = Tally()
    lines = [line(str(job), *JANUARY, 3600, state) for job, state in enumerate(states, 1)]
    jobs = sacct_table([dump(tmp_path, *lines)], tally).frame()
    assert jobs.sort("job_id")["fails"].to_list() == [1, 0, 0]
    assert [what for what in tally.counts if "unknown" in what] == [
        "record of state RE+, unknown: treated as ended"
    ]


def test_a_job_whose_nodes_are_cleared_has_ended_and_a_running_one_has_not(tmp_path):
    submit, start, end = JANUARY
    jobs = read_workload(
        dump(
            tmp_path,
            line("1", submit, start, end, 3600, "COMPLETING"),
            line("2", submit, start, "Unknown", 3600, "COMPLETING"),
            line("3", submit, start, "Unknown", 3600, "RUNNING"),
        )
    )
    assert jobs.to_frame()["runtime_s"].to_list() == [3600, 3600, 3600]
    assert jobs.to_frame()["walltime_s"].to_list() == [86400, 86400, 86400]
    told = (
        "job still running at the end of the trace, treated as ended then (real run time is longer)"
    )
    assert jobs.notes.counts[told] == 2


DUMPED = (
    # Two that ended, one of a day that still ran, one without a limit, and one that was never closed.
    line("1", "2026-01-01T10:00:00", "2026-01-01T11:00:00", "2026-01-01T12:00:00", 3600),
    line("2", "2026-01-01T10:00:00", "2026-01-01T11:00:00", "2026-01-01T15:00:00", 14400),
    line("3", "2026-01-01T10:00:00", "2026-01-01T13:00:00", "Unknown", 7200, "RUNNING"),
    line("4", "2026-01-01T10:00:00", "2026-01-01T14:00:00", "Unknown", 3600, "RUNNING").replace(
        "1-00:00:00", "UNLIMITED"
    ),
    line("5", "2025-12-01T10:00:00", "2025-12-01T11:00:00", "Unknown", 2_692_800, "RUNNING"),
    line("6", "2026-01-01T10:00:00", "2026-01-01T14:30:00", "Unknown", 1800, "SUSPENDED"),
)


@pytest.mark.parametrize(
    ("running", "hours"),
    [
        ("elapsed", {"1": 1, "2": 4, "3": 2, "4": 1, "5": 24, "6": 0.5}),
        ("limit", {"1": 1, "2": 4, "3": 24, "4": 8760, "5": 748, "6": 24}),
        ("drop", {"1": 1, "2": 4}),
    ],
)
@pytest.mark.parametrize("without", [(), ("ElapsedRaw",)], ids=["elapsed known", "start alone"])
def test_jobs_still_running_in_a_dump_end_with_it_at_their_limit_or_are_skipped(
    tmp_path, running, hours, without
):
    names = HEADER.split("|")
    kept = [i for i, name in enumerate(names) if name not in without]
    header, *lines = ("|".join(one.split("|")[i] for i in kept) for one in (HEADER, *DUMPED))
    jobs = read_workload(dump(tmp_path, *lines, header=header), running=running)
    found = dict(zip(map(str, jobs.job_id), jobs.runtime_ms / 3.6e6, strict=True))
    assert found == hours
    counts = jobs.notes.counts
    assert {n for what, n in counts.items() if "still running at the end of the trace" in what} == {
        "elapsed": {3}, "limit": {4}, "drop": {4}
    }[running]  # fmt: skip
    closed = "job recorded as running long after its limit, treated as ended at its limit"
    assert counts.get(closed, 0) == (running == "elapsed")


def test_the_repeated_hour_in_autumn_is_resolved_by_the_runtime(tmp_path):
    # Clocks in Berlin went from 03:00 back to 02:00 on 2025-10-26, at 01:00 UTC.
    path = dump(
        tmp_path,
        line("1", "2025-10-26T00:30:00", "2025-10-26T02:30:00", "2025-10-26T04:00:00", 5400),
        line("2", "2025-10-26T00:30:00", "2025-10-26T01:30:00", "2025-10-26T02:30:00", 7200),
        line("3", "2025-10-26T00:30:00", "2025-10-26T01:30:00", "2025-10-26T04:00:00", 12600),
    )
    starts = read_workload(path, timezone="Europe/Berlin").recorded_start_ms / 3.6e6
    assert starts.tolist() == [3.0, 1.0, 1.0]
    without = read_workload(path).notes.counts
    assert [n for why, n in without.items() if "--timezone" in why] == [2]


def test_overlapping_dumps_give_each_job_once_with_its_latest_state(tmp_path):
    submit, start, end = JANUARY
    first = dump(
        tmp_path,
        line("1", submit, start, end, 3600),
        line("2", submit, start, "Unknown", 1800, "RUNNING"),
        line("3", submit, "Unknown", "Unknown", 0, "PENDING"),
    )
    later = dump(tmp_path, *(line(i, submit, start, end, 3600) for i in "123"), name="later.txt")
    for paths in ([first, later], [later, first]):
        tally = Tally()
        jobs = sacct_table(paths, tally).frame().sort("job_id")
        assert jobs["job_id"].to_list() == [1, 2, 3]
        assert jobs["runtime_s"].to_list() == [3600.0] * 3
        told = "record skipped: another record of the same submission has more data"
        assert tally.counts[told] == 3


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("1|2026-01-01T10:00:00|x", "the format is not recognized"),
        ("JobID|Start|End", "field Submit"),
        ("JobID|Submit|Start|State", "no column has the run time"),
    ],
)
def test_a_dump_that_cannot_be_read_says_what_it_lacks(tmp_path, header, said):
    with pytest.raises(TraceError, match=said):
        read_workload(dump(tmp_path, header=header, name="dump.log"))


def test_an_unknown_time_zone_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match="unknown time zone 'Mars/Olympus'"):
        read_workload(dump(tmp_path, line("1", *JANUARY, 1)), timezone="Mars/Olympus")


TEXT = st.text(st.sampled_from("ab |;\n'\"é"), max_size=8)
JOB = st.fixed_dictionaries(
    {
        "name": TEXT,
        "wait": st.integers(0, 10**6),
        "run": st.integers(1, 10**6),
        "limit": st.integers(1, 10**4),
        "nodes": st.integers(1, 3),
        "cores": st.integers(1, 200),
        "mem": st.sampled_from([0, 512, 1024, 3072]),
        "gpus": st.integers(0, 4),
        "steps": st.integers(0, 2),
    }
)


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@given(
    jobs=st.lists(JOB, min_size=1, max_size=6),
    order=st.permutations(
        ["JobID", "JobName", "Submit", "Start", "End", "Elapsed", "Timelimit", "NNodes", "AllocCPUS",
         "AllocTRES", "State", "ExitCode"]
    ),
    separator=st.sampled_from("|;"),
    trailing=st.booleans(),
)  # fmt: skip
def test_any_order_of_columns_and_any_job_name_give_the_jobs_written(
    tmp_path_factory, jobs, order, separator, trailing
):
    rows = []
    for i, job in enumerate(jobs, start=1):
        submit = 1_767_000_000 + 10 * i
        start, end = submit + job["wait"], submit + job["wait"] + job["run"]
        gpus = f",gres/gpu={job['gpus']}" if job["gpus"] else ""
        cells = {
            "JobID": str(i), "JobName": job["name"], "Submit": _iso(submit), "Start": _iso(start),
            "End": _iso(end), "Elapsed": _clock(job["run"]), "Timelimit": _clock(60 * job["limit"]),
            "NNodes": str(job["nodes"]), "AllocCPUS": str(job["cores"]), "State": "COMPLETED",
            "AllocTRES": f"billing=1,cpu={job['cores']}{gpus},mem={job['mem']}M", "ExitCode": "0:0",
        }  # fmt: skip
        rows += [
            cells,
            *({**cells, "JobID": f"{i}.{s}", "JobName": "x"} for s in range(job["steps"])),
        ]
    end_of_line = (separator if trailing else "") + "\n"
    text = separator.join(order) + end_of_line
    text += "".join(separator.join(row[name] for name in order) + end_of_line for row in rows)
    path = tmp_path_factory.mktemp("sacct") / "dump"
    path.write_text(text, encoding="utf-8")
    workload = read_workload(path, skip_invalid=True)
    cut = sum(n for why, n in workload.notes.counts.items() if why.startswith("line skipped"))
    read = {row["job_id"]: row for row in workload.to_frame().iter_rows(named=True)}
    told = {
        i: (
            row["runtime_s"],
            row["walltime_s"],
            row["recorded_start_s"] - row["submit_s"],
            row["nodes"],
        )
        for i, row in read.items()
    }
    written = {
        i: (job["run"], 60 * job["limit"], job["wait"], job["nodes"])
        for i, job in enumerate(jobs, start=1)
    }
    # A line's end beside an empty cell cannot always be told; the rest of the line is counted then.
    assert told == written or cut
    assert not cut or any("\n" in job["name"] or separator in job["name"] for job in jobs)


@given(
    blocks=st.lists(
        st.lists(st.sampled_from(["1|a|x", "2|a|b|y", "3", "|", "4|p", "q|z"]), max_size=4),
        max_size=5,
    )
)
def test_the_cut_of_a_file_into_blocks_changes_nothing(blocks):
    def read(parts: list[bytes]) -> list[tuple]:
        table = Table(
            Path("t"), ["id", "text", "end"], b"|", ["id", "end"], ["text"],
            fits=lambda name, cell: name == "text" or len(cell) == 1,
        )  # fmt: skip
        rows = []
        for frame in tables_in(iter(parts), table, Tally()):
            rows += frame.rows()
        return sorted(rows)

    parts = ["".join(f"{one}\n" for one in block).encode() for block in blocks]
    assert read([part for part in parts if part]) == read(
        [whole] if (whole := b"".join(parts)) else []
    )
