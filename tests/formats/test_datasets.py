"""Published data sets: samples of each, the real ones there are, and files in which something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, read_cluster, simulate
from hpctwin.cli import main
from hpctwin.energy.power.losses import PARTS
from hpctwin.errors import ConfigError, TraceError, UnknownNameError
from hpctwin.formats import dataset_of, read_workload, write_workload
from hpctwin.formats.datasets import DATASETS, read_dataset, told_by, write_sample
from hpctwin.formats.datasets.declared import at_steps
from hpctwin.formats.datasets.making import made_jobs, node_of
from hpctwin.model import Workload
from hpctwin.model.cluster.power import node_w
from hpctwin.simulation import replay

JOBS = 40
WITHOUT_SUBMISSION = {"lisa"}
WITHOUT_LIMIT = {"adastra", "alibaba-gpu", "google2011", "lisa", "philly"}
OF_ONE_NODE = {"alibaba-gpu", "lisa"}


@pytest.fixture(scope="module", params=sorted(DATASETS))
def sample(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    return name, write_sample(DATASETS[name], folder, jobs=JOBS, seed=3)[0]


def made(name: str) -> pl.DataFrame:
    return made_jobs(node_of(DATASETS[name]), JOBS, 3)


def by_submission(workload: Workload) -> pl.DataFrame:
    frame = workload.to_frame()
    return frame.with_columns(pl.col("submit_s").round(3)).sort("submit_s", "runtime_s")


def test_a_sample_is_recognized_by_its_columns_and_gives_the_jobs_that_were_written(
    sample: tuple[str, Path],
) -> None:
    name, path = sample
    assert told_by(path) is DATASETS[name]
    frame, jobs = by_submission(read_workload(path)), made(name)
    begin = "start" if name in WITHOUT_SUBMISSION else "submit"
    jobs = jobs.with_columns(at=pl.col(begin) - pl.col(begin).min()).sort("at", "runtime")
    assert frame["submit_s"].to_list() == jobs["at"].to_list()
    assert frame["runtime_s"].to_list() == jobs["runtime"].to_list()
    assert frame["nodes"].to_list() == (
        [1] * JOBS if name in OF_ONE_NODE else jobs["nodes"].to_list()
    )
    limit = "runtime" if name in WITHOUT_LIMIT else "walltime"
    assert frame["walltime_s"].to_list() == jobs[limit].to_list()
    started = (jobs["start"] - jobs[begin].min()).to_list()
    assert frame["recorded_start_s"].to_list() == started


def folder_of(path: Path) -> Path:
    return path.parent.parent if path.parent.name in ("joblive", "task_events") else path.parent


def test_the_folder_of_a_data_set_is_read_as_its_first_file_is(sample: tuple[str, Path]) -> None:
    name, path = sample
    assert told_by(folder_of(path)) is DATASETS[name]
    one, other = read_workload(path), read_workload(folder_of(path))
    assert one.to_frame().equals(other.to_frame())


@pytest.mark.parametrize(
    "name", ["marconi100", "adastra", "fugaku", "lassen", "frontier", "kestrel"]
)
def test_measured_power_is_that_of_one_node(name: str, tmp_path: Path) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS, seed=3)[0]
    workload = read_workload(path)
    found = workload.usage["node_w"]
    rows = np.repeat(np.arange(JOBS), found.count)
    order = np.argsort(made(name).sort("submit", "number")["number"].to_numpy(), kind="stable")
    watts = made(name)["node_w"].to_numpy()
    ids = np.array([int(str(one)) for one in workload.job_id]) - 1
    assert len(order) == JOBS
    np.testing.assert_allclose(found.values, watts[ids][rows], atol=1)


@pytest.mark.parametrize(
    "name", ["marconi100", "adastra", "lassen", "frontier", "fugaku", "lisa", "google2011"]
)
def test_use_of_components_is_what_the_power_of_the_components_was_made_of(
    name: str, tmp_path: Path
) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS, seed=3)[0]
    workload = read_workload(path, use="components")
    assert "node_w" not in workload.usage
    ids = np.array([int(str(one)) for one in workload.job_id]) - 1
    for part, found in workload.usage.items():
        used = made(name)[part].to_numpy()[ids][np.repeat(np.arange(JOBS), found.count)]
        np.testing.assert_allclose(found.values, used, atol=0.02)
    alone = {"fugaku", "lisa", "google2011"}
    parts = {"cpu"} if name in alone else {"cpu", "gpu"}
    assert set(workload.usage) == parts


def test_samples_stand_at_their_times_and_hold_until_the_next() -> None:
    rows = pl.LazyFrame(
        {
            "job": ["a"] * 4 + ["b"],
            "at": [22.0, 24.0, 61.0, -5.0, 3.0],
            "w": [1.0, 3.0, 7.0, 99.0, 5.0],
        }
    )
    found = at_steps(rows, "job", pl.col("at"), 10, {"w": pl.col("w")}).collect().sort("job")
    assert found["w"].to_list() == [[2.0] * 6 + [7.0], [5.0]]
    assert found["w_step_s"].to_list() == [10.0, 10.0]


def test_a_task_that_is_evicted_has_ended_only_if_it_does_not_come_back(tmp_path: Path) -> None:
    events = {
        1: [(600, 0), (601, 1), (650, 2), (650, 0), (660, 1), (700, 4)],
        2: [(600, 0), (601, 1), (650, 2), (650, 0), (660, 1)],
        3: [(600, 0), (601, 1), (650, 2), (650, 0)],
        4: [(600, 0), (601, 1), (650, 5), (650, 8)],
    }
    rows = sorted(
        (time, job, number, event)
        for job, each in events.items()
        for number, (time, event) in enumerate(each)
    )
    path = tmp_path / "task_events.csv"
    path.write_text(
        "".join(
            f"{time * 1_000_000},,{job},0,,{event},u,1,9,.5,.2,,0\n" for time, job, _, event in rows
        )
    )
    found = read_workload(path, format="google2011").to_frame()
    assert found["job_id"].cast(pl.String).to_list() == ["1", "4"]
    assert found["runtime_s"].to_list() == [99, 49]


def philly_job(number: int, node: str, gpus: str, begin: int) -> dict[str, Any]:
    """An hour on a node, from a minute of the day on; its first attempt failed."""
    day = "2017-10-03"
    times = [f"{day} {minute // 60:02}:{minute % 60:02}:00" for minute in range(24 * 60)]
    detail = [{"ip": node, "gpus": [f"gpu{gpu}" for gpu in gpus.split()]}]
    return {
        "status": "Pass", "vc": "v", "jobid": f"application_{number}", "user": "u",
        "submitted_time": times[begin],
        "attempts": [
            {"start_time": times[begin], "end_time": times[begin + 1], "detail": detail},
            {"start_time": times[begin + 2], "end_time": times[begin + 60], "detail": detail},
        ],
    }  # fmt: skip


def test_philly_s_machines_are_of_the_group_of_their_gpus_and_use_is_that_of_a_job_s_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster_job_log"
    jobs = [
        philly_job(1, "m9", "0 1", 0),  # of two GPUs, as nobody had a third
        philly_job(2, "m10", "0 1", 0),
        philly_job(3, "m10", "4 5", 30),  # it has more
        philly_job(4, "m71", "0", 0),  # it has, as the list says
        philly_job(5, "m10", "0", 60),
    ]
    path.write_text(json.dumps(jobs))
    (tmp_path / "cluster_machine_list").write_text(
        "machineId, number of GPUs, single GPU mem\nm71,8, 24GB\nm3,2, 12GB\n"
    )
    head = "time,machineId," + ",".join(f"gpu{gpu}_util" for gpu in range(8))
    rows = [
        # Before the last attempt of jobs 1 and 2; in it; a GPU of another job; one of which nothing is known.
        "2017-10-03 00:01:00 PDT,m10,99,99,0,0,0,0,0,0,",
        "2017-10-03 00:10:00 PDT,m10,50,70,0,0,11,0,0,0,",
        "2017-10-03 00:40:00 PDT,m10,NA,60,0,0,20,40,0,0,",
        "2017-10-03 01:05:00 PDT,m10,80,80,0,0,30,30,0,0,",
        "2017-10-03 00:40:00 PDT,m3,NA,60,0,0,20,40,0,0,",
    ]
    (tmp_path / "cluster_gpu_util").write_text("\n".join([head, *rows]) + "\n")
    workload = read_workload(path)
    two, eight = (group.count for group in read_cluster("philly").nodes)
    frame = workload.to_frame().sort("job_id")
    assert frame["partition"].to_list() == ["2-gpu", "8-gpu", "8-gpu", "8-gpu", "8-gpu"]
    # Of two GPUs are m3 and m9; of eight m10 and m71.
    assert frame["recorded_nodes"].to_list() == ["1", str(two), str(two), str(two + 1), str(two)]
    assert two + 1 < two + eight
    used = workload.usage["gpu"]
    found = {
        str(job): used.values[used.first[row] : used.first[row + 1]].tolist()
        for row, job in enumerate(workload.job_id)
    }
    assert found == {
        "application_1": [], "application_4": [],
        "application_2": [pytest.approx((50 + 70 + 60) / 300)],
        "application_3": [pytest.approx((20 + 40 + 30 + 30) / 400)],
        "application_5": [pytest.approx(0.8)],
    }  # fmt: skip
    assert workload.notes.counts["job with unknown use_gpu"] == 2
    assert not replay(workload, read_cluster("philly")).conflicts.height
    (tmp_path / "cluster_gpu_util").write_text("time,machine\n")
    with pytest.raises(TraceError, match="field machineId: the column is missing"):
        read_workload(path)


@pytest.mark.parametrize("name", ["philly", "supercloud"])
def test_use_of_components_on_shared_nodes_counts_in_a_simulation(
    name: str, tmp_path: Path
) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    system = DATASETS[name].system
    assert system is not None
    machine = read_cluster(system)
    energies = []
    for use in ("measured", "none"):
        energy = simulate(read_workload(path, use=use), machine).energy  # type: ignore[arg-type]
        assert energy is not None
        energies.append(energy)
    told, full = energies
    assert told.jobs["energy_j"].sum() < full.jobs["energy_j"].sum()
    assert told.total_j < full.total_j


RECORDED_NODES = ["marconi100", "adastra", "lassen", "frontier", "bluewaters", "philly"]


@pytest.mark.parametrize("name", RECORDED_NODES)
def test_a_replay_of_a_sample_has_its_starts_ends_nodes_and_energy(
    name: str, tmp_path: Path
) -> None:
    jobs = 300
    path = write_sample(DATASETS[name], tmp_path, jobs=jobs, seed=3)[0]
    workload = read_workload(path)
    system = DATASETS[name].system
    assert system is not None
    found = replay(workload, read_cluster(system))
    assert not found.conflicts.height
    ran = found.result.jobs.sort("job_id")
    frame = workload.to_frame().sort("job_id")
    assert ran["start_s"].to_list() == frame["recorded_start_s"].to_list()
    ends = (frame["recorded_start_s"] + frame["runtime_s"]).to_list()
    assert ran["end_s"].to_list() == pytest.approx(ends, abs=1e-3)
    assert workload.recorded_nodes is not None
    assert all(workload.recorded_nodes)
    # What failed then fails, as it does under any policy.
    states = simulate(workload, read_cluster(system)).jobs["state"].value_counts().sort("state")
    assert ran["state"].value_counts().sort("state").equals(states)
    energy = found.result.energy
    assert energy is not None
    assert min(energy.figures()[f"machine_{part}_energy_j"] for part in PARTS) >= 0
    if "node_w" in workload.usage:
        source = made_jobs(node_of(DATASETS[name]), jobs, 3)
        own = energy.jobs.with_columns(pl.col("job_id").cast(pl.Int64)).sort("job_id")
        expected = source["node_w"] * source["nodes"] * source["runtime"]
        # Power is published in whole watts of the job's nodes, or in joules of the job.
        np.testing.assert_allclose(own["energy_j"], expected.to_numpy(), rtol=2e-3)


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_a_data_set_says_where_it_is_from(name: str) -> None:
    one = DATASETS[name]
    assert one.source
    assert one.license
    assert one.citation
    assert one.rules
    assert any(column.needed for column in one.main.columns)
    if one.system is not None:
        assert all(node_w(group.components, 1) > 0 for group in read_cluster(one.system).nodes)


def rewritten(path: Path, change: pl.Expr | None = None, drop: str | None = None) -> None:
    parquet = path.suffix == ".parquet"
    frame = pl.read_parquet(path) if parquet else pl.read_csv(path, infer_schema=False)
    frame = frame.with_columns(change) if change is not None else frame
    frame = frame.drop(drop) if drop is not None else frame
    if parquet:
        frame.write_parquet(path)
    else:
        frame.write_csv(path)


TABLES = sorted(name for name, one in DATASETS.items() if one.main.form == "table")


@pytest.mark.parametrize("name", TABLES)
def test_each_needed_column_that_is_missing_is_reported_by_name(name: str, tmp_path: Path) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    whole = path.read_bytes()
    for column in DATASETS[name].main.columns:
        if column.needed:
            path.write_bytes(whole)
            rewritten(path, drop=column.name)
            with pytest.raises(TraceError, match=f"field {column.name}: the column is missing"):
                read_dataset(path, DATASETS[name])


def test_a_file_that_lacks_a_column_is_reported_with_its_format_and_the_column(
    tmp_path: Path,
) -> None:
    path = write_sample(DATASETS["marconi100"], tmp_path)[0]
    rewritten(path, drop="run_time")
    with pytest.raises(TraceError, match="field run_time: the column is missing"):
        read_workload(path)


@pytest.mark.parametrize("name", TABLES)
def test_an_additional_column_is_reported_and_not_read(name: str, tmp_path: Path) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    before = read_workload(path).to_frame()
    rewritten(path, pl.lit(7).alias("hearsay"))
    after = read_workload(path)
    assert after.to_frame().equals(before)
    assert any("hearsay" in remark for remark in after.notes.remarks)


def times(column: str, factor: float) -> pl.Expr:
    return (pl.col(column).cast(pl.Float64) * factor).alias(column)


UNITS = [
    ("marconi100", pl.col("time_limit") * 60, "time_limit: the median"),
    ("marconi100", pl.col("run_time") * 1000, "run times are 1,000 times"),
    ("marconi100", pl.col("node_power_consumption") * 1000, "median power of a node"),
    ("adastra", pl.col("node_power_consumption") / 3600, "median power of a node"),
    ("fugaku", pl.col("avgpcon") / 1000, "median power of a node"),
    ("kestrel", pl.col("wall_time") / 3600, "wall_time: the median"),
    ("lisa", pl.col("duration") / 1000, "duration: the median"),
    ("lumos", times("submit_time", 1e3), "submit_time: the median"),
    ("supercloud", times("time_start", 1e6), "time_start: the median"),
    ("eagle", times("wallclock_req", 1 / 60), "times their limit"),
    ("lassen", times("time_limit", 1 / 60), "times their limit"),
    ("lassen", times("time_limit", 1e3), "time_limit: the median"),
    ("frontier", times("time_limit", 1 / 60), "times their limit"),
    ("alcf", times("WALLTIME_SECONDS", 1 / 60), "times their limit"),
    ("alcf", times("RUNTIME_SECONDS", 1e3), "run times are 1,000 times"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "message"), UNITS, ids=[f"{n}-{m[:10]}" for n, _, m in UNITS]
)
def test_another_unit_is_noticed(name: str, change: pl.Expr, message: str, tmp_path: Path) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=200)[0]
    read_workload(path)
    rewritten(path, change)
    with pytest.raises(TraceError, match=message):
        read_workload(path)


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_an_empty_file_and_one_truncated_are_errors_that_name_it(name: str, tmp_path: Path) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(TraceError, match=path.name):
        read_dataset(path, DATASETS[name])
    path.write_bytes(whole[: len(whole) // 2])
    if path.suffix in (".parquet", "") and name != "bluewaters":
        with pytest.raises(TraceError, match=path.name):
            read_dataset(path, DATASETS[name])
    else:
        # Lines end anywhere: what is whole of them is read, and the last one is an error or left out.
        with suppress(TraceError):
            assert len(read_dataset(path, DATASETS[name], skip_invalid=True)) < JOBS


BESIDE = [
    (name, number)
    for name, one in sorted(DATASETS.items())
    for number, file in enumerate(one.files)
    if number and file.form != "headless"
]


@pytest.mark.parametrize(("name", "number"), BESIDE)
def test_errors_of_a_file_next_to_the_first_are_reported(
    name: str, number: int, tmp_path: Path
) -> None:
    one = DATASETS[name]
    paths = write_sample(one, tmp_path, jobs=JOBS)
    path, whole = paths[number], paths[number].read_bytes()
    there = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    for text in (b"", b"hello\nworld\n"):
        path.write_bytes(text)
        with pytest.raises(TraceError, match=re.escape(path.name)) as told:
            read_dataset(paths[0], one)
        assert "\n" not in str(told.value)
    for column in one.files[number].columns:
        if column.needed and column.name in there.columns:
            path.write_bytes(whole)
            rewritten(path, drop=column.name)
            with pytest.raises(TraceError, match=f"field {column.name}: the column is missing"):
                read_dataset(paths[0], one)
            if column.kind != "text":
                path.write_bytes(whole)
                rewritten(path, pl.lit("many").alias(column.name))
                counts = read_dataset(paths[0], one, use="components").notes.counts
                assert any(f"column {column.name}" in what for what in counts)
    path.write_bytes(whole)
    rewritten(path, pl.lit(7).alias("hearsay"))
    assert any("hearsay" in remark for remark in read_dataset(paths[0], one).notes.remarks)


@pytest.mark.parametrize("name", ["marconi100", "adastra"])
def test_invalid_lists_are_reported_in_one_line(name: str, tmp_path: Path) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    rewritten(path, pl.lit("[1, 2]").alias("node_power_consumption"))
    with pytest.raises(TraceError, match="cells of String, expected lists of numbers") as told:
        read_workload(path)
    assert "\n" not in str(told.value)


def test_large_columns_are_read_only_for_what_they_are_used_for(tmp_path: Path) -> None:
    path = write_sample(DATASETS["marconi100"], tmp_path, jobs=JOBS)[0]
    whole = read_workload(path).usage["node_w"].values.tolist()
    rewritten(path, pl.lit("none").alias("cpu_power_consumption"))
    assert read_workload(path).usage["node_w"].values.tolist() == whole
    with pytest.raises(TraceError, match="field cpu_power_consumption: has cells of String"):
        read_workload(path, use="components")
    (path,) = write_sample(DATASETS["fugaku"], tmp_path, jobs=JOBS)
    frame = read_workload(path).to_frame()
    array = pl.lit([0.5] * 384).cast(pl.Array(pl.Float32, 384))
    rewritten(path, array.alias("embedding"))
    assert read_workload(path).to_frame().equals(frame)


def test_a_fragment_without_a_number_moves_none_after_it(tmp_path: Path) -> None:
    tasks, fragments = write_sample(DATASETS["lisa"], tmp_path, jobs=3)
    whole = read_workload(tasks).usage["cpu"]
    gap = pl.when(pl.int_range(pl.len()).over("id") == 1).then(None).otherwise("cpu_usage")
    rewritten(fragments, gap.alias("cpu_usage"))
    found = read_workload(tasks)
    assert found.usage["cpu"].values.tolist() == whole.values.tolist()
    assert sum(found.notes.counts.values()) == 3


def test_nodes_of_a_job_with_an_empty_descriptor_are_counted(tmp_path: Path) -> None:
    (path,) = write_sample(DATASETS["frontier-swf"], tmp_path, jobs=JOBS)
    path.write_text(path.read_text().replace("frontier:excl:", "frontier-excl-", 3))
    counts = read_dataset(path, DATASETS["frontier-swf"]).notes.counts
    assert counts["job whose descriptor has no nodes: field 5 used"] == 3


def lines(change: Callable[[str], str], only: int | None = None) -> Callable[[str], str]:
    """Change all lines, or one."""
    return lambda text: "\n".join(
        change(line) if only is None or number == only else line
        for number, line in enumerate(text.split("\n"))
    )


def log(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        jobs = json.loads(text)
        change(jobs)
        return json.dumps(jobs)

    return changed


def without(key: str) -> Callable[[str], str]:
    return lambda line: re.sub(rf" {key}=\S+", "", line)


LACKING = [
    ("frontier-swf", lines(lambda line: " ".join(line.split()[:10]), 5), "job 5 has 10 columns"),
    ("google2011", lines(lambda line: ",".join(line.split(",")[:4])), "has 4 columns, expected 13"),
    ("google2011", lines(lambda line: f"x{line}", 4), "field time: row 5 has no number"),
    ("philly", log(lambda jobs: jobs[3].pop("submitted_time")), "submitted_time: row 4 has no time"),
    ("philly", log(lambda jobs: jobs[3].update(submitted_time="soon")), "row 4 has no time"),
    ("philly", lambda text: '{"a": 1}', "is not a list of jobs"),
    ("bluewaters", lines(without("start")), "it has no usable job: 40 × record skipped"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), LACKING)
def test_missing_contents_of_a_log_are_named(
    name: str, change: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    path.write_text(change(path.read_text()))
    with pytest.raises(TraceError, match=message):
        read_dataset(path, DATASETS[name])


MORE = [
    ("frontier-swf", lines(lambda line: f"{line} 7 8" if line and line[0] != ";" else line)),
    ("google2011", lines(lambda line: f"{line},9" if line else line)),
    ("philly", log(lambda jobs: [job.update(hearsay=1) for job in jobs])),
    ("bluewaters", lines(lambda line: f"{line} hearsay=3" if line else line)),
]


@pytest.mark.parametrize(("name", "change"), MORE)
def test_more_than_a_log_should_have_changes_no_job(
    name: str, change: Callable[[str], str], tmp_path: Path
) -> None:
    path = write_sample(DATASETS[name], tmp_path, jobs=JOBS)[0]
    before = read_dataset(path, DATASETS[name]).to_frame()
    path.write_text(change(path.read_text()))
    assert read_dataset(path, DATASETS[name]).to_frame().equals(before)


def test_lines_of_a_log_that_are_no_records_or_lack_a_start_are_counted(tmp_path: Path) -> None:
    path = write_sample(DATASETS["bluewaters"], tmp_path, jobs=JOBS)[0]
    path.write_text(lines(lambda _: "hello", 4)(lines(without("start"), 7)(path.read_text())))
    workload = read_dataset(path, DATASETS["bluewaters"])
    assert len(workload) == JOBS - 2
    assert sum(workload.notes.counts.values()) == 2


def test_a_cell_that_is_not_a_number_is_reported_by_row_or_skipped_and_counted(
    tmp_path: Path,
) -> None:
    path = write_sample(DATASETS["lumos"], tmp_path, jobs=JOBS)[0]
    table = pl.read_csv(path, infer_schema=False)
    wrong = pl.when(pl.int_range(pl.len()) == 4).then(pl.lit("many")).otherwise("node_num")
    table.with_columns(wrong.alias("node_num")).write_csv(path)
    with pytest.raises(TraceError, match="field node_num: row 5 has no number"):
        read_workload(path)
    workload = read_workload(path, skip_invalid=True)
    assert len(workload) == JOBS - 1
    assert workload.notes.counts["row skipped: no number in column node_num"] == 1


def test_rows_that_are_not_asked_for_are_counted(tmp_path: Path) -> None:
    path = write_sample(DATASETS["marconi100"], tmp_path, jobs=JOBS)[0]
    states = pl.read_parquet(path)["job_state"]
    failed = int((states == "FAILED").sum())
    workload = read_workload(path, only=("job_state=FAILED,TIMEOUT",))
    assert len(workload) == failed
    (why,) = [what for what in workload.notes.counts if "--only" in what]
    assert workload.notes.counts[why] == JOBS - failed
    with pytest.raises(UnknownNameError, match=r"job_stat.*Did you mean 'job_state'"):
        read_workload(path, only=("job_stat=FAILED",))
    with pytest.raises(TraceError, match=f"none of its {JOBS} rows matches --only job_state=NONE"):
        read_workload(path, only=("job_state=NONE",))
    with pytest.raises(ConfigError, match="must be column=value"):
        read_workload(path, only=("FAILED",))
    table = tmp_path / "own.csv"
    write_workload(workload, table)
    with pytest.raises(ConfigError, match="published data sets"):
        read_workload(table, only=("nodes=1",))


def test_limits_of_adastra_that_are_unix_times_are_none(tmp_path: Path) -> None:
    path = write_sample(DATASETS["adastra"], tmp_path, jobs=JOBS)[0]
    half = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit(120.0)).otherwise("time_limit")
    rewritten(path, half.alias("time_limit"))
    workload = read_workload(path)
    limits = workload.to_frame().sort("job_id")["walltime_s"].to_list()
    assert limits[::2] == [7200.0] * (JOBS // 2)
    assert workload.notes.counts["job without walltime, given its run time"] == JOBS // 2


def test_several_months_are_one_workload(tmp_path: Path) -> None:
    (first,) = write_sample(DATASETS["fugaku"], tmp_path, jobs=JOBS)
    later = pl.read_parquet(first).with_columns(
        pl.col("jid") + "x", pl.col("adt", "sdt", "edt") + pl.duration(days=30)
    )
    later.write_parquet(tmp_path / "23_10.parquet")
    assert len(read_workload(tmp_path)) == 2 * JOBS
    assert len(read_workload(first)) == JOBS


def test_dates_are_of_the_zone_that_is_given(tmp_path: Path) -> None:
    (path,) = write_sample(DATASETS["alcf"], tmp_path, jobs=JOBS)
    there = read_workload(path, timezone="America/Chicago").start_epoch_s
    here = read_workload(path).start_epoch_s
    assert (there or 0) - (here or 0) == 5 * 3600


@pytest.mark.traces
def test_lisa_s_week_is_read_with_the_use_of_each_job_every_thirty_seconds(traces: Path) -> None:
    workload = read_workload(traces / "telemetry" / "surf_tasks.parquet")
    assert len(workload) == 7850
    used = workload.usage["cpu"]
    assert len(used.values) == 2_323_475
    parts = pl.read_parquet(traces / "telemetry" / "surf_fragments.parquet")
    tasks = pl.read_parquet(traces / "telemetry" / "surf_tasks.parquet")
    share = parts.join(tasks.select("id", "cpu_capacity"), on="id")
    mean = float((share["cpu_usage"] / share["cpu_capacity"]).clip(0, 1).mean() or 0)  # type: ignore[arg-type]
    assert float(used.values.mean()) == pytest.approx(mean, rel=1e-9)


REAL = {
    "eagle_sample_1000.csv": ("eagle", 1000),
    "lumos_data_mira.csv.gz": ("lumos", 22508),
    "lumos_data_theta.csv": ("lumos", 14374),
    "lumos_data_thetagpu.csv.gz": ("lumos", 22606),
}


@pytest.mark.traces
@pytest.mark.parametrize("file", REAL)
def test_real_tables_are_read_whole_and_no_row_is_lost_in_silence(file: str, traces: Path) -> None:
    name, rows = REAL[file]
    path = traces / "jobs_csv" / file
    assert dataset_of(path) is DATASETS[name]
    workload = read_workload(path)
    omitted = sum(
        n for what, n in workload.notes.counts.items() if what.startswith("record skipped")
    )
    assert len(workload) + omitted == rows
    assert omitted < 0.02 * rows


@pytest.mark.traces
def test_a_job_of_google_s_runs_from_its_first_task_s_start_to_its_last_task_s_end(
    traces: Path,
) -> None:
    frame = read_workload(traces / "jobs_csv" / "google_v2_task-events-sample-1.csv").to_frame()
    # By hand, of its 32 rows. Job 2 has a task that failed and one that was evicted and began again.
    assert frame["job_id"].to_list() == [1, 2, 3, 4]
    assert frame["recorded_start_s"].to_list() == [10, 12, 25, 10]
    assert frame["runtime_s"].to_list() == [40, 53, 45, 80]
    assert frame["nodes"].to_list() == [1, 1, 1, 2]


@pytest.mark.traces
def test_use_of_google_s_is_what_tasks_used_over_what_the_job_s_machines_have(
    traces: Path, tmp_path: Path
) -> None:
    for kind in ("events", "usage"):
        text = (traces / "jobs_csv" / f"google_v2_task-{kind}-sample-1.csv").read_text()
        (tmp_path / f"task-{kind}.csv").write_text(text)
    workload = read_workload(tmp_path / "task-events.csv")
    # By hand: rates times seconds, over machines (half of the largest one each) times run time.
    rates = [
        0.1 * 40 + 0.1 * 40,
        0.3 * 18 + 0.3 * 51 + 0.3 * 5 + 0.3 * 18,
        0.4 * 45,
        0.4 * 80 + 0.4 * 45 + 0.4 * 55 + 0.4 * 60,
    ]
    machine_s = [1 * 40, 1 * 53, 1 * 45, 2 * 80]
    expected = [min(used / (0.5 * s), 1.0) for used, s in zip(rates, machine_s, strict=True)]
    assert workload.usage["cpu"].values.tolist() == pytest.approx(expected)
    assert not read_workload(tmp_path / "task-events.csv", use="none").usage


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_dataset_commands_list_describe_sample_and_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = ran(capsys, "dataset", "list", "--json")
    assert code == 0
    assert {row["name"] for row in json.loads(out)} == set(DATASETS)
    code, out, _ = ran(capsys, "dataset", "describe", "lassen")
    assert code == 0
    assert "CC BY 4.0" in out
    assert "job_submit_time" in out
    code, out, _ = ran(capsys, "dataset", "sample", "marconi100", "--out", str(tmp_path / "m"))
    assert code == 0
    path = Path(out.strip())
    code, out, _ = ran(capsys, "dataset", "check", str(path), "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["name"], found["jobs"], found["use"]) == ("marconi100", 100, ["node_w"])
    rewritten(path, drop="end_time")
    code, out, _ = ran(capsys, "dataset", "check", str(path))
    assert code == 2
    assert "missing: end_time" in out


def test_a_file_that_is_no_data_set_is_reported_without_a_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    for arguments, code, words in (
        (["check", str(other)], 2, "match no known data set"),
        (["check", str(tmp_path / "nowhere.csv")], 2, "file or folder does not exist"),
        (["describe", "marconi"], 2, "Did you mean 'marconi100'"),
        (["sample", "philly", "--out", str(tmp_path), "--jobs", "0"], 2, "jobs"),
    ):
        end, _, err = ran(capsys, "dataset", *arguments)
        assert end == code, err
        assert words in err


def test_samples_over_time_are_written_to_csv_as_their_mean_with_a_note(tmp_path: Path) -> None:
    path = write_sample(DATASETS["marconi100"], tmp_path, jobs=JOBS)[0]
    workload = read_workload(path)
    lost = write_workload(workload, tmp_path / "means.csv")
    assert "CSV cannot store samples over time: node_w is their mean" in lost
    found = read_workload(tmp_path / "means.csv").usage["node_w"].values
    used = workload.usage["node_w"]
    means = [one.mean() for one in np.split(used.values, used.first[1:-1])]
    np.testing.assert_allclose(found, means)


def test_alibaba_s_pods_ask_for_parts_of_gpus_of_some_models(tmp_path: Path) -> None:
    pods = read_workload(write_sample(DATASETS["alibaba-gpu"], tmp_path, jobs=5)[0])
    assert pods.chunks["gpus_per_task"].tolist() == [0.46] * 5
    assert pods.chunks["cores_per_task"].tolist() == [8] * 5
    assert pods.chunks["memory_gb_per_task"].tolist() == [16] * 5
    machine = {"nodes": [
        {"name": "a", "count": 9, "cores": 64, "memory_gb": 512, "gpus": 8, "features": ["P100"]},
        {"name": "b", "count": 1, "cores": 64, "memory_gb": 512, "gpus": 2, "features": ["V100M32"]},
    ]}  # fmt: skip
    placed = simulate(pods, Cluster.model_validate(machine)).placements
    assert placed is not None
    assert set(placed["node"]) == {9}


def test_alibaba_s_pods_that_never_ran_are_counted(traces: Path) -> None:
    pods = read_workload(traces / "jobs_csv" / "alibaba_gpu_v2023_pod_list_default.csv")
    assert len(pods) + sum(pods.notes.counts.values()) == 8152
    assert len(pods) == 7255
