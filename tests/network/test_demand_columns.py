"""Columns of what jobs compute, send, read and write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_workload, simulate
from hpctwin.cli.app import main
from hpctwin.errors import ConfigError, TraceError, WorkloadError
from hpctwin.formats import write_workload
from hpctwin.model.workload.demands import DEMANDS
from hpctwin.model.workload.joining import Batch, joined
from hpctwin.network.patterns import Pattern, most_cubic

STAR = Cluster.model_validate(
    {
        "name": "star",
        "nodes": [{"name": "n", "count": 16}],
        "network": {"topology": "star", "bandwidth": "1 GB/s", "core_speed": "1 Gflop/s"},
        "storage": [{"name": "scratch", "bandwidth": "2 GB/s"}],
    }
)


def jobs(*demands: dict[str, Any], nodes: int = 4, runtime_s: float = 10.0) -> Workload:
    """Jobs that are submitted at once, by their columns of demands."""
    frame = pl.DataFrame([dict.fromkeys(DEMANDS) | one for one in demands])
    return Workload.from_frame(
        frame.with_columns(
            submit_s=pl.lit(0.0), runtime_s=pl.lit(runtime_s), walltime_s=pl.lit(1000.0),
            nodes=pl.lit(nodes),
        )
    )  # fmt: skip


def length_s(nodes: int = 4, **demands: Any) -> float:
    """Length of a job that is alone."""
    table = simulate(jobs(demands, nodes=nodes), STAR, sharing="fair").jobs
    return float(table["end_s"][0])


# --- patterns ----------------------------------------------------------------------------------


def pairs_by_hand(pattern: str, ranks: int) -> Counter[tuple[int, int]]:
    """Pairs of ranks, written as in the documentation."""
    every = range(ranks)
    if pattern.startswith("neighbor"):
        sides = most_cubic(ranks, int(pattern[-2]))
        place = np.stack(np.unravel_index(np.arange(ranks), sides), axis=1)
        return Counter(
            (i, k) for i in every for k in every if np.abs(place[i] - place[k]).sum() == 1
        )
    rules: dict[str, Callable[[int, int], bool]] = {
        "all-to-all": lambda i, k: i != k,
        "ring": lambda i, k: ranks > 1 and k == (i + 1) % ranks,
        "gather": lambda i, k: i > 0 and k == 0,
        "broadcast": lambda i, k: i == 0 and k > 0,
    }
    return Counter((i, k) for i in every for k in every if rules[pattern](i, k))


@pytest.mark.parametrize("pattern", list(Pattern))
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8, 12, 27, 36])
def test_patterns_are_those_of_the_documentation(pattern: Pattern, ranks: int) -> None:
    sources, targets, amounts = pattern.flows(ranks, 5e9)
    assert Counter(zip(sources.tolist(), targets.tolist(), strict=True)) == pairs_by_hand(
        pattern, ranks
    )
    if len(sources):
        assert amounts * len(sources) == pytest.approx([5e9])


@pytest.mark.parametrize(
    ("ranks", "flat", "cube"),
    [(1, (1, 1), (1, 1, 1)), (12, (4, 3), (3, 2, 2)), (64, (8, 8), (4, 4, 4)),
     (36, (6, 6), (4, 3, 3)), (13, (13, 1), (13, 1, 1)), (1000, (40, 25), (10, 10, 10))],
)  # fmt: skip
def test_grids_are_as_cubic_as_their_ranks_allow(ranks: int, flat: Any, cube: Any) -> None:
    assert (most_cubic(ranks, 2), most_cubic(ranks, 3)) == (flat, cube)


@given(st.integers(1, 3000))
def test_no_other_grid_has_a_smaller_sum_of_sides(ranks: int) -> None:
    sums = [
        a + b + ranks // a // b
        for a in range(1, ranks + 1)
        if ranks % a == 0
        for b in range(1, ranks // a + 1)
        if ranks // a % b == 0
    ]
    assert sum(most_cubic(ranks, 3)) == min(sums)


# --- simulated ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "seconds"),
    # 12 GB of four ranks over links of 1 GB/s; the busiest rank sends or receives …
    [("all-to-all", 3.0), ("ring", 3.0), ("gather", 12.0), ("broadcast", 12.0),
     ("neighbor-2d", 3.0),  # 2 × 2 ranks with two neighbors each
     ("neighbor-3d", 3.0), (None, 3.0)],
)  # fmt: skip
def test_a_job_alone_takes_the_time_of_its_busiest_link(
    pattern: str | None, seconds: float
) -> None:
    assert length_s(flops=0, comm_bytes=12e9, comm_pattern=pattern) == pytest.approx(seconds)


def test_amounts_are_totals_of_a_job() -> None:
    assert length_s(flops=8e9) == pytest.approx(2.0)
    assert length_s(flops=8e9, nodes=8) == pytest.approx(1.0)
    assert length_s(flops=8e9, comm_bytes=4e9, iterations=5) == pytest.approx(3.0)


def test_a_job_without_flops_computes_for_its_run_time() -> None:
    assert length_s(comm_bytes=4e9) == pytest.approx(11.0)
    assert length_s(comm_bytes=4e9, iterations=10) == pytest.approx(11.0)
    assert length_s() == 10.0
    assert length_s(flops=0) == 10.0  # no amount at all


def test_a_job_on_one_node_sends_nothing() -> None:
    for pattern in Pattern:
        assert length_s(nodes=1, flops=3e9, comm_bytes=1e12, comm_pattern=pattern) == 3.0


def test_jobs_read_before_and_write_after() -> None:
    # Four links of 1 GB/s, but 2 GB/s of the storage.
    assert length_s(flops=4e9, read_bytes=8e9) == pytest.approx(1 + 4)
    assert length_s(flops=4e9, write_bytes=6e9, storage="scratch") == pytest.approx(1 + 3)
    assert length_s(read_bytes=2e9, iterations=7) == pytest.approx(10 + 1)


def test_jobs_that_alternate_share_the_links_less() -> None:
    """Two jobs that communicate all the time need twice as long; those that compute do not."""
    backbone = STAR.model_copy(
        update={"network": STAR.network.model_copy(update={"backbone": 2e9})}  # type: ignore[union-attr]
    )
    backbone = Cluster.model_validate(backbone.model_dump())
    one = {"flops": 0, "comm_bytes": 8e9, "comm_pattern": "ring"}
    both = simulate(jobs(one, one), backbone, sharing="fair").jobs["end_s"]
    assert both.to_list() == pytest.approx([8.0, 8.0])


@pytest.mark.parametrize("sharing", ["fair", "simgrid"])
def test_interrupted_runs_are_the_same(sharing: Any) -> None:
    many = jobs(
        *[
            {"flops": 1e9 * (i % 4), "comm_bytes": 1e9 * (1 + i % 3), "iterations": 1 + i % 5,
             "comm_pattern": list(Pattern)[i % 6], "read_bytes": 1e9 * (i % 2)}
            for i in range(24)
        ]
    )  # fmt: skip
    whole = simulate(many, STAR, sharing=sharing).jobs
    stepped = Simulation(many, STAR, sharing=sharing)
    while stepped.advance(instants=1) == "stepped":
        pass
    assert stepped.run().jobs.equals(whole)
    assert len(set(whole["end_s"])) > 5


def test_without_sharing_run_times_count_with_a_note() -> None:
    result = simulate(jobs({"comm_bytes": 4e9}), STAR)
    assert result.jobs["end_s"].to_list() == [10.0]
    assert any("add --sharing fair" in note for note in result.notes)
    shared = simulate(jobs({"comm_bytes": 4e9}), STAR, sharing="fair")
    assert not any("--sharing" in note for note in shared.notes)


def test_computing_needs_a_speed() -> None:
    network = STAR.network.model_dump() | {"core_speed": None}  # type: ignore[union-attr]
    slow = Cluster.model_validate(STAR.model_dump() | {"network": network})
    assert simulate(jobs({"comm_bytes": 4e9}), slow, sharing="fair").jobs["end_s"][0] == 11.0
    with pytest.raises(
        ConfigError, match=r"job 1 computes, but nodes .* have no speed; give core_speed"
    ):
        simulate(jobs({"flops": 1e9}), slow, sharing="fair")


def test_reading_needs_a_storage() -> None:
    bare = Cluster.model_validate(STAR.model_dump() | {"storage": ()})
    with pytest.raises(ConfigError, match="add 'storage' to the cluster file"):
        simulate(jobs({"read_bytes": 1e9}), bare, sharing="fair")
    two = Cluster.model_validate(
        STAR.model_dump() | {"storage": [{"name": n, "bandwidth": 1e9} for n in ("fast", "slow")]}
    )
    with pytest.raises(ConfigError, match=r"job 1: .*, and 2 storages; name one of fast, slow"):
        simulate(jobs({"read_bytes": 1e9}), two, sharing="fair")
    disks = {"name": "disk", "place": "node", "bandwidth": 1e9}
    own = Cluster.model_validate(
        STAR.model_dump() | {"storage": [{"name": "fast", "bandwidth": 1e9}, disks]}
    )
    with pytest.raises(ConfigError, match=r"and 2 storages; name one of fast, disk$"):
        simulate(jobs({"read_bytes": 1e9}), own, sharing="fair")
    read = jobs({"read_bytes": 4e9, "storage": "disk"})
    assert simulate(read, own, sharing="fair").jobs["end_s"][0] == pytest.approx(11.0)
    read = jobs({"read_bytes": 4e9, "storage": "slow"})
    assert simulate(read, two, sharing="fair").jobs["end_s"][0] == pytest.approx(14.0)
    with pytest.raises(ConfigError, match="has no links that jobs could share"):
        simulate(jobs({"comm_bytes": 1e9}), Cluster.uniform(16), sharing="fair")


# --- tables ------------------------------------------------------------------------------------

amounts = st.sampled_from([None, 0.0, 1.0, 4e9, 1.5e15, 1e30])
cells = st.fixed_dictionaries(
    {
        "flops": amounts, "comm_bytes": amounts, "read_bytes": amounts, "write_bytes": amounts,
        "iterations": st.sampled_from([None, 1, 7, 1_000_000]),
        "comm_pattern": st.sampled_from([None, *Pattern]),
        "storage": st.sampled_from([None, "scratch", "7"]),
    }
)  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "csv.gz"])
@given(rows=st.lists(cells, min_size=1, max_size=6))
def test_tables_are_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("tables") / f"jobs.{suffix}"
    workload = jobs(*rows)
    assert write_workload(workload, path) == ()
    again = read_workload(path)
    assert again.to_frame().equals(workload.to_frame())
    some = any(row[name] for row in rows for name in DEMANDS[:4])
    assert bool(workload.demands) == some


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("flops", -1, "flops: .*found .*-1.*, expected a number, 0 or more"),
        ("flops", "many", "flops: .*found 'many', expected a number"),
        ("comm_bytes", 1e31, "comm_bytes: .*expected a number, 0 or more, up to 1e"),
        ("comm_pattern", "rign", "comm_pattern: .*found 'rign', expected all-to-all, ring, neigh"),
        ("comm_pattern", "3", "comm_pattern: .*found '3', expected all-to-all"),
        ("iterations", 0, "iterations: .*found .*0.*, expected a whole number, 1 or more"),
        ("iterations", 2.5, "iterations: .*expected a whole number, 1 or more"),
        ("iterations", 1e9, "iterations: .*up to 1e"),
        ("read_bytes", "inf", "read_bytes: .*expected a number"),
    ],
)
def test_wrong_cells_are_reported_with_line_and_column(
    tmp_path: Path, suffix: str, column: str, value: object, expected: str
) -> None:
    path = tmp_path / f"jobs.{suffix}"
    table = pl.DataFrame({"submit_s": [0, 1], "runtime_s": [5, 6], "nodes": [1, 2]})
    table = table.with_columns(pl.Series(column, [None, value]))
    table.write_csv(path) if suffix == "csv" else table.write_parquet(path)
    with pytest.raises(TraceError, match=expected) as error:
        read_workload(path)
    assert ("line 3" if suffix == "csv" else "row 2") in str(error.value)
    assert len(read_workload(path, skip_invalid=True)) == 1


def test_patterns_may_be_written_in_any_case() -> None:
    many = jobs({"comm_bytes": 1, "comm_pattern": "Ring"}, {"comm_pattern": " ring"})
    assert many.to_frame()["comm_pattern"].to_list() == ["ring", "ring"]


def test_a_misspelled_column_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,runtime_s,walltime_s,nodes,comm_byte\n0,1,1,1,5\n")
    assert "did you mean comm_bytes by 'comm_byte'?" in " ".join(read_workload(path).notes.remarks)


def test_wrong_arguments_are_rejected() -> None:
    columns: dict[str, Any] = {"submit_s": [0], "runtime_s": [1], "nodes": [1]}
    for demands, message in (
        ({"flop": [1]}, "'flop' of demands is unknown"),
        ({"flops": [1, 2]}, "column flops has 2 values, expected 1"),
        ({"iterations": [0.5]}, "job 1: iterations is 0.5; it must be a whole number from 1"),
        ({"comm_pattern": ["rings"]}, "comm_pattern is 'rings'; .* Did you mean 'ring'"),
    ):
        with pytest.raises(WorkloadError, match=message):
            Workload.build(**columns, demands=demands)


def test_jobs_are_taken_and_joined_with_their_demands() -> None:
    with_ids = jobs({"comm_bytes": 1e9, "comm_pattern": "gather"}, {"flops": 2e9})
    more = with_ids.replace(job_id=np.array([7, 8]), demands={})
    table = joined(with_ids, more)[0].to_frame()
    assert table["comm_bytes"].to_list() == [1e9, 0.0, 0.0, 0.0]
    assert table["comm_pattern"].to_list() == ["gather", None, None, None]
    assert table["flops"].to_list() == [None, 2e9, None, None]
    assert with_ids[1:].to_frame()["flops"].to_list() == [2e9]
    assert Batch.of_frame(with_ids.to_frame()).workload.to_frame().equals(with_ids.to_frame())


@pytest.mark.parametrize("pattern", list(Pattern))
def test_batsim_gets_the_same_jobs(tmp_path: Path, pattern: Pattern) -> None:
    own = jobs(
        {"flops": 6e9, "comm_bytes": 9e9, "comm_pattern": pattern, "iterations": 3,
         "read_bytes": 4e9, "write_bytes": 2e9},
        {"comm_bytes": 5e9, "comm_pattern": pattern},
        {},
        nodes=6,
    )  # fmt: skip
    path = tmp_path / "jobs.json"
    assert write_workload(own, path) == ()
    back = read_workload(path)
    for sharing in ("fair", "simgrid"):
        ends = [simulate(w, STAR, sharing=sharing).jobs["end_s"] for w in (own, back)]
        assert ends[0].to_list() == ends[1].to_list()


def test_swf_reports_what_it_cannot_hold(tmp_path: Path) -> None:
    lost = write_workload(jobs({"comm_bytes": 1}), tmp_path / "jobs.swf")
    assert "SWF cannot store communication" in lost


def test_the_command_simulates_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs.csv").write_text(
        "submit_s,runtime_s,walltime_s,nodes,flops,comm_bytes,comm_pattern,iterations\n"
        "0,60,600,4,4e12,4e11,neighbor-3d,100\n0,60,600,4,,4e11,ring,\n"
    )
    (tmp_path / "star.yaml").write_text(
        "name: star\nnodes: [{name: n, count: 8}]\n"
        "network: {topology: star, bandwidth: 10 GB/s, core_speed: 20 Gflop/s}\n"
    )
    words = [str(tmp_path / "jobs.csv"), "--cluster", str(tmp_path / "star.yaml")]
    with pytest.raises(SystemExit, match="0"):
        main(["simulate", *words, "--sharing", "fair", "--json"])
    assert json.loads(capsys.readouterr().out)["mean_turnaround_s"] == 65.0
    with pytest.raises(SystemExit, match="0"):
        main(["simulate", *words])
    assert "add --sharing fair" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_sharing_without_effect_is_reported(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,runtime_s,walltime_s,nodes\n0,60,600,4\n")
    with pytest.raises(SystemExit, match="0"):
        main([command, str(tmp_path / "jobs.csv"), "-n", "4", "--sharing", "fair"])
    assert "so --sharing has no effect" in capsys.readouterr().err
