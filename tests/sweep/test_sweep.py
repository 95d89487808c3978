"""Sweeps: every combination once, the same wherever it runs, and gone on with after any end."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import hpctwin
from hpctwin import Cluster, HpctwinError, Workload, generate, simulate
from hpctwin.cli import main
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.formats import write_workload
from hpctwin.generate.resampling import shift_arrivals
from hpctwin.generate.walltimes import with_walltimes
from hpctwin.sweep import SweepSettings, read_sweep, sweep
from hpctwin.sweep.bench import Bench, workload_of
from hpctwin.sweep.points import plan_of

SMALL: dict[str, Any] = {
    "workloads": [{"generate": "poisson", "options": {"jobs": 60, "nodes": 16}}],
    "policies": ["fcfs+easy", "sjf+easy"],
    "seeds": 3,
}
POWERED = Cluster.uniform(16, active_w=200, idle_w=60, name="powered")
NOT_THE_SAME = ("seconds", "engine_s")
"""Of two runs of the same point."""


def same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert_frame_equal(
        one.drop(NOT_THE_SAME), other.drop(NOT_THE_SAME), check_exact=True, check_column_order=False
    )


def test_each_point_has_the_figures_of_its_simulation() -> None:
    options = {"jobs": 60, "nodes": 16}
    result = hpctwin.sweep(
        **{**SMALL, "policies": ["fcfs+easy", "sjf+easy:{k}"]},
        parameters={"k": [1, 2]},
        loads=[0.5, 0.9],
    )
    assert len(result.table) == 3 * 2 * 3
    assert not len(result.failed)
    for row in result.table.iter_rows(named=True):
        jobs = generate("poisson", seed=row["seed"], **options).scale(row["load"], 16)
        summary = simulate(jobs, 16, row["policy"], seed=row["seed"]).summary()
        assert {name: row[name] for name in result.metrics} == {
            name: summary[name] for name in result.metrics
        }
    named = dict(result.table.select("policy", "parameter_k").unique().iter_rows())
    assert named == {"fcfs+easy": None, "sjf+easy": 1, "sjf+easy:2": 2} or named["sjf+easy:2"] == 2


def test_threads_processes_and_one_worker_give_the_same_rows(tmp_path: Path) -> None:
    alone = sweep(**SMALL, workers=1)
    same(alone.table, sweep(**SMALL, workers=3).table)
    there = sweep(**SMALL, workers=2, where="processes", out=tmp_path / "out")
    same(alone.table, there.table.select(alone.table.columns))


def test_what_varies_the_jobs_does_what_it_says() -> None:
    given = generate("poisson", jobs=200, nodes=32, seed=5).replace(name="mine")
    settings = SweepSettings(
        workloads=({"trace": "mine", "name": "mine"},), clusters=("32",), policies=("fcfs",), loads=(0.8,),
        runtimes=(2.0,), widths=(0.5,),
        windows=({"begin": "1h", "end": "2d"},),
    )  # fmt: skip
    plan = plan_of(settings, {"mine": given})
    jobs, cluster = workload_of(next(iter(plan)).world, plan.inputs)
    since = (given.submit_ms - given.submit_ms[0]) / 1000
    kept = given.take((since >= 3600) & (since < 2 * 86400))
    assert sorted(jobs.runtime_ms) == sorted(2 * kept.runtime_ms)
    assert sorted(jobs.nodes) == sorted(np.maximum(1, -(-kept.nodes // 2)))
    offered = float(jobs.runtime_ms @ jobs.nodes) / (32 * np.ptp(jobs.submit_ms))
    assert offered == pytest.approx(0.8, rel=1e-3)
    assert cluster.node_count == 32


def test_a_load_of_shared_nodes_is_that_of_their_cores_and_widths_are_an_error() -> None:
    """Each job has 1 of 8 cores of a node, and each fourth a whole node without others."""
    count = 400
    every = np.ones(count)
    alone = np.arange(count) % 4 == 3
    chunks = {"tasks": every, "cores_per_task": every, "exclusive": alone.astype(float)}
    given = Workload.build(
        submit_s=np.arange(count), runtime_s=every * 80, walltime_s=every * 80, nodes=every,
        chunks=chunks, name="mine",
    )  # fmt: skip
    cluster = Cluster.model_validate({"nodes": [{"name": "n", "count": 4, "cores": 8}]})
    found = sweep(workloads=given, clusters=cluster, policies=["fcfs"], loads=[0.2, 0.5]).table
    # 100 jobs have 8 cores and 300 have 1: 88,000 core-seconds of 32 cores.
    for load, makespan_s in zip(found["load"], found["makespan_s"], strict=True):
        assert makespan_s == pytest.approx(88_000 / 32 / load + 80, rel=0.01)
    failed = sweep(workloads=given, clusters=cluster, policies=["fcfs"], widths=[2]).failed
    assert "widths is 2, but jobs of mine request tasks" in failed["error"][0]
    with pytest.raises(ConfigError, match=r"sizes is \[1, 2\]; give each of the 400 jobs"):
        given.scale(0.5, 4, sizes=[1, 2])


def test_a_trace_is_drawn_again_in_pieces_that_keep_their_order() -> None:
    given = generate("poisson", jobs=300, nodes=32, seed=1).replace(name="mine")
    settings = SweepSettings(
        workloads=({"trace": "mine", "name": "mine", "resample": "6h"},),
        policies=("fcfs",),
        seeds=2,
    )
    plan = plan_of(settings, {"mine": given})
    piece = 6 * 3_600_000
    since = given.submit_ms - given.submit_ms[0]
    pieces = {
        number: (since[since // piece == number] % piece).tolist()
        for number in range(int(since[-1]) // piece + 1)
    }
    drawn = []
    for point in plan:
        jobs, _ = workload_of(point.world, plan.inputs)
        again = jobs.submit_ms - given.submit_ms[0]
        assert (np.diff(again) >= 0).all()
        assert len(set(jobs.job_id)) == len(jobs)
        for number in range(int(again.max()) // piece + 1):
            assert (again[again // piece == number] % piece).tolist() in pieces.values()
        drawn.append(again.tolist())
    assert drawn[0] != drawn[1]


def test_walltimes_and_arrivals_vary_with_the_seed_and_are_the_same_for_all_policies(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def double(jobs, rng):\n    return 2 * jobs.runtime_ms / 1000\n")
    (tmp_path / "sweep.yaml").write_text(
        "workloads: [{generate: poisson, options: {jobs: 60, nodes: 16}}]\n"
        "policies: [fcfs+easy, sjf+easy]\nseeds: 2\nshifts: [0s, 10m]\n"
        "walltimes: [recorded, exact, 'uniform:1:3', tsafrir, 'mine.py:double']\n"
    )
    result = sweep(tmp_path / "sweep.yaml")
    assert not len(result.failed)
    assert result.varied() == ["walltimes", "shift_s"]
    assert len(result.table) == 2 * 2 * 2 * 5
    models = ["recorded", "exact", "uniform:1:3", "tsafrir", f"{file}:double"]
    assert result.table["walltimes"].unique(maintain_order=True).to_list() == models
    for row in result.table.iter_rows(named=True):
        jobs = generate("poisson", jobs=60, nodes=16, seed=row["seed"])
        rng = np.random.default_rng([row["seed"], 1])
        jobs = with_walltimes(jobs, row["walltimes"], rng)
        jobs = shift_arrivals(jobs, row["shift_s"], np.random.default_rng([row["seed"], 2]))
        found = simulate(jobs, 16, row["policy"], seed=row["seed"]).summary()
        assert row["mean_wait_s"] == found["mean_wait_s"]
    keys = {point.key for point in plan_of(read_sweep(tmp_path / "sweep.yaml"))}
    file.write_text("def double(jobs, rng):\n    return 3 * jobs.runtime_ms / 1000\n")
    again = {point.key for point in plan_of(read_sweep(tmp_path / "sweep.yaml"))}
    assert len(keys - again) == len(keys) // 5  # only points with the changed file run again


def test_several_workloads_are_replicates_of_one_row(tmp_path: Path) -> None:
    several = [generate("lublin", jobs=60, nodes=16, seed=seed) for seed in range(7)]
    alone = {"clusters": [16], "policies": ["fcfs+easy", "sjf+easy"]}
    found = sweep(workloads=[several], **alone)
    means = found.compare(["mean_wait_s"])
    assert means["runs"].to_list() == [7, 7]
    assert means["pairs"].to_list() == [0, 7]
    assert found.table["workload"].unique().to_list() == ["lublin"]
    waits = [simulate(jobs, 16, "fcfs+easy").summary()["mean_wait_s"] for jobs in several]
    own = found.table.filter(pl.col("policy") == "fcfs+easy").sort("replicate")
    assert own["mean_wait_s"].to_list() == waits
    with pytest.raises(ConfigError, match="list them in 'traces' as replicates of one row"):
        sweep(workloads=several, **alone)
    for number, jobs in enumerate(several):
        write_workload(jobs, tmp_path / f"part{number}.parquet")
    (tmp_path / "sweep.yaml").write_text(
        "workloads:\n  - {name: mine, traces: ["
        + ", ".join(f"part{number}.parquet" for number in range(7))
        + "]}\nclusters: [16]\npolicies: [fcfs+easy, sjf+easy]\n"
    )
    there = sweep(tmp_path / "sweep.yaml", where="processes", workers=2)
    assert there.compare(["mean_wait_s"])["mean"].to_list() == means["mean"].to_list()
    assert there.table["workload"].unique().to_list() == ["mine"]


def test_users_are_drawn_again_as_replicates() -> None:
    users = [f"user{number % 7}" for number in range(300)]
    given = generate("lublin", jobs=300, nodes=16, seed=1).replace(name="mine", user=users)
    found = sweep(
        workloads=[{"trace": "mine", "resample": "users"}], given={"mine": given},
        policies=["fcfs+easy", "sjf+easy"], seeds=6, clusters=[16], loads=[0.8],
    )  # fmt: skip
    assert not len(found.failed)
    assert found.compare(["mean_wait_s"])["runs"].to_list() == [6, 6]
    assert found.table["mean_wait_s"].n_unique() > 6


def test_values_between_bounds_fill_them_evenly() -> None:
    settings = SweepSettings.checked(
        {
            **SMALL, "policies": ["-(wait/walltime)**{a}*nodes**{b}+easy:{k}"], "samples": 40,
            "parameters": {"a": {"low": 1, "high": 9}, "b": {"low": 0.01, "high": 100, "log": True},
                           "k": {"low": 1, "high": 4, "whole": True}},
        },
        "here",
    )  # fmt: skip
    seen = {point.policy: dict(point.parameters) for point in plan_of(settings)}
    assert len(seen) == 40
    for name, share in (
        ("a", lambda v: (v - 1) / 8), ("b", lambda v: (np.log10(v) + 2) / 4), ("k", lambda v: (v - 0.5) / 4)
    ):  # fmt: skip
        places = np.histogram([share(one[name]) for one in seen.values()], 4, (0, 1))[0]
        assert places.tolist() == [10] * 4, name
    assert {type(one["k"]) for one in seen.values()} == {int}


def test_only_some_machines_and_workloads_are_drawn_each_under_all_policies() -> None:
    settings = SweepSettings.checked({**SMALL, "loads": [0.5, 0.6, 0.7], "draw": 4}, "here")
    points = list(plan_of(settings))
    assert len({point.world.key for point in points}) == 4
    assert len(points) == 8
    with pytest.raises(ConfigError, match="draw is 10, but only 9"):
        plan_of(settings.model_copy(update={"draw": 10}))


def test_differences_compare_runs_of_the_same_jobs() -> None:
    result = sweep(**{**SMALL, "seeds": 7})
    mean = result.compare(["mean_wait_s"])
    assert mean["runs"].to_list() == [7, 7]
    by = {
        name: result.table.filter(policy=name)["mean_wait_s"].to_numpy()
        for name in SMALL["policies"]
    }
    change = by["sjf+easy"] - by["fcfs+easy"]
    row = mean.row(1, named=True)
    assert row["difference"] == pytest.approx(change.mean())
    assert (row["fewer"], row["more"]) == ((change < 0).sum(), (change > 0).sum())
    assert row["difference_low"] < row["difference"] < row["difference_high"]
    # Paired, what the seeds differ by drops out.
    assert row["difference_high"] - row["difference_low"] < row["high"] - row["low"]
    with pytest.raises(hpctwin.HpctwinError, match="Did you mean 'mean_wait_s'"):
        result.compare(["mean_wiat_s"])


def test_an_unknown_metric_is_reported_before_any_simulation_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'total_energy_j'"):
        sweep(**SMALL, clusters=[16, POWERED], metrics=["total_enery_j"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_figures_of_one_cluster_alone_and_counts_of_what_did_not_occur_are_figures() -> None:
    metrics = ["mean_wait_s", "total_energy_j", "idle_node_s", "jobs_rejected", "jobs_failed"]
    result = sweep(**SMALL, clusters=[8, 16, POWERED], metrics=metrics)
    assert not len(result.failed)
    means = {
        (cluster, metric): mean
        for cluster, metric, mean in result.compare()
        .select("cluster", "metric", "mean")
        .iter_rows()
    }
    assert means["16 nodes", "total_energy_j"] is None
    assert means["powered", "total_energy_j"] > 0
    rejected = result.table.filter(cluster="8 nodes")["jobs_rejected"].fill_null(0)
    assert means["8 nodes", "jobs_rejected"] == pytest.approx(rejected.mean())
    assert rejected.sum() > 0
    assert means["16 nodes", "jobs_rejected"] == means["16 nodes", "jobs_failed"] == 0


def test_a_failed_point_is_reported_and_stops_nothing() -> None:
    wide = Workload.build(
        submit_s=[0.0, 1.0], runtime_s=[5.0, 5.0], nodes=[1, 1], name="named"
    ).replace(nodes_hint=None)
    result = sweep(
        workloads=[generate("poisson", jobs=30, nodes=8).replace(name="good"), wide],
        policies="fcfs",
    )
    assert result.table["error"].is_null().to_list() == [True, False]
    assert "size of the cluster is missing" in result.failed["error"][0]
    assert result.compare()["workload"].to_list() == ["good"] * 4


def test_a_sweep_continues_where_it_was_interrupted(tmp_path: Path) -> None:
    out, ran = tmp_path / "out", []

    class CutError(Exception):
        pass

    def cut(now: Any) -> None:
        if now.done >= 3:
            raise CutError

    with pytest.raises(CutError):
        sweep(**SMALL, out=out, workers=1, progress=cut)
    told = json.loads((out / "sweep.json").read_text())
    assert told["state"] == "cut off"
    assert 3 <= told["done"] < 6
    row = Bench.row

    def counted(self: Bench, point: Any) -> Any:
        ran.append(point.number)
        return row(self, point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "row", counted)
        whole = sweep(**SMALL, out=out, workers=1)
        assert len(ran) == 6 - told["done"]
        same(whole.table, sweep(**SMALL).table.select(whole.table.columns))
        ran.clear()
        # Another seed is three more policies' points; what is there is taken from the folder.
        more = sweep(**{**SMALL, "seeds": 4}, out=out)
        assert len(ran) == 2
        assert len(more.table) == 8
    assert json.loads((out / "sweep.json").read_text())["state"] == "complete"


def test_a_failed_attempt_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Bench, point: Any) -> Any:
        raise MemoryError("no room")

    varied = {**SMALL, "seeds": 2, "out": tmp_path / "out"}
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "_figures", full)
        assert set(sweep(**varied).table["error"]) == {"MemoryError: no room"}
    again = sweep(**varied)
    assert not len(again.failed)
    assert len(again.table) == 4


def test_a_process_that_dies_takes_only_its_point(tmp_path: Path) -> None:
    deadly = tmp_path / "deadly.py"
    deadly.write_text(
        "import multiprocessing, os, signal\n"
        "from hpctwin import ordering\n"
        "if multiprocessing.parent_process() is not None:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "@ordering\ndef mine(now, job):\n    return job.walltime\n"
    )
    varied = {**SMALL, "policies": ["fcfs+easy", f"{deadly}:mine+easy"], "seeds": 2}
    result = sweep(**varied, workers=2, where="processes")
    killed = result.table.filter(policy=f"{deadly}:mine+easy")
    assert set(killed["error"]) == {"its process ended: killed, or out of memory"}
    rest = result.table.filter(policy="fcfs+easy")
    assert rest["error"].null_count() == 2
    alone = sweep(**{**varied, "policies": ["fcfs+easy"]}).table
    assert rest["mean_wait_s"].to_list() == alone["mean_wait_s"].to_list()


def test_two_sweeps_do_not_write_into_one_folder(tmp_path: Path) -> None:
    def second(_: Any) -> None:
        with pytest.raises(ConfigError, match="another sweep writes to this folder"):
            sweep(**SMALL, out=tmp_path / "out")

    sweep(**{**SMALL, "seeds": 1}, out=tmp_path / "out", workers=1, progress=second)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workloads: [a.swf]\nworkload: [b.swf]\npolicies: [fcfs]", "line 2, workload: unknown field"),
        ("workloads: [a.swf]\npolicies: [fcfs+easy]", "a.swf"),
        ("workloads: [{generate: poison}]\npolicies: [fcfs]", "Did you mean 'poisson'?"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs+esy]", "Did you mean 'easy'?"),
        ("workloads: [{generate: poisson}]\npolicies: ['fcfs+easy:{k}']", "{k} is no parameter. Known: none"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nparameters: {k: [1]}", "'k' is not used"),
        ("workloads: [{generate: poisson}]\npolicies: ['easy:{k}']\nparameters: {k: {low: 1, high: 3}}",
         "give the number of draws"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nbaseline: fcsf", "Did you mean 'fcfs'?"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nseeds: 0", "a number of seeds, 1 to 1,000,000"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nloads: [-1]", "loads.0: it must be more"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs, fcfs]", "'fcfs' is listed twice"),
        ("workloads: [{generate: poisson, trace: a.swf}]\npolicies: [fcfs]",
         "give one of trace: PATH, traces: [PATH, …] and generate: NAME"),
        ("workloads: [{generate: poisson, resample: users}]\npolicies: [fcfs]", "resample works only"),
        ("workloads: [{trace: nobody.parquet, resample: users}]\nclusters: [8]\npolicies: [fcfs]",
         "each job needs a user"),
        ("workloads: [{trace: a.swf, resample: user}]\npolicies: [fcfs]", "it must be users, or a length"),
        ("workloads: [{traces: [a.swf]}]\npolicies: [fcfs]", "a.swf"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nwalltimes: [exat]", "Did you mean 'exact'?"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nwalltimes: ['uniform:2']", "uniform:LOW:HIGH"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nwalltimes: ['my.py:f']", "my.py: no such file"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nshifts: [-5m]", "shifts.0"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nclusters: [nowhere.yaml]", "nowhere.yaml"),
        ("workloads: [{generate: poisson}]\npolicies: [fcfs]\nwindows: [{begin: soon, end: 2d}]", "soon"),
        ("workloads: [{generate: poisson, options: {jbs: 3}}]\npolicies: [fcfs]", "Did you mean 'jobs'?"),
    ],
)  # fmt: skip
def test_wrong_settings_are_reported_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    write_workload(generate("lublin", jobs=9, nodes=8), tmp_path / "nobody.parquet")
    with pytest.raises(HpctwinError) as caught:
        plan_of(read_sweep(file))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_the_command_prints_draws_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("try.yaml").write_text(json.dumps(SMALL))
    with pytest.raises(SystemExit) as left:
        main(["sweep", "try.yaml", "--plot", "try.png", "--metric", "mean_wait_s"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert "sjf+easy" in printed
    assert "6 simulations in out/try/points" in printed
    assert Path("try.png").read_bytes().startswith(b"\x89PNG")
    parts = sorted(Path("out/try/points").iterdir())
    with pytest.raises(SystemExit):
        main(["sweep", "try.yaml", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["points"], found["failed"]) == (6, [])
    assert sorted(Path("out/try/points").iterdir()) == parts
    with pytest.raises(SystemExit) as left:
        main(["sweep", "try.yaml", "--processes", "--dask", "tcp://127.0.0.1:1"])
    assert left.value.code == 2


@pytest.mark.parametrize("sharing", [None, "fair"])
def test_jobs_of_a_sweep_share_the_network_on_request(
    sharing: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = generate("poisson", jobs=20, nodes=16, seed=1, communicating=1.0)
    write_workload(jobs, tmp_path / "jobs.csv")
    (tmp_path / "star.yaml").write_text(
        "name: star\nnodes: [{name: cpu, count: 16}]\n"
        "network: {topology: star, bandwidth: 1 GB/s, core_speed: 20 Gflop/s}\n"
    )
    files = [str(tmp_path / name) for name in ("jobs.csv", "star.yaml", "out")]
    options = [] if sharing is None else ["--sharing", sharing]
    with suppress(SystemExit):
        main(["sweep", files[0], "--cluster", files[1], "--out", files[2], "--json", *options])
    shown = capsys.readouterr()
    assert ("add --sharing fair" in shown.err) == (sharing is None)
    (rows,) = (tmp_path / "out" / "points").glob("*.parquet")
    assert ("mean_contention_slowdown" in pl.read_parquet(rows).columns) == (sharing is not None)
