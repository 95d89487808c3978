"""What is wrong with a dependency graph is said when it is loaded, with the chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin import Cluster, Simulation, Workload, read_workload
from hpctwin.cli import main
from hpctwin.errors import WorkloadError
from hpctwin.model import Dependencies, DependencyKind

OK = DependencyKind.AFTEROK


def written(path: Path, *depends: str, fails: str = "") -> Path:
    """Jobs a, b, c, … of one node and a minute, with what each depends on."""
    rows = ["job_id,submit_s,runtime_s,walltime_s,nodes,depends,fails"]
    for i, text in enumerate(depends):
        name = chr(ord("a") + i)
        rows.append(f"{name},0,60,90,1,{text},{int(name in fails)}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_cycle_is_named_in_order_without_the_jobs_that_only_wait_for_it(tmp_path: Path) -> None:
    path = written(tmp_path / "w.csv", "afterok:b", "afterok:c", "afterok:d", "afterok:b")
    with pytest.raises(WorkloadError, match="cycle: b → c → d → b ") as error:
        read_workload(path)
    assert "a →" not in str(error.value)


def test_a_long_cycle_is_found_at_once_and_shown_without_its_middle() -> None:
    size = 200_000
    edges = Dependencies.of([(i, (i + 1) % size, OK, 0) for i in range(size)])
    with pytest.raises(WorkloadError, match=r"1 → 2 → .* … 199,989 more … .* → 1 ") as error:
        Workload.build(
            submit_s=[0] * size, runtime_s=[1] * size, nodes=[1] * size, dependencies=edges
        )
    assert len(str(error.value)) < 300


def test_a_missing_prerequisite_is_named_with_the_chain_that_leads_to_it(tmp_path: Path) -> None:
    path = written(tmp_path / "w.csv", "afterok:b", "afterany:c", "afterok:z")
    with pytest.raises(WorkloadError, match=r"job c: depends on job z.*a → b → c → z"):
        read_workload(path)


def simulation(tmp_path: Path, *depends: str, fails: str = "", **options: str) -> Simulation:
    workload = read_workload(written(tmp_path / "w.csv", *depends, fails=fails))
    return Simulation(workload, Cluster.uniform(nodes=2), **options)  # type: ignore[arg-type]


def test_jobs_after_a_failing_one_are_reported_before_it_runs(tmp_path: Path) -> None:
    run = simulation(tmp_path, "", "afterok:a", "afterok:b", "afterany:c", fails="a")
    assert run.unsatisfiable_jobs() == [
        "job b can never start, it is cancelled: job a fails (chain b → a; each waits for the next)",
        "job c can never start, it is cancelled: job a fails (chain c → b → a; each waits for the next)",
    ]
    run.advance()
    states = run.result().jobs["state"].to_list()
    assert states == ["failed", "dependency", "dependency", "completed"]


def test_held_jobs_are_reported_as_held(tmp_path: Path) -> None:
    run = simulation(tmp_path, "", "afterok:a", fails="a", on_dependency_failure="hold")
    assert "it is held indefinitely" in run.unsatisfiable_jobs()[0]
    run.advance()
    assert run.result().jobs["state"].to_list() == ["failed", "pending"]


def test_a_job_too_large_or_too_long_dooms_those_behind_it() -> None:
    edges = Dependencies.of([(1, 0, OK, 0), (3, 2, OK, 0)])
    workload = Workload.build(
        submit_s=[0] * 4, runtime_s=[5, 5, 9, 5], walltime_s=[7] * 4, nodes=[3, 1, 1, 1],
        dependencies=edges,
    )  # fmt: skip
    large, late = Simulation(workload, Cluster.uniform(nodes=2, name="small")).unsatisfiable_jobs()
    assert "job 1 can never run on cluster 'small' (chain 2 → 1" in large
    assert "job 3 exceeds its walltime (chain 4 → 3" in late
    going_on = Simulation(workload, Cluster.uniform(nodes=3), overrun="continue")
    assert going_on.unsatisfiable_jobs() == []


def test_only_the_first_are_reported_one_by_one(tmp_path: Path) -> None:
    run = simulation(tmp_path, "", *["afterok:a"] * 9, fails="a")
    assert len(run.unsatisfiable_jobs(most=3)) == 4
    assert run.unsatisfiable_jobs(most=3)[-1] == "… and 6 more jobs that can never start"


def test_simulate_says_it_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "w.csv", "", "afterok:a", fails="a")
    with pytest.raises(SystemExit) as stop:
        main(["simulate", str(path), "--nodes", "2", "--json"])
    assert not stop.value.code
    out, err = capsys.readouterr()
    assert "chain b → a" in err
    assert "chain" not in out
