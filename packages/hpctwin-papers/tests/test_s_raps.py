"""A part of a trace as it was and under other policies: power, utilisation, PUE over time, and statistics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learn.test_prediction import NODES, OFTEN, Known, users_jobs
from tests.simulation.test_schedulers import PROGRAM

from hpctwin import Workload, read_cluster, read_workload, simulate
from hpctwin.cli import main
from hpctwin.errors import ConfigError
from hpctwin.formats.datasets import DATASETS, write_sample
from hpctwin.model import Cluster
from hpctwin.policies import parse_policy
from hpctwin.simulation import Window, window
from hpctwin_papers.catalog import find_entry
from hpctwin_papers.entry import reproduce
from hpctwin_papers.experiment import run as run_experiment
from hpctwin_papers.s_raps import external_schedulers, prediction, stand_ins
from hpctwin_papers.s_raps.figures import POLICIES, REPLAY, Run, SRaps


def run(part: Window, cluster: Cluster, **options: Any) -> list[Run]:
    experiment = SRaps(part, cluster, **options)
    return [experiment.run(policy, lambda share: None) for policy in experiment.points()]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(DATASETS["frontier"], tmp_path_factory.mktemp("frontier"), jobs=60)[0]


def test_values_over_time_add_up_to_the_totals_of_the_part(sample: Path) -> None:
    part = window(read_workload(sample), 6 * 3600, 18 * 3600)
    runs = run(part, read_cluster("frontier"), wet_bulb=12.0, step_s=100)
    assert [one.name for one in runs] == list(POLICIES)
    for one in runs:
        table, figures = one.over_time, one.figures
        assert len(table) == 432
        assert float(table["time_s"][0]) == part.begin_s
        mean = figures["window_mean_power_w"]
        assert table["power_w"].mean() == pytest.approx(mean, rel=1e-9)
        assert table["utilization"].mean() == pytest.approx(figures["window_utilization"], rel=1e-9)
        assert figures["max_power_w"] >= mean
        assert np.all(table["pue"].to_numpy() > 1)
        assert np.all(table["return_c"].to_numpy() > 12)
        spread = float(np.sqrt(((table["power_w"].to_numpy() - mean) ** 2).mean()))
        assert figures["sd_power_w"] == pytest.approx(spread, rel=1e-6)


def test_the_command_draws_the_figure_and_writes_a_table_of_each_policy(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure, out = tmp_path / "figure.png", tmp_path / "tables"
    part = ["--from", "6h", "--until", "12h", "--step", "5m", "--json"]
    files = ["--plot", str(figure), "--out", str(out), "-p", "replay", "-p", "sjf+easy"]
    with pytest.raises(SystemExit) as end:
        main(["experiment", "s-raps", str(sample), *part, *files])
    assert not end.value.code
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["replay", "sjf+easy"]
    assert figure.stat().st_size > 10_000
    assert sorted(one.name for one in out.iterdir()) == ["replay.parquet", "sjf+easy.parquet"]


def test_without_backfill_jobs_start_in_the_order_in_which_they_came() -> None:
    # The second waits for both nodes, the third fits beside the first.
    jobs = Workload.build(
        submit_s=[0, 1, 2], runtime_s=[100, 50, 20], nodes=[600, 900, 300], recorded_start_s=[0, 100, 2],
        priority=[0, 0, 0],
    )  # fmt: skip
    part = window(jobs, 0, 400)
    starts = {
        one.name: dict(one.result.jobs.select("job_id", "start_s").iter_rows())
        for one in run(part, read_cluster("marconi100"))
    }
    assert starts == {
        "replay": {1: 0, 2: 100, 3: 2},
        "fcfs-nobf": {1: 0, 2: 100, 3: 150},
        "fcfs-easy": {1: 0, 2: 100, 3: 2},
        "priority-ffbf": {1: 0, 2: 100, 3: 2},
    }


def test_a_machine_of_which_nothing_is_known_is_rejected(sample: Path) -> None:
    part = window(read_workload(sample), 0, 3600)
    with pytest.raises(ConfigError, match="the components of its nodes are unknown"):
        run(part, Cluster.uniform(9472))


def test_policies_pass_jobs_as_the_papers_names_say() -> None:
    passing = {
        name: parse_policy(text).backfill for name, text in POLICIES.items() if text != REPLAY
    }
    assert passing == {"fcfs-nobf": "none", "fcfs-easy": "easy", "priority-ffbf": "first-fit"}


@pytest.mark.traces
def test_parts_of_other_logs_show_what_the_papers_figures_show(traces: Path) -> None:
    full = stand_ins.Busy().part()
    replayed, nobody_passes, easy, _ = run(full.part, full.cluster)
    # Near 80 % as it was, with a queue from the beginning on; above it where jobs pass others.
    assert 0.75 < replayed.figures["window_utilization"] < 0.85
    assert full.part.waiting.any()
    assert easy.figures["window_utilization"] > replayed.figures["window_utilization"]
    assert easy.figures["mean_wait_s"] < nobody_passes.figures["mean_wait_s"]

    quiet = stand_ins.Quiet().part()
    used = [one.figures["window_utilization"] for one in run(quiet.part, quiet.cluster)]
    assert max(used) - min(used) < 0.01

    day = stand_ins.Full().part()
    jobs = day.part.workload
    start_s = jobs.recorded_start_ms / 1000
    inside = (start_s >= day.part.begin_s) & (start_s < day.part.end_s)
    wide = 0.9 * day.cluster.node_count < jobs.nodes[inside]
    assert jobs.nodes.max() <= day.cluster.node_count
    assert int(wide.sum()) == 5


@pytest.mark.traces
def test_figures_of_the_paper_are_drawn_of_other_logs(traces: Path) -> None:
    for number in (4, 5, 6, 8):
        name = f"s-raps-figure-{number}"
        outcome = reproduce(find_entry(name))
        assert (outcome.verdict, list(outcome.results.figures)) == ("drawn", [name])
        assert "not available" in outcome.because or "not public" in outcome.because


def test_the_speed_of_fifteen_days_is_compared_with_fastsim() -> None:
    outcome = reproduce(find_entry("s-raps-figure-7"))
    (speed,) = outcome.results.findings
    assert round(speed.expected) == 688
    assert speed.obtained > 10 * speed.expected


def test_scheduling_by_true_runtimes_is_best_and_by_predictions_between() -> None:
    known = Known.of(users_jobs())
    found = prediction.run(known.workload, Cluster.uniform(NODES), methods=["like"], training=OFTEN)
    wait = {(one.order, one.by, one.plan): one.mean_wait_s for one in found}
    assert wait["shortest", "truth", "walltime"] < wait["fcfs", "walltime", "walltime"]
    own = simulate(known.workload, NODES, "fcfs+easy").summary()["mean_wait_s"]
    assert wait["fcfs", "walltime", "walltime"] == own
    assert ("score", "like", "walltime") not in wait


def test_the_experiment_with_outside_schedulers_shows_that_they_decide_like_inner_ones() -> None:
    jobs = external_schedulers.workload(60)
    assert jobs.span_s == pytest.approx(15 * 86_400 * 60 / 5324, rel=1e-3)
    programs = (f"{sys.executable} {PROGRAM} easy",)
    found = run_experiment(external_schedulers.SRapsSchedulers(60, programs)).rows
    assert [one["same_starts"] for one in found] == [1.0] * 5
    assert {one["beside"] for one in found} == {"fcfs+none", "fcfs+easy"}
    assert all(one["cpu_s"] > 0 for one in found)
