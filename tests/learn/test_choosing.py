"""Agents that choose policies, or clusters, stand beside what needs no training; each row is what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, errors, generate, simulate
from hpctwin.cli import main
from hpctwin.facility import Facility, FacilityCluster, parse_strategy, simulate_facility
from hpctwin.formats import write_workload
from hpctwin.learn import Episodes, PlacementEnv, PolicySelectionEnv
from hpctwin.learn.baselines import chosen_policies
from hpctwin.learn.baselines.baselines import SCHEDTWIN, schedtwin
from hpctwin.learn.baselines.chosen_policies import CHOSEN, TRUE_TIMES
from hpctwin.learn.baselines.evaluation import HINDSIGHT, Evaluation, evaluate, held_out
from hpctwin.learn.training.training import train
from hpctwin.learn.training.trial import Learner, Plan
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Workload
from hpctwin.policies.agents import Network
from hpctwin.twin.core.core import Core
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.service.virtual_time import drive_each
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.objective import Objective, Outlook
from tests.learn.test_many import NODES, machine

WORKLOAD = generate("poisson", jobs=400, nodes=NODES, seed=4, load=1.1)
TRAINED = {"trace": WORKLOAD.name, "first": 0, "last": 200}
AFTER = Episodes.of(WORKLOAD, NODES, jobs=60, first=200)
POOL = ("fcfs+easy", "sjf+easy", "wfp+none")
EVERY_S = 700.0
FIGURES = ["episode", "mean_bounded_slowdown", "mean_wait_s", "mean_turnaround_s", "served"]


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_policies, "TRIALS", 8)


def facility() -> Facility:
    sites = (
        FacilityCluster(name="slow", nodes=NODES, factor=2.0),
        FacilityCluster(name="fast", nodes=NODES, policy="sjf+easy"),
        FacilityCluster(name="small", nodes=4, policy="fcfs+none"),
    )
    return Facility(name="hall", clusters=sites)


def agent(path: Path, kind: str, place: int, **options: Any) -> Path:
    """An agent that scores one of three choices highest, whatever it sees."""
    inputs = 21 if kind == "Placement" else 7
    layer = np.zeros((3, inputs), np.float32), np.eye(3, dtype=np.float32)[place]
    card = {"environment": kind, "options": options, "data": TRAINED}
    Network((layer,), False, card).save(path)
    return path


def choosing(path: Path, place: int, **options: Any) -> Path:
    given = {"policies": list(POOL), "every_s": EVERY_S, **options}
    return agent(path, "PolicySelection", place, **given)


def row(found: Evaluation, name: str) -> pl.DataFrame:
    everybody = pl.concat([found.runs, found.oracle])
    return everybody.filter(pl.col("policy") == name).select(FIGURES)


# --- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
def test_always_one_policy_is_the_row_of_that_policy(tmp_path: Path, place: int) -> None:
    path = choosing(tmp_path / "a.safetensors", place)
    found = evaluate(path, AFTER, episodes=3, without=["tuned", "schedtwin", "oracle"])
    assert row(found, found.agent).equals(row(found, POOL[place]))
    others = [row(found, one) for one in POOL if one != POOL[place]]
    assert not any(row(found, found.agent).equals(one) for one in others)
    assert found.metric == "mean_wait_s"


def test_an_agent_that_chooses_policies_is_compared_with_all_other_choosers(tmp_path: Path) -> None:
    path = choosing(tmp_path / "a.safetensors", 0)
    found = evaluate(path, AFTER, episodes=4)
    assert found.omitted == {}
    assert found.best_before in POOL
    kinds = {
        kind: sorted(part["policy"])
        for (kind,), part in found.table().group_by("kind", maintain_order=True)
    }
    assert kinds["static"] == sorted(POOL)
    assert kinds["random"] == ["random"]
    assert kinds["twin"] == [SCHEDTWIN, f"{SCHEDTWIN}, each 700 s"]
    assert kinds["tuned"][0].endswith("+easy")
    assert kinds["oracle"] == sorted([HINDSIGHT, "known ahead", CHOSEN])
    means = dict(found.table().select("policy", "mean_wait_s").iter_rows())
    assert means["lower bound"] <= min(means["known ahead"], means[CHOSEN])
    assert means[CHOSEN] < min(means[one] for one in POOL)
    by_chance = row(found, "random")
    assert not any(by_chance.equals(row(found, one)) for one in POOL)
    told = held_out(path, AFTER, episodes=2)
    assert told["best"] in means
    assert CHOSEN in {one["policy"] for one in told["beside"]}


@pytest.mark.parametrize("metric", ["mean_wait_s", "mean_bounded_slowdown"])
def test_full_knowledge_is_never_worse_than_the_best_single_policy(
    tmp_path: Path, metric: Any
) -> None:
    path = choosing(tmp_path / "a.safetensors", 0)
    found = evaluate(path, AFTER, episodes=5, metric=metric, without=["tuned", "schedtwin"])
    chosen = row(found, CHOSEN)[metric].to_numpy()
    best = np.min([row(found, one)[metric].to_numpy() for one in POOL], axis=0)
    assert (chosen <= best * (1 + 1e-12)).all()
    assert (chosen < best).any()


def twin_row(jobs: Workload, cluster: Cluster) -> tuple[dict[str, Any], list[tuple[float, str]]]:
    """What SchedTwin does if it looks each 700 s, and what it chose at each of these instants."""
    chosen: list[tuple[float, str]] = []

    def watched(emulated: Any, core: Core) -> Any:
        return drive_each(emulated, core, EVERY_S, watch=lambda *one: chosen.append(one))

    return schedtwin(POOL, cluster, watched)(jobs), chosen


def exact(jobs: Workload) -> Workload:
    return replace(jobs, walltime_ms=jobs.runtime_ms)


@pytest.mark.parametrize("first", [200, 250, 300, 340])
def test_schedtwins_choices_made_in_the_environment_give_its_row(first: int) -> None:
    jobs = AFTER.beginning_at(first)
    found, chosen = twin_row(jobs, AFTER.cluster)
    at = dict(chosen)
    environment = PolicySelectionEnv(AFTER, policies=POOL, every_s=EVERY_S)
    environment.reset(options={"jobs": jobs})
    place, over, number = 0, False, 0
    while not over:
        force = at.get(number * EVERY_S, environment.policies[place].name)
        place = [one.name for one in environment.policies].index(force)
        _, _, over, _, told = environment.step(np.int64(place))
        number += 1
    assert len(set(at.values())) > 1
    assert {name: found[name] for name in FIGURES[1:]} == pytest.approx(
        {name: told[name] for name in FIGURES[1:]}, rel=1e-12
    )


def what_if(environment: PolicySelectionEnv, number: int) -> dict[str, float]:
    """The waiting jobs under a policy if nobody came any more: without mirror and emulated cluster."""
    simulation = environment.simulation
    waiting = simulation.state["queue"][: simulation.state.clock.queued].copy()
    fork = simulation.fork(environment.policies[number], arrivals=False)
    fork.advance()
    submit, nodes = fork.workload.submit_ms[waiting] / 1000, fork.workload.nodes[waiting]
    start, end = (fork.column(name)[waiting] / 1000 for name in ("start", "end"))
    outlook = Outlook(submit, start, end, nodes.astype(float), simulation.now_s, NODES, float, 0.0)
    return Objective().measure(outlook)


@pytest.mark.parametrize("first", [200, 260, 310])
def test_schedtwins_row_equals_forking_the_environment_and_taking_the_best(
    first: int,
) -> None:
    jobs = exact(AFTER.beginning_at(first))
    found, _ = twin_row(jobs, AFTER.cluster)
    environment = PolicySelectionEnv(AFTER, policies=POOL, every_s=EVERY_S)
    environment.reset(options={"jobs": jobs})
    place, over = 0, False
    names = [one.name for one in environment.policies]
    ties = ["fcfs+easy", "sjf+easy", "wfp+none"]
    while not over:
        if environment.simulation.state.clock.queued:
            measured = [what_if(environment, number) for number in range(len(POOL))]
            scores = Objective().scores(measured)
            equal = [n for n, one in zip(names, scores, strict=True) if one <= min(scores) + 1e-9]
            place = names.index(min(equal, key=ties.index))
        _, _, over, _, told = environment.step(np.int64(place))
    assert {name: found[name] for name in FIGURES[1:]} == pytest.approx(
        {name: told[name] for name in FIGURES[1:]}, rel=1e-12
    )


def test_a_twin_that_chooses_among_one_policy_is_that_policy() -> None:
    jobs = AFTER.beginning_at(230)
    core = Core(CoreSettings.checked({"pool": ["sjf+easy"], "futures": 0}, ""))
    ended = []

    def publish(event: Any) -> None:
        core.take_event(event)
        ended.append(event)

    driven = drive_each(emulated_cluster(AFTER.cluster, jobs, publish=publish), core, EVERY_S)
    own = simulate(jobs, NODES, "sjf+easy").jobs
    begun = {one.job_id: one.time_s for one in ended if type(one).__name__ == "JobStarted"}
    wanted = dict(own.select("job_id", "start_s").iter_rows())
    assert begun == {str(name): start_s for name, start_s in wanted.items()}
    assert driven.started_by == {"sjf+easy": len(jobs)}


def test_policies_that_switch_nodes_have_rows_and_no_twin(tmp_path: Path) -> None:
    pool = ["fcfs+easy~none", "fcfs+easy~psus:5m", "sjf+easy~psus:20m"]
    path = choosing(tmp_path / "a.safetensors", 1, policies=pool)
    source = Episodes.of(WORKLOAD, machine(), jobs=60, first=200)
    found = evaluate(path, source, episodes=2, metric="energy_j", without=["tuned"])
    runs = found.runs.filter(pl.col("policy") == "fcfs+easy~psus:5m")
    own = found.runs.filter(pl.col("policy") == found.agent)
    assert own["energy_j"].to_list() == runs["energy_j"].to_list()
    assert "switches no nodes" in found.omitted[SCHEDTWIN]
    assert found.omitted[CHOSEN] == "they are chosen by waits only"
    assert set(found.oracle["policy"]) == {"lower bound"}


# --- clusters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1])
def test_always_one_cluster_is_the_row_of_that_strategy(tmp_path: Path, place: int) -> None:
    path = agent(tmp_path / "p.safetensors", "Placement", place)
    found = evaluate(path, AFTER, episodes=3, facility=facility(), without=["oracle"])
    strategy = f"always({facility().names[place]})"
    assert row(found, found.agent).equals(row(found, strategy))
    assert not row(found, found.agent).equals(row(found, "always(small)"))


def test_an_agent_that_chooses_clusters_is_compared_with_strategies(tmp_path: Path) -> None:
    path = agent(tmp_path / "p.safetensors", "Placement", 0, reward="turnaround")
    found = evaluate(path, AFTER, episodes=3, facility=facility(), policies=["user(0.6)"])
    assert found.metric == "mean_turnaround_s"
    assert set(found.omitted) == {"tuned", SCHEDTWIN}
    static = found.runs.filter(pl.col("kind") == "static")["policy"].unique()
    assert set(static) >= {"round-robin", "shortest-queue", "most-free", "least-loaded", "sgs-t"}
    assert {"always(small)", "user(0.6)"} <= set(static)
    assert found.best_before in set(static)
    rng = np.random.default_rng(0)
    for number in range(3):
        jobs = AFTER.draw(rng).make()
        for name, options in (("sgs-t", {}), (TRUE_TIMES, {"knows": "oracle"})):
            own = simulate_facility(facility(), jobs, parse_strategy("sgs-t", **options))
            wanted = with_job_metrics(own.jobs)["turnaround_s"].mean()
            assert row(found, name)["mean_turnaround_s"][number] == wanted
    hindsight = found.table().filter(pl.col("policy") == HINDSIGHT)["mean_turnaround_s"].item()
    rows = [row(found, name)["mean_turnaround_s"].to_numpy() for name in static]
    assert hindsight == pytest.approx(np.min(rows, axis=0).mean())
    assert held_out(path, AFTER, episodes=2, facility=facility())["best"] in set(static)


def test_an_agent_scores_each_cluster_by_itself_in_facilities_of_any_size(tmp_path: Path) -> None:
    # What is seen first of a cluster is whether the job may go there, so that all are equal.
    layer = np.zeros((1, 7), np.float32), np.zeros(1, np.float32)
    path = tmp_path / "p.safetensors"
    Network((layer,), True, {"environment": "Placement", "data": TRAINED}).save(path)
    for clusters in (2, 3):
        smaller = Facility(name="hall", clusters=facility().clusters[:clusters])
        found = evaluate(path, AFTER, episodes=2, facility=smaller, without=["oracle"])
        assert row(found, found.agent).equals(row(found, "always(slow)"))


# --- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["ppo", "evolution"])
@pytest.mark.parametrize("kind", ["PolicySelection", "Placement"])
def test_one_seed_trains_one_agent(kind: str, learner: Learner) -> None:
    many = 32 if learner == "evolution" else 4
    layers = () if learner == "evolution" else (8,)
    plan = Plan(256, 3, environments=many, horizon=32, layers=layers, trials=2, learner=learner)
    hall = facility() if kind == "Placement" else None
    source = Episodes.of(WORKLOAD, NODES, jobs=20, last=200)
    one, same = (train(kind, source, plan, facility=hall) for _ in range(2))
    for (weight, bias), (other, its) in zip(one.layers, same.layers, strict=True):
        assert np.array_equal(weight, other)
        assert np.array_equal(bias, its)
    assert one.by_row == (kind == "Placement")
    assert one.card["machine"] == ("hall" if hall else source.cluster.name)
    assert one.card["nodes"] == (2 * NODES + 4 if hall else NODES)


def test_a_short_training_places_better_than_chance_on_jobs_held_out(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    plan = Plan(6000, environments=32, layers=(), trials=4, learner="evolution")
    about = {"data": TRAINED}
    source = Episodes.of(WORKLOAD, NODES, jobs=40, last=200)
    train("Placement", source, plan, about=about, facility=facility()).save(path)
    found = evaluate(path, AFTER, episodes=8, facility=facility(), without=["oracle"])
    means = dict(found.table().select("policy", "mean_bounded_slowdown").iter_rows())
    assert means[found.agent] < 0.8 * means["random"]


@pytest.mark.parametrize("kind", [PolicySelectionEnv, PlacementEnv])
def test_many_in_turn_are_the_single_ones(kind: Any) -> None:
    def made() -> Any:
        source = Episodes.of(WORKLOAD, NODES, jobs=12)
        return kind(source, facility()) if kind is PlacementEnv else kind(source)

    many = made().many(3)
    seen, _ = many.reset(seed=5)
    seeds = np.random.SeedSequence(5).generate_state(3).tolist()
    each = [made() for _ in range(3)]
    for number, one in enumerate(each):
        assert np.array_equal(one.reset(seed=seeds[number])[0], seen[number])
    rng, ended = np.random.default_rng(1), np.zeros(3, int)
    while ended.min() < 2:
        masks = many.action_masks()
        actions = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
        seen, earned, over, _, infos = many.step(np.array(actions))
        for number, one in enumerate(each):
            own, reward, done, _, told = one.step(actions[number])
            assert (reward, done) == (earned[number], over[number])
            if done:
                assert np.array_equal(infos["final_obs"][number], own)
                assert infos["final_info"][number] == told
                own, _ = one.reset()
                ended[number] += 1
            assert np.array_equal(own, seen[number])
            assert np.array_equal(one.action_masks(), many.action_masks()[number])


# --- what is wrong -------------------------------------------------------------------------------

HALL = """
name: hall
clusters:
  - {name: slow, nodes: 16, factor: 2}
  - {name: fast, nodes: 16}
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train Placement t.swf x.safetensors -n 16", "among whose clusters it chooses"),
        (
            "train JobSelection t.swf x.safetensors --facility f.yaml",
            "a facility works only with Placement",
        ),
        ("train Placement t.swf x.safetensors --facility f.yaml -n 16", "not both"),
        ("train Placement t.swf x.safetensors --facility no.yaml", "no.yaml"),
        (
            "train Placement t.swf x.safetensors --facility f.yaml --learner cma",
            "learner cma needs compiled episodes, which Placement does not support",
        ),
        (
            "train Placement t.swf x.safetensors --facility f.yaml --imitate sjf",
            "imitation of orderings needs job selection; it does not work with Placement",
        ),
        (
            "train Placement t.swf x.safetensors --facility f.yaml --option reward=turnround",
            "Did you mean 'turnaround'?",
        ),
        (
            "train PolicySelection t.swf x.safetensors -n 16 --option policies=[fcfs+easi]",
            "Did you mean 'easy'?",
        ),
        ("train PolicySelection t.swf x.safetensors -n 16 --option policies=fcfs", "policies"),
        (
            "train PolicySelection t.swf x.safetensors -n 16 --option policies=[]",
            "policies to choose from are missing",
        ),
        ("train PolicySelection t.swf x.safetensors -n 16 --option every_s=0", "above 0"),
        ("evaluate p.safetensors t.swf -n 16", "among whose clusters it chooses"),
        ("evaluate p.safetensors t.swf --facility f.yaml", "scores 3 choices by 21 numbers"),
        ("evaluate a.safetensors t.swf --facility f.yaml", "a facility works only with Placement"),
        ("evaluate a.safetensors t.swf -n 16 --metric mean_turnaround_s", "use mean_wait_s"),
        ("evaluate a.safetensors t.swf -n 16 --metric energy_j", "energy_j is unavailable"),
        ("evaluate two.safetensors t.swf -n 16", "this task has 2 choices"),
        ("evaluate none.safetensors t.swf -n 16", "card of the agent lists no policies"),
        ("evaluate one.safetensors t.swf -n 16", "option policies of PolicySelection"),
        ("evaluate r.safetensors t.swf --facility f.yaml --metric energy_j", "by waits, slowdowns"),
        ("evaluate r.safetensors t.swf --facility f.yaml -p always(faster)", "mean 'fast'?"),
        ("evaluate r.safetensors t.swf --facility f.yaml -p sjf+easy", "strategy"),
    ],
)
def test_errors_are_reported_in_one_line(
    line: str,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload(WORKLOAD, "t.swf")
    Path("f.yaml").write_text(HALL)
    agent(Path("p.safetensors"), "Placement", 0)
    choosing(Path("a.safetensors"), 0)
    choosing(Path("two.safetensors"), 0, policies=list(POOL[:2]))
    choosing(Path("none.safetensors"), 0, policies=[])
    choosing(Path("one.safetensors"), 0, policies="sjf+easy")
    layer = np.zeros((1, 7), np.float32), np.zeros(1, np.float32)
    Network((layer,), True, {"environment": "Placement"}).save("r.safetensors")
    with pytest.raises(SystemExit) as ended:
        main(["agent", *line.split(), "--jobs", "20"])
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert told in " ".join(shown.err.replace("│", " ").split())
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_the_commands_train_and_evaluate_with_a_facility(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload(WORKLOAD, "t.swf")
    Path("f.yaml").write_text(HALL)
    common = ["t.swf", "--jobs", "20", "--facility", "f.yaml"]
    for words in (
        ["train", "Placement", common[0], "p.safetensors", *common[1:], "--steps", "300",
         "--environments", "4", "--last", "200"],
        ["evaluate", "p.safetensors", *common, "--first", "200", "--episodes", "2"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(["agent", *words])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
    assert "sgs-t" in shown
    assert "best fixed policy on the training jobs: " in shown
    card = Network.load("p.safetensors").card
    assert card["clusters"] == ["slow", "fast"]
    assert card["held_out"]["metric"] == "mean_bounded_slowdown"


def test_a_strategy_for_an_unknown_cluster_is_reported() -> None:
    with pytest.raises(errors.UnknownNameError, match="fast"):
        simulate_facility(facility(), AFTER.beginning_at(200), "always(fastest)")
    with pytest.raises(errors.ConfigError, match="'always' requires a cluster"):
        parse_strategy("always")
