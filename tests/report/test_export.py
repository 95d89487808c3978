"""Runs for other programs' viewers, read back by those programs' own formats."""

from __future__ import annotations

import io
import itertools
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hpctwin import Cluster, generate, simulate
from hpctwin.cli.app import main
from hpctwin.report.exports import Slices, slices_of, write_perfetto

NS_PER_MS = 1_000_000


def read_back(
    data: bytes,
) -> tuple[list[tuple[str, str, int, int]], dict[str, list[tuple[int, float]]]]:
    """Slices as (track, name, begin, end) by Perfetto's rule for one track, and counters."""
    trace = Trace.FromString(data)
    names, counters = {}, {}
    by_track: dict[int, list[Any]] = defaultdict(list)
    for number, packet in enumerate(trace.packet):
        if packet.HasField("track_descriptor"):
            about = packet.track_descriptor
            (counters if about.HasField("counter") else names)[about.uuid] = about.name
        else:
            by_track[packet.track_event.track_uuid].append(
                (packet.timestamp, number, packet.track_event)
            )
    slices, values = [], {}
    for uuid, events in by_track.items():
        if uuid in counters:
            values[counters[uuid]] = [(at, one.double_counter_value) for at, _, one in events]
            continue
        stack: list[tuple[str, int]] = []
        for at, _, event in sorted(events, key=lambda one: one[:2]):
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                stack.append((event.name, at))
            else:
                name, begin = stack.pop()
                slices.append((names[uuid], name, begin, at))
        assert not stack
    return slices, values


@st.composite
def of_whole_nodes(draw: st.DrawFn) -> Slices:
    """Jobs one after the other on each of some nodes, some as another ends."""
    rows = []
    for node in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, 10**12))
        for _ in range(draw(st.integers(0, 6))):
            at += draw(st.sampled_from((0, 1, 1000)))
            end = at + draw(st.sampled_from((1, 999, 10**6)))
            rows.append((draw(st.sampled_from((0, 9, 10, 123456, 10**15))), node, at, end))
            at = end
    table = np.array(rows, np.int64).reshape(-1, 4)
    return Slices(*(table[:, i].copy() for i in range(4)))


@given(of_whole_nodes())
def test_perfetto_reads_each_slice_as_it_was(slices: Slices) -> None:
    file = io.BytesIO()
    count = write_perfetto(file, slices)
    found, _ = read_back(file.getvalue())
    rows = zip(*(column.tolist() for column in vars(slices).values()), strict=True)
    wanted = [
        (f"node {node:06d}", f"job {job}", start * NS_PER_MS, end * NS_PER_MS - 1)
        for job, node, start, end in rows
    ]
    assert count == len(wanted)
    assert sorted(found) == sorted(wanted)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(1, 50)),
        min_size=1,
        max_size=12,
    )
)
def test_jobs_that_share_a_node_have_tracks_of_their_own(
    rows: list[tuple[int, int, int]],
) -> None:
    node, start, lasts = (np.array(column) for column in zip(*rows, strict=True))
    slices = Slices(np.arange(len(rows)), node, start, start + lasts)
    file = io.BytesIO()
    write_perfetto(file, slices)
    found, _ = read_back(file.getvalue())
    assert len(found) == len(rows)
    on: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for track, name, begin, end in found:
        row = int(name.removeprefix("job "))
        assert track.startswith(f"node {node[row]:06d}")
        assert (begin, end) == (start[row] * NS_PER_MS, (start + lasts)[row] * NS_PER_MS - 1)
        on[track].append((begin, end))
    for spans in on.values():
        spans.sort()
        assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run's folder, and its result."""
    from hpctwin.report.pages.run import write_run

    workload = generate("poisson", jobs=80, nodes=32, seed=3)
    result = simulate(workload, Cluster.uniform(nodes=32), policy="fcfs+easy@contiguous")
    folder = tmp_path_factory.mktemp("run") / "run"
    write_run(result, folder, {})
    return folder, result


def export(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as end:
        main(["export", *map(str, arguments)])
    return int(end.value.code)


def test_the_command_writes_all_three_and_they_hold_the_run(run: Any, tmp_path: Path) -> None:
    folder, result = run
    files = {name: tmp_path / name for name in ("perfetto", "evalys", "openmetrics")}
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    assert export(folder, *options) == 0
    slices, counters = read_back(files["perfetto"].read_bytes())
    held = slices_of(result.node_map)
    assert len(slices) == len(held.job) == int(result.jobs["nodes"].sum())
    assert [value for _, value in counters["used_nodes"]] == result.series["used_nodes"].to_list()

    jobs = pl.read_csv(files["evalys"])
    assert len(jobs) == len(result.jobs)
    for row in jobs.iter_rows(named=True):
        runs = [part.split("-") for part in str(row["allocated_resources"]).split()]
        nodes = sum(int(one[-1]) - int(one[0]) + 1 for one in runs)
        assert nodes == row["requested_number_of_resources"]

    families = list(text_string_to_metric_families(files["openmetrics"].read_text()))
    assert {one.name for one in families} == {
        f"hpctwin_{name}" for name in result.series.columns if name != "time_s"
    }


def test_wrong_folders_are_named_without_a_traceback(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpctwin.report.pages.run import write_run

    folder, _ = run
    assert export(folder) == 2
    assert "--perfetto, --evalys, --batsim or --openmetrics" in capsys.readouterr().err
    assert export(tmp_path, "--evalys", tmp_path / "x.csv") == 2
    assert "hpctwin simulate --out" in capsys.readouterr().err
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "jobs.parquet").write_text("no")
    assert export(broken, "--evalys", tmp_path / "x.csv") == 2
    assert "not a Parquet file" in capsys.readouterr().err
    counted = tmp_path / "counted"
    workload = generate("poisson", jobs=9, nodes=4, seed=3)
    write_run(simulate(workload, Cluster.uniform(nodes=4), policy="fcfs+easy"), counted, {})
    assert export(counted, "--perfetto", tmp_path / "x") == 2
    assert "nodes were only counted" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_files_that_need_no_nodes_are_written_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpctwin.report.pages.run import write_run

    workload = generate("poisson", jobs=9, nodes=4, seed=3)
    write_run(simulate(workload, Cluster.uniform(nodes=4), policy="fcfs+easy"), tmp_path, {})
    files = {name: tmp_path / name for name in ("perfetto", "evalys", "openmetrics")}
    asked = [word for name, path in files.items() for word in (f"--{name}", path)]
    assert export(tmp_path, *asked) == 2
    told = capsys.readouterr()
    assert "evalys: 9 jobs, without nodes, because nodes were only counted" in told.out
    assert "--perfetto: not written" in told.err
    assert {name for name, path in files.items() if path.exists()} == {"evalys", "openmetrics"}
    assert pl.read_csv(files["evalys"])["allocated_resources"].to_list() == [""] * 9


def test_results_of_another_run_in_the_folder_are_not_taken_for_this_runs(
    run: Any, tmp_path: Path
) -> None:
    from hpctwin.report.pages.run import read_run, write_run

    folder = shutil.copytree(run[0], tmp_path / "again")
    workload = generate("poisson", jobs=9, nodes=4, seed=3)
    write_run(simulate(workload, Cluster.uniform(nodes=4), policy="fcfs+easy"), folder, {})
    assert (folder / "node_map.parquet").exists()
    assert read_run(folder).node_map is None
