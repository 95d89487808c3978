"""What stands beside an agent: chosen and tuned on the jobs of its training, and told where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import errors, simulate
from hpctwin.cli import main
from hpctwin.formats import write_workload
from hpctwin.learn import Episodes
from hpctwin.learn.baselines import chosen_policies
from hpctwin.learn.baselines.baselines import of_rule
from hpctwin.learn.baselines.chosen_policies import FORMULAS, Training, training_of
from hpctwin.learn.baselines.evaluation import Evaluation, evaluate, held_out
from hpctwin.policies.agents import Network
from tests.learn.test_agents import network
from tests.learn.test_many import NODES, WORKLOAD, machine

TRAINED = {"trace": WORKLOAD.name, "first": 0, "last": 200}
AFTER = Episodes.of(WORKLOAD, NODES, jobs=60, first=200)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_policies, "TRIALS", 8)


def agent(path: Path, kind: str, **options: Any) -> Network:
    """An agent of drawn weights."""
    card = {"environment": kind, "options": options, "data": TRAINED}
    sizes = (8, 8, 5) if kind == "PowerManagement" else (6, 8, 4, 1)
    made = network(sizes, 0, kind != "PowerManagement", card)
    made.save(path)
    return made


def rows(found: Evaluation, kind: str) -> pl.DataFrame:
    return found.table().filter(pl.col("kind") == kind)


def test_an_agent_that_chooses_jobs_is_compared_with_tuned_policies_the_twin_and_the_bound(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.safetensors"
    agent(path, "JobSelection", observation="job", backfilling=True)
    found = evaluate(path, AFTER, episodes=6)
    assert found.omitted == {}
    assert found.best_before in set(rows(found, "static")["policy"])
    assert rows(found, "twin")["policy"].to_list() == ["schedtwin+easy"]
    assert rows(found, "tuned")["policy"].item().endswith("+easy")
    assert rows(found, "oracle")["policy"].to_list() == ["known ahead", "best in hindsight"]
    by_name = dict(found.table().select("policy", "mean_bounded_slowdown").iter_rows())
    assert by_name["lower bound"] <= by_name["known ahead"]
    table = found.table().filter(pl.col("policy") != found.agent)
    assert table["low"].null_count() == 0
    assert (table["low"] <= table["more"]).all()
    assert (table["more"] <= table["high"]).all()


def test_a_twin_with_one_policy_in_its_pool_acts_as_that_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpctwin.learn.baselines.baselines.POOL", ("sjf",))
    path = tmp_path / "a.safetensors"
    agent(path, "JobSelection", observation="job", backfilling=True)
    runs = evaluate(path, AFTER, episodes=2, without=["tuned", "oracle"]).runs
    figures = ["episode", "mean_bounded_slowdown", "mean_wait_s", "served"]
    twin, alone = (
        runs.filter(pl.col("policy") == name).select(figures)
        for name in ("schedtwin+easy", "sjf+easy")
    )
    assert twin.equals(alone)


@pytest.mark.parametrize(("nobody", "policy"), [(-1.0, "fcfs+easy"), (1.0, "fcfs+none")])
def test_one_that_backfills_is_played_in_its_environment(
    tmp_path: Path, nobody: float, policy: str
) -> None:
    path = tmp_path / "b.safetensors"
    card = {"environment": "Backfilling", "options": {"window": 60, "observation": "job"}}
    # All rows have one score, so that the first who may pass is taken, or nobody.
    layers = ((np.zeros((1, 6), np.float32), np.zeros(1, np.float32)),)
    Network(layers, True, card, np.array([nobody], np.float32)).save(path)
    assert Network.load(path).rowless.tolist() == [nobody]
    found = evaluate(path, AFTER, episodes=2, without=["schedtwin"])
    figures = ["episode", "mean_bounded_slowdown", "mean_wait_s"]
    own, same = (
        found.runs.filter(pl.col("policy") == name).select(figures).to_numpy()
        for name in (found.agent, policy)
    )
    assert own == pytest.approx(same)
    assert "trained on 'other jobs'" in found.omitted["tuned"]
    assert found.omitted["schedtwin"] == "as asked"


def test_an_agent_that_switches_nodes_is_compared_with_tuned_timeouts_and_the_bound(
    tmp_path: Path,
) -> None:
    path = tmp_path / "night.safetensors"
    made = agent(path, "PowerManagement", observation="shares", levels=5, every_s=900.0)
    made.layers[-1][1][4] += 100.0  # always all nodes
    made.save(path)
    source = Episodes.of(WORKLOAD, machine(), jobs=60, first=200)
    found = evaluate(path, source, episodes=2)
    assert found.metric == "energy_j"
    assert set(found.omitted) == {"schedtwin"}
    assert rows(found, "tuned")["policy"].item().startswith("fcfs+easy~ps")
    by_name = dict(found.table().select("policy", "energy_j").iter_rows())
    assert by_name[found.agent] == pytest.approx(by_name["fcfs+easy~none"])
    assert by_name["lower bound"] < by_name["known ahead"] < by_name["fcfs+easy~none"]
    told = held_out(path, source, episodes=2)
    assert told["best"] in by_name
    assert {row["policy"] for row in told["beside"]} == set(by_name)
    waits = evaluate(path, source, episodes=2, metric="mean_wait_s", without=["tuned"])
    assert waits.omitted["known ahead"] == "the bound covers only energy if nodes are switched"
    assert rows(waits, "bound")["mean_wait_s"].item() <= waits.table()["mean_wait_s"].min()


def mean_of(training: Training, policy: str) -> float:
    found = [simulate(jobs, NODES, policy).summary() for jobs in training.parts.values()]
    return float(np.mean([one["mean_bounded_slowdown"] for one in found]))


def test_the_choice_on_the_jobs_of_training_is_the_best_there() -> None:
    training = training_of({"data": TRAINED}, AFTER)
    assert [len(jobs) for jobs in training.parts.values()] == [60] * 3
    assert all(jobs.submit_ms[0] == 0 for jobs in training.parts.values())
    policies = ["fcfs+easy", "sjf+easy", "ljf+easy"]
    chosen = training.best(
        {policy: of_rule(policy, AFTER.cluster) for policy in policies}, "mean_bounded_slowdown"
    )
    assert mean_of(training, chosen) == min(mean_of(training, one) for one in policies)
    texts = {f"{one}+easy": places for one, places in FORMULAS.items()}
    winner = training.tuned(texts, "mean_bounded_slowdown", "fcfs+easy")
    assert winner == training.tuned(texts, "mean_bounded_slowdown", "fcfs+easy")
    assert mean_of(training, winner) < mean_of(training, "ljf+easy")


@pytest.mark.parametrize(
    ("data", "first", "why"),
    [
        ({"trace": "other", "first": 0, "last": 200}, 200, "was trained on 'other'"),
        (TRAINED, 100, "jobs 0 to 200, which the agent was trained on"),
    ],
)
def test_nothing_is_tuned_on_other_jobs_or_on_those_evaluated(
    data: dict[str, Any], first: int, why: str
) -> None:
    source = Episodes.of(WORKLOAD, NODES, jobs=60, first=first)
    with pytest.raises(errors.ConfigError, match=why):
        training_of({"data": data}, source)


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("a.safetensors --without tunned", 2, 'Did you mean "tuned"?'),
        ("a.safetensors --without", 2, "--without needs a value"),
        ("a.safetensors --metric energy_j", 2, "the cluster has no power model"),
        ("other.safetensors", 2, "agents of Sorting have no baselines; supported: JobSelection,"),
        ("night.safetensors", 2, "the cluster has no power model"),
        ("rowless.safetensors", 2, "the scores of actions without a row are not a list"),
    ],
)
def test_an_impossible_evaluation_is_reported_in_one_line(
    line: str,
    code: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload(WORKLOAD, "t.swf")
    agent(tmp_path / "a.safetensors", "JobSelection", observation="job")
    agent(tmp_path / "other.safetensors", "Sorting")
    agent(tmp_path / "night.safetensors", "PowerManagement", levels=5)
    made = network((6, 8, 5), 0, False, {"environment": "Backfilling"})
    Network(made.layers, False, made.card, np.zeros(1, np.float32)).save("rowless.safetensors")
    name, *rest = line.split()
    with pytest.raises(SystemExit) as ended:
        main(["agent", "evaluate", name, "t.swf", "-n", str(NODES), "--jobs", "60", *rest])
    assert ended.value.code == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_the_command_reports_what_is_skipped_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload(WORKLOAD, "t.swf")
    agent(tmp_path / "a.safetensors", "JobSelection", observation="job")
    given = ["agent", "evaluate", "a.safetensors", "t.swf", "-n", str(NODES), "--jobs", "60",
             "--episodes", "2", "--without", "schedtwin", "--without", "oracle"]  # fmt: skip
    with pytest.raises(SystemExit):
        main([*given, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["omitted"]["schedtwin"] == told["omitted"]["oracle"] == "as asked"
    assert f"trained on '{WORKLOAD.name}', but this trace is 't'" in told["omitted"]["tuned"]
    assert {row["kind"] for row in told["policies"]} == {"agent", "static", "oracle"}
    with pytest.raises(SystemExit):
        main(given)
    assert "schedtwin skipped: as asked" in capsys.readouterr().out
