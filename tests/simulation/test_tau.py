"""The threshold of bounded slowdowns: one option of runs, in every summary and table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hpctwin
from hpctwin import Cluster, Simulation, Workload, generate, simulate, simulate_stream
from hpctwin.errors import ConfigError
from hpctwin.formats import write_workload
from hpctwin.metrics import with_job_metrics
from hpctwin.report import answer_table, compare_table, plot_compare_bars
from hpctwin.report.accessor import report_results
from hpctwin.simulation.running.window import window
from tests.cli.test_cli import run

JOBS = Workload.build(
    submit_s=[0, 0, 0, 5], runtime_s=[20, 40, 100, 30], nodes=[4, 4, 2, 4], user=["a", "a", "b", "b"]
)  # fmt: skip
SHARED = Cluster.model_validate({"nodes": [{"name": "n", "count": 2, "cores": 8}]})


def by_hand(tau_s: float) -> float:
    """On 4 nodes in order: starts 0, 20, 60 and 160."""
    wait, run = np.array([0, 20, 60, 155]), np.array([20, 40, 100, 30])
    return float(np.maximum((wait + run) / np.maximum(run, tau_s), 1).mean())


@pytest.mark.parametrize("tau_s", [1, 10, 60, 1000.5])
def test_every_summary_has_the_threshold_that_was_asked_for(tau_s: float) -> None:
    result = simulate(JOBS, 4, "fcfs+none", tau_s=tau_s)
    found = result.summary()
    assert found["mean_bounded_slowdown"] == pytest.approx(by_hand(tau_s))
    assert found.get("tau_s", 10) == tau_s
    plain = simulate(JOBS, 4, "fcfs+none")
    assert plain.summary(tau_s=tau_s) == found | {"engine_s": plain.engine_s}
    assert result.summary(tau_s=10) == plain.summary() | {"engine_s": result.engine_s}
    assert "tau_s" not in plain.summary()
    own = with_job_metrics(result.jobs, tau_s)["bounded_slowdown"]
    assert own.mean() == pytest.approx(found["mean_bounded_slowdown"])
    by_user = result.breakdown("user").sort("bin")["mean_bounded_slowdown"]
    assert by_user.to_list() == pytest.approx([own[:2].mean(), own[2:].mean()])
    accounts = result.accounts("user").table.sort("name")["mean_bounded_slowdown"]
    assert accounts.to_list() == pytest.approx(by_user.to_list())
    (compared,) = hpctwin.compare(JOBS, 4, ["fcfs+none"], tau_s=tau_s).values()
    assert compared.summary()["mean_bounded_slowdown"] == found["mean_bounded_slowdown"]
    part = window(JOBS, 0, 500)
    simulation = Simulation(part.workload, 4, "fcfs+none", begin_s=part.not_before_s, tau_s=tau_s)
    told = part.summary(part.run(simulation))
    assert told["mean_bounded_slowdown"] == pytest.approx(by_hand(tau_s))
    assert told.get("tau_s", 10) == tau_s


def test_the_threshold_stays_in_forks_saved_runs_and_streams(tmp_path: Path) -> None:
    simulation = Simulation(JOBS, 4, "fcfs+none", tau_s=60)
    simulation.advance(30)
    simulation.save(tmp_path / "run.npz")
    for one in (simulation.fork(), Simulation.load(tmp_path / "run.npz")):
        assert one.run().summary()["mean_bounded_slowdown"] == pytest.approx(by_hand(60))
    write_workload(JOBS, tmp_path / "jobs.parquet")
    found = simulate_stream(
        tmp_path / "jobs.parquet", 4, "fcfs+none", out=tmp_path / "out", tau_s=60
    )
    assert found.summary()["mean_bounded_slowdown"] == pytest.approx(by_hand(60))
    assert found.summary()["tau_s"] == 60


def test_runs_on_shared_nodes_have_it_too() -> None:
    jobs = Workload.build(
        submit_s=[0, 0], runtime_s=[20, 30], nodes=[1, 1],
        chunks={"tasks": [8, 8], "cores_per_task": [1, 1]},
    )  # fmt: skip
    assert jobs.shares_nodes
    found = simulate(jobs, SHARED, "fcfs+none", tau_s=60).summary()
    assert (found["tau_s"], found["max_bounded_slowdown"]) == (60, 1.0)


@pytest.mark.parametrize("tau_s", [0, -1, float("nan"), float("inf")])
def test_a_threshold_is_a_number_above_zero(tau_s: float) -> None:
    with pytest.raises(ConfigError, match=r"tau_s is .*; it must be (above 0|a finite number)"):
        simulate(JOBS, 4, tau_s=tau_s)
    with pytest.raises(ConfigError, match=r"tau_s is .*; it must be (above 0|a finite number)"):
        simulate(JOBS, 4).summary(tau_s=tau_s)


def printed(table: Any) -> str:
    page = io.StringIO()
    Console(file=page, width=200).print(table)
    return " ".join(page.getvalue().split())


def test_printed_tables_say_the_threshold_unless_it_is_10_s() -> None:
    plain, other = (simulate(JOBS, 4, "fcfs+none", tau_s=tau).summary() for tau in (10, 60))
    assert "τ" not in printed(answer_table(plain)) + printed(compare_table({"a": plain}))
    assert "τ = 60 s" in printed(answer_table(other))
    assert "bounded slowdown with τ = 60 s" in printed(compare_table({"a": other}))
    for summary, count in ((plain, 0), (other, 1)):
        titles = [
            ax.get_title("left") for ax in plot_compare_bars({"a": summary, "b": summary}).axes
        ]
        assert sum("τ = 60 s" in title for title in titles) == count


def test_reports_say_the_threshold(tmp_path: Path) -> None:
    for tau_s in (10, 60):
        results = {"a": simulate(JOBS, 4, "fcfs+none", tau_s=tau_s)}
        page = report_results(tmp_path / f"{tau_s}.html", results).read_text()
        assert ("bounded slowdown with τ = 60 s" in page) == (tau_s == 60)


def test_commands_take_the_threshold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(tmp_path / "jobs.swf")
    write_workload(generate("lublin", jobs=80, nodes=16, seed=1), trace)
    expected = simulate(hpctwin.read_workload(trace), 16, "fcfs+easy", tau_s=60).summary()
    mean = expected["mean_bounded_slowdown"]
    assert mean != simulate(hpctwin.read_workload(trace), 16).summary()["mean_bounded_slowdown"]
    given = [trace, "-n", "16", "-p", "fcfs+easy", "--tau", "60s"]
    assert run("simulate", *given, "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean_bounded_slowdown"] == mean
    assert run("compare", *given, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["mean_bounded_slowdown"] == mean
    assert run("sweep", *given, "--out", tmp_path / "out") == 0
    assert "bounded slowdown with τ = 60 s" in " ".join(capsys.readouterr().out.split())
    for command in ("simulate", "compare"):
        assert run(command, *given[:-1], "0s") == 2
        assert "--tau: tau_s is 0" in capsys.readouterr().err
    rows = hpctwin.sweep(
        workloads=[trace], clusters=[16], policies=["fcfs+easy"], run={"tau": "60s"}
    )
    assert rows.table["mean_bounded_slowdown"].to_list() == [mean]
    assert "tau_s" not in rows.metrics


def test_replays_and_facilities_take_the_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.swf"
    jobs = generate("lublin", jobs=80, nodes=16, seed=1)
    starts = simulate(jobs, 16, "fcfs+easy").jobs["start_s"].to_numpy() * 1000
    write_workload(jobs.replace(recorded_start_ms=np.rint(starts).astype(np.int64)), trace)
    expected = simulate(hpctwin.read_workload(trace), 16, "fcfs+easy", tau_s=60).summary()
    mean = pytest.approx(expected["mean_bounded_slowdown"])
    assert run("replay", trace, "-n", "16", "--tau", "60s", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["mean_bounded_slowdown"], found["tau_s"]) == (mean, 60)
    facility = ["facility", "compare", trace, "--nodes", "16", "--nodes", "1", "-s"]
    assert run(*facility, "always(cluster-1)", "--tau", "60s", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["mean_bounded_slowdown"], found["tau_s"]) == (mean, 60)
    file = tmp_path / "hall.yaml"
    file.write_text("clusters: [{name: one, nodes: 16}, {name: two, nodes: 1}]\n")
    alone = ["facility", "simulate", trace, file, "-s", "always(one)", "--by", "size", "--json"]
    assert run(*alone, "--tau", "60s") == 0
    found = json.loads(capsys.readouterr().out)
    classes = [(row["ran_jobs"], row["mean_bounded_slowdown"]) for row in found["by"]]
    total = sum(jobs * slowdown for jobs, slowdown in classes if jobs)
    assert total / sum(jobs for jobs, _ in classes) == mean
    assert run(*facility, "random", "-s", "least-loaded", "--tau", "60s") == 0
    assert "bounded slowdown with τ = 60 s" in " ".join(capsys.readouterr().out.split())
    assert run(*facility, "random", "--tau", "0s") == 2
    assert "--tau: " in capsys.readouterr().err
