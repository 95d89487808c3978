"""Agents are trained, kept without pickle, and are parts of policies."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import compare, errors, generate, simulate
from hpctwin.cli import main
from hpctwin.engine.agents.parallel_steps import seen_of_job
from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.learn import Episodes, JobSelectionEnv, PowerManagementEnv, SimulationVectorEnv
from hpctwin.learn.baselines import chosen_policies
from hpctwin.learn.baselines.evaluation import HINDSIGHT, evaluate
from hpctwin.learn.training.training import train
from hpctwin.learn.training.trial import Plan
from hpctwin.policies import find_ordering, find_power
from hpctwin.policies.agents import Network
from hpctwin.twin.service import comparison
from hpctwin.twin.settings.config import CoreSettings
from tests.learn.test_many import NODES, WORKLOAD, check_same, machine

SHORT = Plan(steps=4096, environments=16, horizon=64, threads=1)


def network(sizes: tuple[int, ...], seed: int, by_row: bool, card: dict[str, Any]) -> Network:
    rng = np.random.default_rng(seed)
    layers = tuple(
        (
            rng.normal(size=(outputs, inputs)).astype(np.float32),
            rng.normal(size=outputs).astype(np.float32),
        )
        for inputs, outputs in pairwise(sizes)
    )
    return Network(layers, by_row, card)


def selecting(path: Path, seed: int = 0) -> Network:
    made = network(
        (6, 8, 4, 1), seed, True, {"environment": "JobSelection", "options": {"observation": "job"}}
    )
    made.save(path)
    return made


def played(environment: JobSelectionEnv, choose: Any) -> float:
    seen, _ = environment.reset(options={"first": environment.episodes.latest})  # type: ignore[attr-defined]
    over = False
    while not over:
        seen, _, over, _, told = environment.step(choose(seen, environment.action_masks()))
    return float(told["mean_bounded_slowdown"])


def test_a_short_training_improves_over_a_random_agent_on_jobs_it_has_not_seen() -> None:
    workload = generate("lublin", jobs=1500, nodes=128, seed=1)
    made = train(
        "JobSelection",
        Episodes.of(workload, 128, jobs=64, last=1000),
        Plan(steps=16_384, environments=32, horizon=64, threads=1),
    )
    held_out = JobSelectionEnv(Episodes.of(workload, 128, jobs=400), observation="job", window=64)
    rng = np.random.default_rng(1)
    by_chance = [
        played(held_out, lambda seen, mask: int(rng.choice(np.flatnonzero(mask)))) for _ in range(3)
    ]
    learned = played(
        held_out, lambda seen, mask: int(np.argmax(np.where(mask, made.scores(seen), -np.inf)))
    )
    assert learned < 0.8 * min(by_chance)


def test_one_seed_trains_one_agent_and_training_continues_from_a_checkpoint(tmp_path: Path) -> None:
    source = Episodes.of(WORKLOAD, NODES, jobs=20)

    def made(steps: int, folder: str, seed: int = 3) -> Network:
        plan = Plan(
            steps,
            seed,
            environments=4,
            horizon=32,
            threads=1,
            checkpoints=tmp_path / folder,
        )
        return train("Backfilling", source, plan, options={"window": 8})

    one, same, other = made(256, "a"), made(256, "b"), made(256, "c", seed=4)
    weights = [agent.layers[0][0] for agent in (one, same, other)]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])
    again = made(384, "a")
    assert again.card["trained"]["steps"] == 384
    assert not np.array_equal(again.layers[0][0], weights[0])
    assert again.card["trained"]["versions"]["torch"]


def test_training_leaves_no_folder_of_logs_among_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan = Plan(64, environments=2, horizon=32, threads=1)
    train("JobSelection", Episodes.of(WORKLOAD, NODES, jobs=20), plan, options={"window": 8})
    assert not list(tmp_path.glob("SB3*"))


def test_a_checkpoint_of_another_training_is_rejected(tmp_path: Path) -> None:
    source = Episodes.of(WORKLOAD, NODES, jobs=20)
    plan = Plan(64, environments=2, horizon=32, threads=1, checkpoints=tmp_path)
    train("JobSelection", source, plan, options={"window": 8})
    with pytest.raises(errors.ConfigError, match="contains another training"):
        train("JobSelection", source, plan, options={"window": 9})


def test_an_agent_that_imitates_chooses_as_the_best_of_the_orderings_does() -> None:
    workload = generate("lublin", jobs=600, nodes=128, seed=1)
    source = Episodes.of(workload, 128, jobs=64, last=400)
    options = {"window": 32}
    plan = Plan(64, environments=2, horizon=32, threads=1, imitate=("ljf", "sjf"), rate=1e-9)
    made = train("JobSelection", source, plan, options=options)
    assert made.card["trained"]["imitated"] == "sjf"
    held_out = JobSelectionEnv(
        Episodes.of(workload, 128, jobs=200), observation="job", window=200, order="sjf"
    )

    def learned(seen: Any, mask: Any) -> int:
        return int(np.argmax(np.where(mask, made.scores(seen), -np.inf)))

    shortest, own = played(held_out, lambda seen, mask: 0), played(held_out, learned)
    assert own == pytest.approx(shortest, rel=0.25)
    with pytest.raises(errors.ConfigError, match="does not work with Backfilling"):
        train("Backfilling", source, plan, options=options)


def test_the_best_of_what_was_tried_is_kept_also_from_a_checkpoint(tmp_path: Path) -> None:
    source = Episodes.of(WORKLOAD, NODES, jobs=20)
    # Steps so large that what is learnt is worth nothing.
    plan = Plan(
        512, environments=4, horizon=32, threads=1, rate=3.0, imitate=("sjf",), checkpoints=tmp_path
    )
    made = train("JobSelection", source, plan, options={"window": 8})
    last = train("JobSelection", source, replace(plan, trials=0, checkpoints=None))
    assert np.abs(last.layers[0][0]).max() > 10 > np.abs(made.layers[0][0]).max()
    again = train("JobSelection", source, replace(plan, steps=640), options={"window": 8})
    assert again.card["trained"]["steps"] == 640
    assert np.array_equal(again.layers[0][0], made.layers[0][0])


def test_written_files_are_read_back_with_their_card(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    written = selecting(path)
    read = Network.load(path)
    assert read.card == written.card
    seen = np.random.default_rng(1).random((5, 6), np.float32)
    assert np.array_equal(read.scores(seen), written.scores(seen))
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["0.weight"]["shape"] == [8, 6]


def test_a_file_without_an_agent_is_reported(tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    selecting(good)
    data = good.read_bytes()
    bad = network((6, 8, 1), 0, True, {})
    bad.layers[0][0][0, 0] = np.nan
    bad.save(tmp_path / "nan.safetensors")
    Network((*bad.layers[:1], (np.ones((1, 3), np.float32), np.ones(1, np.float32))), True).save(
        tmp_path / "chain.safetensors"
    )
    for name, content in {
        "empty": b"",
        "cut": data[:-20],
        "text": b"\x05\x00\x00\x00\x00\x00\x00\x00hello",
        "huge": b"\xff" * 16,
        "other": (2).to_bytes(8, "little") + b"{}",
    }.items():
        (tmp_path / f"{name}.safetensors").write_bytes(content)
    for name in ("empty", "cut", "text", "huge", "other", "nan", "chain", "missing"):
        with pytest.raises(errors.PolicyError, match=rf"{name}\.safetensors.*agent"):
            find_ordering(str(tmp_path / f"{name}.safetensors"))


def test_an_agent_of_something_else_is_no_such_part_of_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    selecting(path)
    with pytest.raises(errors.PolicyError, match="works as an ordering"):
        find_power(str(path))
    network((8, 4, 3), 0, False, {"environment": "PowerManagement"}).save(path)
    with pytest.raises(errors.PolicyError, match="works as a power policy"):
        find_ordering(str(path))
    with pytest.raises(errors.PolicyError, match="at fixed times"):
        find_power(str(path))


@given(
    wait=st.floats(0, 1e6),
    walltime=st.floats(1, 1e6),
    nodes=st.integers(1, 500),
    seed=st.integers(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_as_an_ordering_an_agent_scores_jobs_as_its_network_does(
    tmp_path_factory: pytest.TempPathFactory, wait: float, walltime: float, nodes: int, seed: int
) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / f"{seed}.safetensors"
    if not path.exists():
        selecting(path, seed)
    seen = np.array([1.0, *seen_of_job.py_func(wait, walltime, nodes, 500.0)])
    fields = dict.fromkeys(JobView._fields, 0)
    job = JobView(
        **{
            **fields,
            "wait": wait,
            "walltime": walltime,
            "nodes": float(nodes),
            "machine_nodes": 500.0,
        }
    )
    own = find_ordering(str(path)).compiled(0.0, job)
    assert -own == pytest.approx(Network.load(path).scores(seen[None])[0], abs=1e-4)


def test_an_agent_is_an_ordering_by_its_files_name_in_simulate_and_compare(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    selecting(path)
    own = simulate(WORKLOAD, NODES, f"{path}+easy")
    together = compare(WORKLOAD, NODES, ["fcfs+easy", f"{path}+easy"])
    assert together[f"{path}+easy"].jobs.equals(own.jobs)
    assert not own.jobs.equals(together["fcfs+easy"].jobs)


@pytest.mark.parametrize("action", ["share", "share-spars", "reserve"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_agent_is_a_power_policy_that_does_as_in_its_environment_joule_for_joule(
    tmp_path: Path, action: str, seed: int
) -> None:
    path = tmp_path / "night.safetensors"
    options = {"observation": "shares", "levels": 9, "every_s": 900.0, "action": action}
    card = {"environment": "PowerManagement", "options": options}
    agent = network((8, 16, 9), seed, False, card)
    # So that all jobs can run: at least half of the nodes, and always one more level.
    agent.layers[-1][1][5:] += 4.0
    agent.save(path)
    environment = PowerManagementEnv(WORKLOAD, machine(), jobs=60, **options)
    jobs = environment.episodes.beginning_at(20 * seed)
    jobs = jobs.take(jobs.nodes <= NODES // 2)
    seen, _ = environment.reset(options={"jobs": jobs})
    over, chosen = False, set()
    while not over:
        level = int(np.argmax(agent.scores(seen)))
        chosen.add(level)
        seen, _, over, cut, told = environment.step(level)
        assert not cut
    own = simulate(jobs, machine(), f"fcfs+easy~{path}")
    check_same(environment, own, told)
    assert len(chosen) > 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_agent_that_scores_levels_is_a_power_policy_joule_for_joule(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "night.safetensors"
    options = {"observation": "levels", "levels": 9, "every_s": 900.0, "action": "reserve"}
    agent = network((10, 1), seed, True, {"environment": "PowerManagement", "options": options})
    weights = np.random.default_rng(seed).standard_normal(10)
    weights[:2] = 1.0, -1.0  # so that it is sometimes a level between
    agent.layers[0][0][:] = weights
    agent.save(path)
    environment = PowerManagementEnv(WORKLOAD, machine(), jobs=60, **options)
    seen, _ = environment.reset(options={"first": 20 * seed})
    over, chosen = False, set()
    while not over:
        level = int(np.argmax(agent.scores(seen)))
        chosen.add(level)
        seen, _, over, _, told = environment.step(level)
    jobs = environment.episodes.beginning_at(20 * seed)
    check_same(environment, simulate(jobs, machine(), f"fcfs+easy~{path}"), told)
    assert len(chosen) > 2


def test_sb3_gets_masks_for_each_and_last_observations() -> None:
    # PyTorch, which takes seconds to import, is imported only where this test runs.
    from hpctwin.learn.environments.sb3 import Sb3VecEnv

    one = JobSelectionEnv(WORKLOAD, NODES, jobs=10, window=8)
    many = Sb3VecEnv(SimulationVectorEnv(one.task, one.episodes, 3, threads=1), seed=1)
    many.reset()
    done = np.zeros(3, bool)
    while not done.any():
        masks = many.env_method("action_masks")
        assert len(masks) == 3
        assert all(mask.shape == (8,) and mask[0] for mask in masks)
        seen, _, done, infos = many.step(np.zeros(3, int))
    number = int(np.argmax(done))
    assert not infos[number]["terminal_observation"].any()
    assert seen[number].any()
    many.close()


def test_a_table_compares_an_agent_with_methods_without_training(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    selecting(path)
    found = evaluate(
        path, Episodes.of(WORKLOAD, NODES, jobs=60), episodes=6, policies=["lcfs+none"]
    )
    table = found.table()
    assert table["policy"].to_list()[0] != "lcfs+none"
    assert {"fcfs+none", "sjf+none", "f1+none", "lcfs+none", found.agent} <= set(table["policy"])
    assert table.filter(table["policy"] == found.agent)["more"].item() == 0
    rest = table.filter(table["policy"] != found.agent)
    assert (rest["low"] <= rest["more"]).all()
    assert (rest["more"] <= rest["high"]).all()
    best = found.runs.filter(pl.col("policy") != found.agent).group_by("episode").min()
    assert table.filter(pl.col("policy") == HINDSIGHT)["mean_bounded_slowdown"].item() == (
        pytest.approx(best["mean_bounded_slowdown"].mean())
    )


def test_in_the_twins_pool_an_agent_starts_jobs_as_in_a_simulation(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    selecting(path, 3)
    text = f"{path}+easy"
    jobs = generate("poisson", jobs=60, nodes=NODES, seed=2, load=1.1)
    jobs = replace(jobs, walltime_ms=jobs.runtime_ms)
    rows = [
        comparison.twin_row(jobs, NODES, CoreSettings.checked({"pool": pool, "futures": 0}, ""))
        for pool in ([text], ["fcfs+easy"], ["fcfs+easy", text])
    ]
    own = comparison.static_row(jobs, NODES, text, 0)
    assert rows[0].mean_wait_s == pytest.approx(own.mean_wait_s)
    assert rows[0].mean_wait_s != pytest.approx(rows[1].mean_wait_s)
    assert rows[0].share_by_policy == {text: 1.0}
    assert text in rows[2].share_by_policy


def command(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0


def test_the_commands_train_evaluate_and_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chosen_policies, "TRIALS", 8)
    command("workload", "generate", "poisson", "trace.swf", "jobs=200", "nodes=16")
    common = ["trace.swf", "-n", "16", "--jobs", "20"]
    command(
        "agent",
        "train",
        "JobSelection",
        common[0],
        "a.safetensors",
        *common[1:],
        "--steps",
        "600",
        "--environments",
        "4",
        "--last",
        "150",
    )
    said = capsys.readouterr().out
    assert "JobSelection" in said
    assert "on jobs after 150: mean_bounded_slowdown" in said
    command("agent", "evaluate", "a.safetensors", *common, "--episodes", "2", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["agent"] == "a.safetensors+none"
    kinds = [row["kind"] for row in told["policies"]]
    assert sorted(set(kinds)) == ["agent", "bound", "oracle", "static", "twin"]
    assert kinds.count("static") == 10
    assert "evaluation includes jobs" in told["omitted"]["tuned"]
    command("agent", "list", "--json")
    card = json.loads(capsys.readouterr().out)["a.safetensors"]
    assert card["data"] == {"trace": "trace", "first": 0, "last": 150}
    held_out = card["held_out"]
    assert held_out["more"][0] == pytest.approx(held_out["agent"] - held_out["of_best"])
    assert {"tuned", "twin", "bound"} < {row["kind"] for row in held_out["beside"]}
    assert held_out["omitted"] == {}
    assert card["us_per_decision"] > 0
    command("agent", "list")
    assert f"{card['us_per_decision']}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["train", "JobSelection", "trace.swf", "a.npz", "-n", "16"], "stored as .safetensors"),
        (["train", "Sorting", "trace.swf", "a.safetensors"], "JobSelection"),
        (
            [
                "train",
                "JobSelection",
                "trace.swf",
                "a.safetensors",
                "-n",
                "16",
                "--jobs",
                "5",
                "--option",
                "x",
            ],
            "NAME=VALUE",
        ),
        (["train", "JobSelection", "trace.swf", "a.safetensors", "-n", "16"], "needs 256 jobs"),
        (["evaluate", "none.safetensors", "trace.swf", "-n", "16", "--jobs", "5"], "No such file"),
        (["list", "nowhere"], "is not a folder"),
    ],
)
def test_errors_are_reported_in_one_line(
    wrong: list[str],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command("workload", "generate", "poisson", "trace.swf", "jobs=30", "nodes=16")
    with pytest.raises(SystemExit) as ended:
        main(["agent", *wrong])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert told in said.replace("\n", " ")
    assert "Traceback" not in said
