"""What PBS's accounting logs say of jobs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import polars as pl
import pytest

from hpctwin.errors import TraceError
from hpctwin.formats import read_workload
from hpctwin.formats.accounting.pbs_accounting import pbs_table
from hpctwin.formats.accounting.workload import workload_of
from hpctwin.formats.record import LABELS, Machine, Tally

LOG = Path(__file__).parent / "recorded" / "openpbs-23.06-20261122"


def test_a_real_log_has_each_run_of_each_job():
    jobs = {row["job_id"]: row for row in read_workload(LOG).to_frame().iter_rows(named=True)}
    assert set(jobs) >= {"1958", "1960[1]", "1960[3]", "1964", "1964r2", "1966", "1967"}
    assert (
        not {"1959", "1960[]", "1962", "1965"} & jobs.keys()
    )  # an array as a whole; deleted before they started
    assert jobs["1958"]["nodes"] == 8  # vnodes of one core, for two chunks of four
    assert jobs["1958"]["walltime_s"] == 60
    assert jobs["1958"]["memory_gb_per_node"] == pytest.approx(200 / 1024 / 8)
    assert jobs["1966"]["fails"] == 1
    assert jobs["1967"]["runtime_s"] > jobs["1967"]["walltime_s"] == 5


def test_a_run_after_a_rerun_was_submitted_when_the_one_before_ended():
    jobs = {row["job_id"]: row for row in read_workload(LOG).to_frame().iter_rows(named=True)}
    first, second = jobs["1964"], jobs["1964r2"]
    assert second["submit_s"] == first["recorded_start_s"] + first["runtime_s"]


def test_logs_of_several_days_in_any_order_compressed_or_not_give_the_same_jobs(tmp_path):
    lines = LOG.read_text().splitlines(keepends=True)
    half = len(lines) // 2
    (tmp_path / "1").write_text("".join(lines[:half]))
    (tmp_path / "2.gz").write_bytes(gzip.compress("".join(lines[half:]).encode()))
    whole = pbs_table([LOG], Tally()).frame().sort("job_id")
    for names in (["1", "2.gz"], ["2.gz", "1"]):
        jobs = pbs_table([tmp_path / name for name in names], Tally()).frame().sort("job_id")
        assert jobs.equals(whole)


def test_a_cut_line_is_an_error_with_its_number_or_counted(tmp_path):
    path = tmp_path / "log"
    path.write_text(LOG.read_text() + "11/22/2026 03:28:06;E")
    number = path.read_text().count("\n") + 1
    with pytest.raises(TraceError, match=rf"line {number}: found '11/22/2026 03:28:06;E'"):
        read_workload(path)
    assert len(read_workload(path, skip_invalid=True).notes.skipped) == 1


def test_where_jobs_share_nodes_chunks_of_several_kinds_are_tasks_of_several_kinds(tmp_path):
    """As a real record has them; others of the log have a share of each of their nodes."""
    log = LOG.read_text()
    old = "Resource_List.place=free Resource_List.select=2:ncpus=4:mem=100mb"
    lines = [line for line in log.splitlines() if ";1958.vm;" in line]
    for job, new in (
        (1, "place=scatter Resource_List.select=1:ncpus=8+2:ncpus=2:mem=1gb:host=vm"),
        (2, "place=vscatter:excl Resource_List.select=1:ncpus=8+1:ncpus=8"),
        (3, "place=free Resource_List.select=2:mem=xgb+1:ncpus=2"),
        (4, "place=free:group=rack Resource_List.select=1:ngpus=1:ncpus=2:mpiprocs=2+3:ncpus=1"),
    ):
        more = "\n".join(lines).replace(old, f"Resource_List.{new}").replace(";1958.", f";{job}.")
        log += more + "\n"
    (tmp_path / "log").write_text(log)
    tally = Tally()
    jobs = pbs_table([tmp_path / "log"], tally, Machine(shared=True)).frame()
    amounts = ("cores_per_task", "memory_gb_per_task", "gpus_per_task")
    columns = ("nodes", "tasks", *amounts, "more_tasks", "tasks_per_node", "group_by")
    found = {
        row["job_id"]: tuple(row[name] for name in columns) for row in jobs.iter_rows(named=True)
    }
    assert found["1"] == (1, 1, 8, 0, 0, "2:cores=2.0:memory_gb=1.0", 1, None)
    assert found["4"] == (1, 1, 2, 0, 1, "3:cores=1.0", 0, "rack")
    share = pytest.approx(200 / 1024 / 8)
    for job in ("2", "3", "1958"):
        assert found[job] == (8, 8, 1, share, None, None, None, None)
    assert tally.counts["job whose select cannot be parsed, treated as equal chunks"] == 1
    whole = Tally()
    assert not {"more_tasks", "group_by"} & set(
        pbs_table([tmp_path / "log"], whole).frame().columns
    )
    told = "job that requests nodes of one group: ignored, as group_by needs shared nodes"
    assert [n for what, n in whole.counts.items() if what.startswith(told)] == [1]


def test_jobs_that_share_nodes_ask_for_the_chunks_that_they_got_and_come_in_the_order_of_submission(
    tmp_path: Path,
) -> None:
    def line(job: int, start: int, vnodes: str, place: str) -> str:
        return (
            f"11/22/2026 03:28:06;E;{job}.head;user=u1 queue=main qtime=1000000000 start={start} "
            f"exec_vnode={vnodes} Resource_List.place={place} Resource_List.walltime=00:01:00 "
            f"end={start + 30} Exit_status=0\n"
        )

    log = tmp_path / "log"
    log.write_text(
        line(9, 1000000001, "(a:ncpus=2:mem=1048576kb)+(a:ncpus=2:mem=1048576kb)", "free")
        + line(8, 1000000002, "(a:ncpus=2)+(a:ncpus=2)", "pack")
        + line(7, 1000000003, "(a:ncpus=8)+(b:ncpus=8)", "vscatter:excl")
        + line(6, 1000000004, "(a:ncpus=1+b:ncpus=1)", "free")
        + line(5, 1000000005, "(a:ncpus=2)+(b:ncpus=2)", "group=rack")
        + line(4, 1000000006, "(a:ncpus=2)+(b:ncpus=2)", "scatter:group=switch:excl")
        + line(3, 1000000007, "(a:ncpus=2)+(b:ncpus=2)", "free:group=host")
    )
    found = workload_of(pbs_table([log], Tally(), Machine(shared=True)).frame(), "log", Tally())
    jobs = found.to_frame()
    assert jobs["job_id"].to_list() == [3, 4, 5, 6, 7, 8, 9]
    assert jobs["tasks"].to_list() == [2, 2, 2, 2, 2, 1, 2]
    assert jobs["nodes"].to_list() == [1, 1, 1, 2, 1, 1, 1]
    assert jobs["cores_per_task"].to_list() == [2, 2, 2, 1, 8, 4, 2]
    assert jobs["memory_gb_per_task"].to_list() == [0, 0, 0, 0, 0, 0, 1]
    assert jobs["tasks_per_node"].to_list() == [0, 1, 0, 0, 1, 0, 0]
    assert jobs["exclusive"].to_list() == [0, 1, 0, 0, 1, 0, 0]
    assert jobs["group_by"].to_list() == [None, "switch", "rack", None, None, None, None]


def test_more_records_than_are_looked_at_together_give_the_same_jobs(tmp_path: Path) -> None:
    lines = LOG.read_text().splitlines(keepends=True)
    many = [
        re.sub(r";19(\d\d)(\[\d*\])?\.vm;", rf";{more}19\1\2.vm;", line)
        for more in ("", "3", "7", "9")
        for line in lines
    ]
    # What tells of one job is in files of several days, whatever their order.
    for day, name in enumerate("cab"):
        (tmp_path / name).write_text("".join(many[day::3]))
    paths = [tmp_path / name for name in "abc"]
    whole, counted = pbs_table(paths, tally := Tally()), tally
    assert len(whole) == 4 * len(pbs_table([LOG], Tally()).frame())
    assert whole.folder is None
    for at_once in (20, 30):
        parts = pbs_table(paths, told := Tally(), at_once=at_once)
        assert parts.folder is not None
        assert told == counted
        labels = [pl.col(name).cast(pl.String) for name in LABELS if name in whole.columns]
        found = parts.frame().select(sorted(parts.columns)).with_columns(labels)
        assert found.equals(whole.frame().select(sorted(whole.columns)).with_columns(labels))


def torque(job: int | str, where: str, asked: str, *, kind: str = "E", start: int = 10) -> str:
    """A record as Torque writes it: no exec_vnode, no select."""
    host = f"exec_host={where} " if where else ""
    return (
        f"06/06/2026 14:{start // 60 % 60:02}:{start % 60:02};{kind};{job}.head;user=u1 group=g queue=batch "
        f"ctime=1000000000 qtime=1000000000 etime=1000000000 start={1000000000 + start} owner=u1@head {host}"
        f"{asked} Resource_List.walltime=01:00:00"
        + (f" end={1000000000 + start + 30} Exit_status=0\n" if kind == "E" else "\n")
    )


EXEC_HOSTS = [
    # exec_host, what was asked, nodes, cores and GPUs of the job
    ("n/0+n/1+n/2+n/3", "Resource_List.nodes=1:ppn=4 Resource_List.ncpus=1", 1, 4, 0),
    ("n/2+n/3", "Resource_List.neednodes=1:ppn=2 Resource_List.nodect=1", 1, 2, 0),
    ("n/0-27", "Resource_List.nodes=1:ppn=28", 1, 28, 0),
    ("n/0,2,4-6", "Resource_List.nodes=1:ppn=5", 1, 5, 0),
    ("a/0-3+b/0,7", "Resource_List.procs=6 Resource_List.nodect=1", 2, 6, 0),
    ("a/0+b/0+a/1", "Resource_List.nodes=a+b+a unique_node_count=3", 2, 3, 0),
    ("a/0-7+b/0-7", "Resource_List.nodes=2:ppn=8:gpus=2:shared", 2, 16, 4),
    ("a/0-7+b/0-7", "Resource_List.nodes=2:ppn=8 Resource_List.gpus=2", 2, 16, 2),
    ("a-1.site.edu/11", "Resource_List.nodes=a-1.site.edu", 1, 1, 0),
    ("a/0*8+b/0*8", "Resource_List.ncpus=16 Resource_List.place=scatter", 2, 16, 0),
    ("a/0*4+a/1*4", "Resource_List.ncpus=8", 1, 8, 0),
    ("a:15002/0*8", "Resource_List.ncpus=8", 1, 8, 0),
    ("a/x+b/9-3", "Resource_List.nodes=2", 2, 2, 0),
    ("", "Resource_List.nodes=2:ppn=8+1:ppn=4:gpus=1", 3, 20, 1),
    ("", "Resource_List.procs=12 Resource_List.nodect=3", 3, 12, 0),
]  # fmt: skip


@pytest.mark.parametrize(("where", "asked", "nodes", "cores", "gpus"), EXEC_HOSTS)
def test_cores_are_those_of_exec_host_and_without_it_those_that_were_asked(
    tmp_path, where, asked, nodes, cores, gpus
):
    (tmp_path / "log").write_text(torque(1, where, asked))
    row = read_workload(tmp_path / "log").to_frame().row(0, named=True)
    assert row["nodes"] == nodes
    assert row["cores_per_node"] == -(-cores // nodes)
    assert row.get("gpus_per_node", 0) * nodes == gpus


def test_nodes_that_cannot_be_read_are_counted_and_the_job_has_its_exec_host(tmp_path):
    asked = ["1:ppn=x", "0:ppn=2", "1:ppn=2+", "1:mem=2xb", "1:ppn=2"]
    (tmp_path / "log").write_text(
        "".join(torque(i, "a/0-1", f"Resource_List.nodes={text}") for i, text in enumerate(asked))
    )
    tally = Tally()
    frame = pbs_table([tmp_path / "log"], tally).frame()
    assert workload_of(frame, "log", Tally()).to_frame()["cores_per_node"].to_list() == [2] * 5
    assert [n for what, n in tally.counts.items() if "nodes= cannot be parsed" in what] == [4]


def test_where_nodes_are_shared_torque_s_jobs_ask_for_what_they_had_on_each_host(tmp_path):
    (tmp_path / "log").write_text(
        torque(1, "a/0-7+b/0-3+c/0-3", "Resource_List.nodes=1:ppn=8:gpus=2+2:ppn=4")
        + torque(2, "a/0-1+b/4,5", "Resource_List.nodes=2:ppn=2:ib Resource_List.mem=4gb")
        + torque(3, "a/0-2+b/0", "Resource_List.procs=4 Resource_List.pmem=512mb")
        + torque(4, "a/0-7", "Resource_List.nodes=2:ppn=4:gpus=1:exclusive_process")
        + torque(5, "a/0+b/0", "Resource_List.nodes=1:fast+1:slow")
    )
    tally = Tally()
    frame = pbs_table([tmp_path / "log"], tally, Machine(shared=True)).frame()
    jobs = {
        row["job_id"]: row
        for row in workload_of(frame, "log", Tally()).to_frame().iter_rows(named=True)
    }
    amounts = ("tasks", "cores_per_task", "memory_gb_per_task", "gpus_per_task", "tasks_per_node")
    found = {job: tuple(row[name] for name in amounts) for job, row in jobs.items()}
    assert found[1] == (1, 8, 0, 2, 1)
    assert jobs[1]["more_tasks"] == "2:cores=4.0"
    assert found[2] == (2, 2, 2, 0, 1)
    assert jobs[2]["features"] == "ib"
    assert found[3] == (4, 1, 0.5, 0, 0)
    assert found[4] == (1, 8, 0, 2, 1)
    assert jobs[5]["features"] is None
    assert [n for what, n in tally.counts.items() if "different properties" in what] == [1]


def test_runs_of_torque_end_where_a_rerun_a_deletion_or_a_checkpoint_says_so(tmp_path):
    def line(minute: int, kind: str, job: int, about: str = "") -> str:
        return f"06/06/2026 14:{minute:02}:00;{kind};{job}.head;{about}\n"

    started = {"where": "n/0", "asked": "Resource_List.nodes=1", "kind": "S"}
    (tmp_path / "log").write_text(
        torque(1, **started, start=0) + line(10, "R", 1) + torque(1, **started, start=1200)
        + torque(1, **started, start=1260) + line(30, "D", 1, "requestor=root@head")
        + torque(2, **started, start=0) + line(5, "C", 2, "Checkpointed") + line(15, "A", 2)
        + torque(3, **started, start=0) + line(20, "C", 3, "Checkpointed and held")
        + line(40, "T", 3, "Restart from checkpoint")
        + torque(4, **started, start=0)
        + line(0, "Q", 5, "queue=batch") + line(0, "Q", 6, "queue=batch") + line(9, "D", 6)
        + line(0, "P", 7)
    )  # fmt: skip
    workload = read_workload(tmp_path / "log")
    runs = {row["job_id"]: row["runtime_s"] for row in workload.to_frame().iter_rows(named=True)}
    assert {job: runs[job] for job in ("1", "1r2", "2", "3")} == {
        "1": 600, "1r2": 540, "2": 900, "3": 1200,
    }  # fmt: skip
    assert runs.keys() == {"1", "1r2", "2", "3", "4"}
    counts = workload.notes.counts
    assert counts["record skipped: the job had not started at the end of the trace"] == 1
    assert counts["record skipped: the job was cancelled before it started"] == 1
    assert [n for what, n in counts.items() if "failed start" in what] == [1]
    assert [n for what, n in counts.items() if "of a checkpoint" in what] == [2]


def test_records_that_share_a_line_are_read_one_by_one(tmp_path):
    one = torque(1, "n/0-3", "Resource_List.nodes=1:ppn=4").rstrip("\n")
    (tmp_path / "log").write_text(
        "of a record that began in another file\n" + one + torque(2, "n/0", "Resource_List.nodes=1")
    )
    workload = read_workload(tmp_path / "log", skip_invalid=True)
    assert workload.to_frame()["cores_per_node"].to_list() == [4, 1]
    assert workload.notes.counts["line with several records, read one by one"] == 1
    assert len(workload.notes.skipped) == 1


@pytest.mark.parametrize("name", ["20260606", "acct.txt", "acct.log", "acct.swf", "acct.csv"])
def test_torque_s_accounting_is_known_by_its_content(tmp_path, name):
    path = tmp_path / name
    path.write_text(torque(1, "n/0-3", "Resource_List.nodes=1:ppn=4"))
    assert read_workload(path).to_frame()["cores_per_node"].to_list() == [4]


@pytest.mark.parametrize(
    ("running", "hours"), [("elapsed", [1, 3]), ("limit", [1, 100]), ("drop", [1])]
)
def test_a_job_without_a_record_of_its_end_still_ran_when_the_log_ended(tmp_path, running, hours):
    about = (
        "user=u queue=work ctime=1767225600 qtime=1767225600 start={} exec_vnode=(h1:ncpus=8) "
        "Resource_List.ncpus=8 Resource_List.nodect=1 Resource_List.walltime=100:00:00"
    )
    path = tmp_path / "20260101"
    path.write_text(
        f"01/01/2026 00:00:00;S;2.pbs;{about.format(1767225600)}\n"
        f"01/01/2026 03:00:00;E;1.pbs;{about.format(1767232800)} end=1767236400 Exit_status=0\n"
    )
    jobs = read_workload(path, running=running)
    assert (jobs.runtime_ms / 3.6e6).tolist() == hours
    assert sum(n for what, n in jobs.notes.counts.items() if "still running" in what) == 1
