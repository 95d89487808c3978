"""How much memory jobs used, as accounting of Slurm and PBS tells it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import read_workload
from hpctwin.formats import write_workload
from hpctwin.formats.accounting.sacct_json import jobs_with_steps
from hpctwin.formats.mapped_table import columns_of
from hpctwin.formats.record import Tally

RECORDED = Path(__file__).parent / "recorded"
HEADER = "JobID|Submit|Start|End|ElapsedRaw|NNodes|State|MaxRSS|NTasks"
NOW = "2026-01-01T10:00:00|2026-01-01T11:00:00|2026-01-01T12:00:00|3600"
KNOWN = "job with recorded memory use"
LOST = "step without its job: its memory use is ignored"


def told(path: Path) -> dict[str, float | None]:
    frame = read_workload(path).to_frame()
    return dict(zip(map(str, frame["job_id"]), frame["used_memory_gb"], strict=True))


def dump(path: Path, *steps: str, header: str = HEADER) -> Path:
    """Lines ``id nodes maxrss tasks`` as sacct writes them."""
    lines = []
    for step in steps:
        job, nodes, most, tasks = step.split(" ")
        lines.append(f"{job}|{NOW}|{nodes}|COMPLETED|{most}|{tasks}")
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_job_counts_the_step_whose_tasks_used_most_of_a_node(tmp_path: Path) -> None:
    path = dump(
        tmp_path / "dump",
        "1 2  ", "1.batch 1 1G 1", "1.extern 2 0 2", "1.0 2 2048M 5",  # 3 tasks on a node
        "2 1  ", "2.batch 1 512.50M 1", "2.0 1 1.5T 1",
        "3 1  ", "3.extern 1 0 1",
        "4 1  ", "4.batch 1 1048576 1",  # --noconvert
        "5_2 1  ", "5_2.batch 1 3145728K ",
        "6+0 1  ", "6+0.batch 1 1G 1", "6+1 1  ", "6+1.0 1 4G 1",
    )  # fmt: skip
    assert told(path) == {
        "1": 6.0, "2": 1536.0, "3": None, "4": pytest.approx(1 / 1024), "5_2": 3.0, "6": 4.0,
    }  # fmt: skip
    counts = read_workload(path).notes.counts
    assert (counts[KNOWN], counts["step, a part of its job"]) == (5, 10)
    assert LOST not in counts


def test_each_run_of_a_job_has_its_own_steps_and_lost_ones_are_counted(tmp_path: Path) -> None:
    later = NOW.replace("T1", "T2")
    path = dump(tmp_path / "dump", "9.0 1 7G 1", "1 1  ", "1.batch 1 1G 1", "1 1  ", "1.0 1 2G 1")
    text = path.read_text()
    at = text.rindex("1|" + NOW[:10])
    again = text.rindex("\n1|")
    path.write_text(text[:again] + text[again:].replace(NOW, later))
    assert at > again
    assert told(path) == {"1": 1.0, "1r2": 2.0}
    assert read_workload(path).notes.counts[LOST] == 1


def test_without_the_column_or_a_measurement_nothing_is_reported(tmp_path: Path) -> None:
    none = dump(tmp_path / "dump", "1 1  ", "1.batch 1 0 1")
    assert read_workload(none).used_memory_gb is None
    for name in ("sacct-22.05-all.txt.gz", "sacct-22.05-selection.txt"):
        assert read_workload(RECORDED / name).used_memory_gb is None


@pytest.mark.traces
def test_a_real_job_of_a_real_site_used_what_its_batch_step_did(traces: Path) -> None:
    old = read_workload(traces / "jobs_csv" / "ubccr_sacct_dump2101.log", skip_invalid=True)
    frame = old.to_frame().filter(pl.col("job_id") == 4822203)
    assert frame["used_memory_gb"].item() == pytest.approx(141309400 / 2**20)


LINES = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "3_1", "4+0"]),
        st.lists(st.sampled_from(["", "0", "5K", "1M", "2G"]), max_size=3),
    ),
    max_size=8,
)


@given(jobs=LINES, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_the_cut_of_lines_into_blocks_changes_nothing(
    jobs: list[tuple[str, list[str]]], cuts: list[int]
) -> None:
    rows: list[tuple[str, str]] = []
    expected: list[tuple[str, float | None]] = []
    unit = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0}
    for job, steps in jobs:
        rows += [(job, ""), *((f"{job}.{n}", most) for n, most in enumerate(steps))]
        sizes = [float(one[:-1]) * unit[one[-1]] for one in steps if one not in ("", "0")]
        expected.append((job, max(sizes, default=None)))
    lines = pl.DataFrame(rows, {"job_id": pl.String, "MaxRSS": pl.String}, orient="row")
    marks = sorted({0, len(lines), *(cut for cut in cuts if cut < len(lines))})
    blocks = [lines.slice(a, b - a) for a, b in pairwise(marks)]
    tally = Tally()
    found = [row for frame in jobs_with_steps(blocks, tally) for row in frame.select(
        "job_id", "used_memory_gb").rows()]  # fmt: skip
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert tally.counts.get("step, a part of its job", 0) == len(rows) - len(jobs)


def test_a_job_with_a_repaired_line_comes_after_its_steps(tmp_path: Path) -> None:
    path = dump(tmp_path / "dump", "1 1  ", "1.0 1 2G 1", header=f"{HEADER}|JobName")
    first, job, step = path.read_text().splitlines()
    path.write_text(f"{first}\n{job}|a|b\n{step}|c\n")
    assert told(path) == {"1": 2.0}


def test_json_and_slurm2sql_databases_give_the_same_jobs(tmp_path: Path) -> None:
    def measured(count: int, tasks: int, nodes: int) -> dict[str, object]:
        most = [{"type": "cpu", "count": 5}, {"type": "mem", "name": "", "id": 2, "count": count}]
        return {
            "tasks": {"count": tasks}, "nodes": {"count": nodes, "list": ["n1"]},
            "tres": {"requested": {"max": most}, "consumed": {"max": [{"type": "mem", "count": 9}]}},
        }  # fmt: skip

    day = 1_767_225_600
    job = {
        "job_id": 17, "association": {"user": "ann"}, "partition": "p",
        "time": {"submission": day, "start": day + 60, "end": day + 3660, "elapsed": 3600, "limit": 90},
        "state": {"current": ["COMPLETED"]}, "steps": [{}, measured(2**30, 1, 1), measured(2**31, 6, 2)],
        "tres": {"allocated": [{"type": "node", "count": 2}]},
    }  # fmt: skip
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job]}))
    assert told(tmp_path / "jobs.json") == {"17": 6.0}
    with closing(sqlite3.connect(tmp_path / "july.db")) as made, made:
        made.execute(
            "CREATE TABLE slurm (JobID text, Submit int, Start int, End int, Elapsed real, State text, "
            "NNodes int, NTasks int, MaxRSS real)"
        )
        times = day, day + 60, day + 3660, 3600.0, "COMPLETED"
        for row in [("17", *times, 2, None, None), ("17.0", *times, 2, 6, 2.0**31)]:
            made.execute("INSERT INTO slurm VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert told(tmp_path / "july.db") == {"17": 6.0}


def test_pbs_reports_what_all_nodes_used_together() -> None:
    used = told(RECORDED / "openpbs-23.06-20261122")
    assert used["1958"] == pytest.approx(6352 / 2**20 / 8)
    assert used["1960[3]"] == pytest.approx(6268 / 2**20)
    assert used["1966"] is None  # 0kb: too short to be measured


def test_any_table_reports_it_by_a_column_and_our_own_keep_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,at,ran,peak\n1,0,5,2048M\n2,1,5,\n")
    mapping = columns_of(["job_id=id,submit=at,runtime=ran,used_memory_gb=peak"])
    jobs = read_workload(tmp_path / "a.csv", columns=mapping)
    for name in ("b.csv", "b.parquet"):
        assert write_workload(jobs, tmp_path / name) == ()
        assert told(tmp_path / name) == {"1": 2.0, "2": None}
    lost = write_workload(jobs, tmp_path / "b.swf")
    assert any("used memory gb" in one for one in lost)
