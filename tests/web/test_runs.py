"""Pages of simulated runs: of one that is over, of one that goes on, of several."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from starlette.testclient import TestClient

from hpctwin import Cluster, Workload, generate, simulate
from hpctwin.cli.app import main
from hpctwin.formats import write_workload
from hpctwin.metrics import binned
from hpctwin.report.pages.run import write_run
from hpctwin.simulation import Simulation
from hpctwin.web.server.assembly import together
from hpctwin.web.server.gate import Access, Gate
from hpctwin.web.server.serve import run_application, run_part
from hpctwin.web.views.runs import RunSource
from tests.web.page import ACCESS, LOOKS, bearer

WORKLOAD = generate("poisson", jobs=60, nodes=16, seed=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run's folder, and its result."""
    result = simulate(WORKLOAD, Cluster.uniform(nodes=16), policy="fcfs+easy@contiguous")
    folder = tmp_path_factory.mktemp("runs") / "contiguous"
    write_run(result, folder, {})
    return folder, result


@contextmanager
def client_of(source: RunSource) -> Iterator[TestClient]:
    app = Gate(run_application(source, every_s=0.02), ACCESS)
    with TestClient(app, base_url="http://localhost", headers=bearer(LOOKS)) as client:
        yield client


def get(client: TestClient, path: str) -> Any:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_figures_and_jobs_shown_are_those_of_the_run(run: Any) -> None:
    folder, result = run
    with client_of(RunSource(folder)) as client:
        head = get(client, "state")
        assert (head["jobs"], head["nodes"], head["finished"]) == (60, 16, True)
        assert {one["key"] for one in head["figures"]} >= {"mean_wait_s", "utilization"}
        jobs = get(client, "jobs")
        assert [job["id"] for job in jobs["shown"]] == [str(i) for i in result.jobs["job_id"]]
        one = get(client, f"jobs/{jobs['shown'][7]['id']}")
        assert one["start_s"] == result.jobs["start_s"][7]
        user = jobs["shown"][0]["user"]
        found = get(client, f"jobs?find={user}")["shown"]
        assert {job["id"] for job in found} >= {"1"}
        assert all(user in (job["user"], job["id"]) or user in job["user"] for job in found)
        assert client.get("/api/v1/jobs/4711").status_code == 404


def test_the_timeline_is_where_jobs_ran(run: Any) -> None:
    folder, result = run
    source = RunSource(folder)
    row = result.node_map.row(11, named=True)
    with client_of(source) as client:
        at = f"time_s={(row['start_s'] + row['end_s']) / 2}&lane={row['first_node']}"
        box = get(client, f"timeline/at?{at}")
    assert (box["job"], box["count"]) == (str(row["job_id"]), row["count"])
    assert box["where"]


def test_lanes_of_a_run_with_only_counted_nodes_are_reported_as_invented(
    tmp_path: Path,
) -> None:
    write_run(simulate(WORKLOAD, Cluster.uniform(nodes=16), policy="fcfs+easy"), tmp_path / "a", {})
    source = RunSource(tmp_path / "a")
    assert not source.timeline_view().placed
    line = source.timeline()
    assert (line.first + line.count).max() <= 16
    assert set(line.job.tolist()) == set(WORKLOAD.job_id.tolist())


def test_means_and_peaks_over_time_are_those_of_the_series(run: Any) -> None:
    folder, result = run
    lines = RunSource(folder).lines(20)
    used = next(line for line in lines.lines if line.name == "nodes in use")
    widths = np.diff(lines.edges_s)
    ran = result.jobs.select(((pl.col("end_s") - pl.col("start_s")) * pl.col("nodes")).sum()).item()
    assert np.dot(used.mean, widths) == pytest.approx(ran)
    assert max(used.peak) == result.series["used_nodes"].max()
    assert all(np.array(used.peak) >= np.array(used.mean) - 1e-9)


def test_means_and_peaks_in_bins_are_those_by_hand() -> None:
    time = np.array([0.0, 2.0, 3.0, 10.0])
    level = np.array([1.0, 5.0, 2.0, 9.0])
    mean, peak = binned(time, level, np.array([0.0, 2.5, 5.0, 10.0]))
    assert mean == pytest.approx([(2 * 1 + 0.5 * 5) / 2.5, (0.5 * 5 + 2 * 2) / 2.5, 2.0])
    assert peak.tolist() == [5.0, 5.0, 2.0]


def test_a_run_in_progress_is_shown_so_far_and_followed(tmp_path: Path) -> None:
    simulation = Simulation(WORKLOAD, Cluster.uniform(nodes=16), "fcfs+easy@contiguous")
    simulation.advance(WORKLOAD.span_s / 3)
    folder = tmp_path / "run"
    write_run(simulation.result(), folder, {}, now_s=simulation.now_s)
    source = RunSource(folder)
    with client_of(source) as client:
        head = get(client, "state")
        assert not head["finished"]
        assert head["to_s"] == pytest.approx(simulation.now_s)
        facts = get(client, "timeline")
        assert facts["now_s"] == pytest.approx(simulation.now_s)
        shown = get(client, "jobs")
        assert 0 < shown["found"] < 60
        assert source.timeline().end_s.max() <= simulation.now_s
        simulation.advance()
        write_run(simulation.result(), folder, {})
        last = _state_once(client, lambda state: state["finished"])
        assert last["version"] > head["version"]
        assert get(client, "jobs")["found"] == 60


def _state_once(client: TestClient, told: Callable[[Any], bool]) -> Any:
    bound = time.monotonic() + 60
    while not told(state := get(client, "state")):
        assert time.monotonic() < bound, state
    return state


def test_a_folder_that_disappears_is_reported_and_the_rest_is_still_shown(
    run: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(run[0], tmp_path / "run")
    source = RunSource(folder)
    with client_of(source) as client:
        before = get(client, "state")
        assert before["trouble"] == []
        (folder / "manifest.json").unlink()
        state = _state_once(client, lambda state: state["trouble"])
        assert "manifest.json" in state["trouble"][0]
        assert state["version"] > before["version"]
        assert get(client, "jobs")["found"] == 60


def test_several_are_served_together_each_with_its_own_interface(run: Any, tmp_path: Path) -> None:
    write_run(simulate(WORKLOAD, Cluster.uniform(nodes=32), policy="sjf+easy"), tmp_path / "b", {})
    parts = {"a": run_part(run[0]), "b": run_part(tmp_path / "b")}
    app = Gate(together(parts), ACCESS)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/api/v1/shown").status_code == 401
        assert client.get("/a/api/v1/state").status_code == 401
        assert client.get("/a/").status_code == 200
        client.headers.update(bearer(LOOKS))
        assert [one["name"] for one in get(client, "shown")] == ["a", "b"]
        nodes = [client.get(f"/{name}/api/v1/state").json()["nodes"] for name in parts]
        assert nodes == [16, 32]


def test_lanes_of_shared_nodes_are_their_cores(tmp_path: Path) -> None:
    workload = Workload.build(
        submit_s=[0, 0, 5, 6, 9], runtime_s=[20, 30, 10, 10, 5], walltime_s=[60] * 5, nodes=[1] * 5,
        chunks={"tasks": [1] * 5, "cores_per_task": [3, 4, 1, 2, 1]},
    )  # fmt: skip
    machine = Cluster.model_validate({"nodes": [{"name": "n", "count": 2, "cores": 4}]})
    result = simulate(workload, machine, policy="fcfs+easy")
    write_run(result, tmp_path / "run", {})
    source = RunSource(tmp_path / "run")
    facts = source.timeline_view()
    assert (facts.of, facts.lanes) == ("core", 8)
    assert [(one.nodes, one.lanes) for one in facts.groups] == [(2, 4)]
    line = source.timeline()
    assert line.names is not None
    assert line.names.at(3) != line.names.at(4)
    held = (line.end_s - line.start_s) @ line.count
    asked = result.placements.select(
        ((pl.col("end_s") - pl.col("start_s")) * pl.col("cores")).sum()
    ).item()
    assert held == pytest.approx(asked)


def serve(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as end:
        main(["serve", *map(str, arguments)])
    return int(end.value.code)


def test_a_folder_that_is_no_run_is_rejected_by_name(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert serve(tmp_path / "nowhere") == 2
    assert "the folder does not exist" in capsys.readouterr().err
    assert serve(tmp_path) == 2
    assert "the folder contains no run" in capsys.readouterr().err
    broken = shutil.copytree(run[0], tmp_path / "broken")
    (broken / "manifest.json").write_text("{}")
    assert serve(broken) == 2
    assert "not a file of hpctwin" in capsys.readouterr().err
    assert serve() == 2
    assert "the folder of a simulated run" in capsys.readouterr().err


def test_the_folder_of_a_run_is_written_during_the_run(tmp_path: Path) -> None:
    trace, out = tmp_path / "t.csv", tmp_path / "out"
    write_workload(WORKLOAD, trace)
    asked = ["simulate", str(trace), "-n", "16", "--json"]
    seen = []

    def written(*args: Any, **options: Any) -> None:
        seen.append(options.get("now_s"))
        write_run(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpctwin.report.pages.run.write_run", written)
        with pytest.raises(SystemExit) as end:
            main([*asked, "--out", str(out), "--out-every", "1ms"])
    assert end.value.code == 0
    assert len(seen) > 1
    assert seen[-1] is None
    assert None not in seen[:-1]
    manifest = json.loads((out / "manifest.json").read_text())
    assert str(trace) in manifest["inputs"]
    for wrong in (["--out-every", "5s"], ["--out", str(out), "--out-every", "0s"]):
        with pytest.raises(SystemExit) as end:
            main([*asked, *wrong])
        assert end.value.code == 2


def test_without_required_tokens_every_user_views_a_run(run: Any) -> None:
    app = Gate(run_application(RunSource(run[0])), Access((), frozenset({"localhost"})))
    with TestClient(app, base_url="http://localhost") as client:
        assert get(client, "state")["jobs"] == 60


def test_cost_and_emissions_over_time_are_shown_in_the_units_of_their_rates(
    tmp_path: Path,
) -> None:
    trace, machine, price = (tmp_path / name for name in ("t.csv", "m.yaml", "price.csv"))
    write_workload(WORKLOAD, trace)
    modes = {"normal": {"power_w": 200, "idle_w": 100}}
    machine.write_text(yaml.safe_dump({"nodes": [{"name": "a", "count": 16, "modes": modes}]}))
    price.write_text("time,price (EUR/kWh)\n0,0.1\n3600,0.5\n7200,0.2\n")
    out = tmp_path / "out"
    given = ["-M", machine, "--price", price, "--carbon", "400", "--out", out, "--json"]
    with pytest.raises(SystemExit) as end:
        main(["simulate", str(trace), *map(str, given)])
    assert end.value.code == 0
    shown = RunSource(out).lines(50)
    told = {line.name: line for line in shown.lines}
    hours = np.diff(shown.edges_s) / 3600
    summary = json.loads((out / "summary.json").read_text())
    cost, carbon = told["price of the electricity"], told["carbon emitted"]
    assert (cost.unit, carbon.unit) == ("EUR/h", "g/h")
    assert np.dot(cost.mean, hours) == pytest.approx(summary["cost_eur"])
    assert np.dot(carbon.mean, hours) / 1000 == pytest.approx(summary["emissions_kg"])
    assert max(cost.peak) <= 16 * 0.2 * 0.5 + 1e-9
    assert set(np.round(np.array(carbon.peak) / 40, 6) % 1) == {0}


def test_a_result_with_lost_attempts_keeps_them(run: Any, tmp_path: Path) -> None:
    from hpctwin.report.pages.run import read_run

    lost = pl.DataFrame({"job_id": [1], "start_s": [0.0], "end_s": [1.0], "nodes": [2]})
    write_run(dataclasses.replace(run[1], lost=lost), tmp_path / "lost", {})
    assert read_run(tmp_path / "lost").lost.equals(lost)  # type: ignore[union-attr]
