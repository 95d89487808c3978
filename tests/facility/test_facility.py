"""Facilities: who goes where, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, generate, parse_policy
from hpctwin.errors import ConfigError, UnknownNameError, WorkloadError
from hpctwin.facility import (
    Facility,
    FacilityResult,
    FacilitySimulation,
    compare_strategies,
    parse_strategy,
    simulate_facility,
)
from hpctwin.formats import write_workload
from hpctwin.model import Category
from tests import strategies as drawn
from tests.examples import examples
from tests.simulation.test_open import exact

ANY_STRATEGY = (
    "random", "user(0.6)", "round-robin", "always(c0)", "shortest-queue", "most-free", "least-loaded",
    "earliest-start", "peer", "sgs-t",
    "sgs(wait)", "sgs(total)", "sgs(turnaround+0.5*energy)",
)  # fmt: skip


def facility(*clusters: dict[str, Any], **about: Any) -> Facility:
    named = [{"name": f"c{i}", **cluster} for i, cluster in enumerate(clusters)]
    return Facility.model_validate({"clusters": named, **about})


def jobs(**columns: Any) -> Workload:
    size = len(columns["submit_s"])
    return Workload.build(**{"nodes": [1] * size, **columns})


def used_at_most(result: FacilityResult) -> None:
    """Nobody has more nodes than there are, and nobody starts before having arrived."""
    for one in result.clusters.values():
        if len(one.series):
            assert (one.series["used_nodes"] <= one.cluster.node_count).all()
        started = one.jobs.filter(pl.col("start_s").is_not_null())
        assert (started["start_s"] >= started["eligible_s"]).all()
        assert (started["eligible_s"] >= started["submit_s"]).all()


@settings(max_examples=examples(40))
@given(data=st.data(), strategy=st.sampled_from(ANY_STRATEGY))
def test_one_cluster_in_a_facility_is_that_cluster_alone(
    data: st.DataObject, strategy: str
) -> None:
    if data.draw(st.booleans()):
        cluster = data.draw(drawn.shared_clusters())
        workload = data.draw(drawn.shared_workloads(cluster, dependencies=False, max_jobs=15))
    else:
        cluster = data.draw(drawn.clusters())
        workload = data.draw(drawn.workloads(cluster, dependencies=False))
    policy = data.draw(st.sampled_from(("fcfs+easy", "wfp+conservative", "sjf+first-fit")))
    by_itself = Simulation(workload, cluster, policy=parse_policy(policy)).run()
    alone = by_itself.jobs
    one = facility({"machine": cluster, "policy": policy, "power_w": 1})
    result = simulate_facility(one, workload, strategy)
    found = result.jobs
    if by_itself.placements is not None:
        (there,) = result.clusters.values()
        assert there.placements is not None
        assert there.placements.equals(by_itself.placements)
    ran = alone["state"] != "rejected"
    assert found.filter(ran).select(alone.columns).equals(alone.filter(ran))
    assert (found.filter(~ran)["state"] == "rejected").all()
    assert (found.filter(~ran)["cluster"].is_null()).all()


@settings(max_examples=examples(30))
@given(data=st.data(), strategy=st.sampled_from(ANY_STRATEGY))
def test_jobs_that_share_nodes_run_once_wherever_they_are_sent_or_moved(
    data: st.DataObject, strategy: str
) -> None:
    workload = data.draw(drawn.crowded_workloads(max_jobs=20))
    several = facility(
        *(
            {
                "machine": {"nodes": [{"name": "n", "count": n, "cores": 8, "memory_gb": 16}]},
                "policy": data.draw(st.sampled_from(("fcfs+easy", "fcfs+conservative@spread"))),
                "power_w": 100,
            }
            for n in (3, 4)
        )
    )
    options = {"move_every_s": data.draw(st.sampled_from((0, 7))), "move_gain_s": 1}
    result = FacilitySimulation(several, workload, parse_strategy(strategy, **options)).run()
    assert set(result.jobs["state"]) <= {"completed", "walltime", "rejected"}
    ran = result.jobs.filter(pl.col("start_s").is_not_null())
    for one in result.clusters.values():
        assert one.placements is not None
        assert one.placements["job_id"].n_unique() == len(one.jobs)
        for name, most in (("cores", 8), ("memory_gb", 16)):
            changes = [
                (time, node, sign * amount)
                for *span, node, amount in one.placements.select(
                    "end_s", "start_s", "node", name
                ).rows()
                for time, sign in zip(span, (-1, 1), strict=True)
            ]
            held = dict.fromkeys(range(one.cluster.node_count), 0.0)
            for _, node, change in sorted(changes, key=lambda c: (c[0], c[2])):
                held[node] += change
                assert held[node] <= most
    # A job counts with its share of the machine where it ran.
    shares = dict(zip(workload.job_id.tolist(), np.maximum(
        workload.chunks["tasks"] * workload.chunks["cores_per_task"] / 8,
        workload.chunks["tasks"] * workload.chunks["memory_gb_per_task"] / 16,
    ).tolist(), strict=True))  # fmt: skip
    joules = sum(
        100 * shares[job] * (end - start)
        for job, start, end in ran.select("job_id", "start_s", "end_s").rows()
    )
    assert result.summary()["energy_j"] == pytest.approx(joules)


@settings(max_examples=examples(60))
@given(data=st.data(), strategy=st.sampled_from(ANY_STRATEGY))
def test_every_job_runs_once_at_one_cluster_whatever_is_moved_staged_or_limited(
    data: st.DataObject, strategy: str
) -> None:
    sizes = data.draw(st.lists(st.integers(2, 8), min_size=2, max_size=3))
    workload = data.draw(drawn.simple_workloads(nodes=max(sizes), max_jobs=40))
    several = facility(
        *(
            {
                "nodes": size,
                "policy": data.draw(
                    st.sampled_from(("fcfs+easy", "sjf+none", "fcfs+conservative"))
                ),
                "factor": data.draw(st.sampled_from((1, 0.5, 2))),
                "max_queued": data.draw(st.sampled_from((None, 1, 3))),
                "power_w": 1,
            }
            for size in sizes
        ),
        staging=data.draw(st.sampled_from((0, 5))),
    )
    options: dict[str, Any] = {"move_every_s": data.draw(st.sampled_from((0, 7)))}
    options["move_gain_s"] = 1
    if strategy in ("sgs-t", "sgs(wait)"):
        options["knows"] = data.draw(st.sampled_from(("oracle", "walltime", "like-jobs")))
        options["samples"] = data.draw(st.sampled_from((0, 2)))
    if strategy == "sgs-t" and not options["samples"]:
        options["batch"] = data.draw(st.sampled_from((1, 3)))
        options["window_s"] = data.draw(st.sampled_from((0, 20)))
    result = FacilitySimulation(several, workload, parse_strategy(strategy, **options)).run()
    table = result.jobs
    assert table["job_id"].to_list() == workload.job_id.tolist()
    assert set(table["state"]) <= {"completed", "walltime"}
    assert sum(len(one.jobs) for one in result.clusters.values()) == len(workload)
    factor = {c.name: c.factor_of("any") for c in several.clusters}
    run = np.minimum(workload.runtime_ms, workload.walltime_ms) / 1000
    expected = run * np.array([factor[name] for name in table["cluster"]])
    assert np.allclose(table["end_s"] - table["start_s"], expected)
    used_at_most(result)


@settings(max_examples=examples(40))
@given(workload=drawn.simple_workloads(nodes=8, max_jobs=30))
def test_sgs_t_forecasts_the_last_jobs_turnaround_exactly(workload: Workload) -> None:
    workload = exact(workload)
    two = facility({"nodes": 8}, {"nodes": 8, "factor": 2, "policy": "sjf+easy"}, staging=3)
    last = {
        knows: simulate_facility(two, workload, parse_strategy("sgs-t", knows=knows)).jobs.row(
            -1, named=True
        )
        for knows in ("oracle", "walltime")
    }
    for job in last.values():
        assert job["forecast_end_s"] == job["end_s"]
    assert last["oracle"]["cluster"] == last["walltime"]["cluster"]


@settings(max_examples=examples(40))
@given(
    workload=drawn.simple_workloads(nodes=4, max_jobs=30),
    knows=st.sampled_from(("oracle", "walltime")),
)
def test_identical_clusters_share_a_stream_of_twins_equally(workload: Workload, knows: str) -> None:
    """Each job comes twice: the second goes where the first did not."""
    pairs = workload.take(np.repeat(np.arange(len(workload)), 2))
    pairs = pairs.replace(job_id=np.arange(len(pairs)))
    two = facility({"nodes": 4}, {"nodes": 4})
    for strategy in (
        parse_strategy("sgs-t", knows=knows),
        parse_strategy("least-loaded"),
        parse_strategy("round-robin"),
    ):
        result = simulate_facility(two, pairs, strategy)
        first, second = (one.jobs for one in result.clusters.values())
        timing = ["submit_s", "start_s", "end_s", "nodes"]
        assert first.select(timing).equals(second.select(timing))
        assert result.utilization_spread in (None, pytest.approx(0))


@pytest.mark.parametrize(
    ("strategy", "busy", "empty"),
    [
        ("shortest-queue", "c0", "c1"),
        ("most-free", "c1", "c1"),
        ("least-loaded", "c0", "c1"),
        ("always(c0)", "c0", "c0"),
        ("always(c1)", "c1", "c1"),
    ],
)
def test_where_a_job_goes_by_queues_free_nodes_and_work_ahead(
    strategy: str, busy: str, empty: str
) -> None:
    """c0 is full, and nobody waits there; c1 is half free, and one waits for all of it."""
    workload = jobs(
        submit_s=[0, 0, 0, 10],
        runtime_s=[1000, 4000, 4000, 50],
        walltime_s=[1000, 4000, 4000, 50],
        nodes=[4, 4, 8, 1],
        user=Category.of(["a", "b", "b", "x"]),
    )
    kinds = [{"name": name, "user": name} for name in "abx"]
    two = facility(
        {"nodes": 4, "kinds": ["a", "x"]}, {"nodes": 8, "kinds": ["b", "x"]}, kinds=kinds
    )
    table = simulate_facility(two, workload, strategy).jobs
    assert table["cluster"].to_list() == ["c0", "c1", "c1", busy]
    # Where all is equal, the one with less work for each node.
    alone = simulate_facility(two, workload.take(np.array([3])), strategy).jobs
    assert alone["cluster"].to_list() == [empty]


def test_siloed_is_each_cluster_alone() -> None:
    rng = np.random.default_rng(3)
    size = 200
    workload = jobs(
        submit_s=np.sort(rng.integers(0, 4000, size)),
        runtime_s=rng.integers(1, 300, size),
        walltime_s=rng.integers(100, 400, size),
        nodes=rng.integers(1, 9, size),
        user=Category.of(rng.integers(0, 2, size)),
    )
    two = facility(
        {"nodes": 8, "policy": "wfp+easy"},
        {"nodes": 16, "factor": 3},
        origin={"by": "user", "clusters": {"0": "c0", "1": "c1"}},
    )
    result = simulate_facility(two, workload, "siloed")
    here = workload.user.codes == 0
    alone = Simulation(workload.take(here), Cluster.uniform(nodes=8), "wfp").run()
    assert (
        result.clusters["c0"]
        .jobs.select("job_id", "start_s")
        .equals(alone.jobs.select("job_id", "start_s"))
    )
    slower = workload.take(~here)
    slower = slower.replace(runtime_ms=slower.runtime_ms * 3, walltime_ms=slower.walltime_ms * 3)
    alone = Simulation(slower, Cluster.uniform(nodes=16)).run()
    assert result.clusters["c1"].jobs["start_s"].equals(alone.jobs["start_s"])
    assert result.summary()["jobs_away_from_origin"] == 0


def test_a_kind_of_job_runs_only_where_it_may_and_as_fast_as_it_does_there() -> None:
    workload = jobs(
        submit_s=[0, 0, 0],
        runtime_s=[100, 100, 100],
        walltime_s=[200, 200, 200],
        user=Category.of(["p", "p", "t"]),
        per_node={"gpus": [1, 0, 0]},
    )
    two = facility(
        {"nodes": 1, "factor": {"theirs": 0.25}},
        {"nodes": 8, "kinds": ["cpu", "theirs"], "factor": {"cpu": 4}},
        kinds=[
            {"name": "gpu", "gpus": True},
            {"name": "theirs", "user": "t"},
            {"name": "cpu"},
        ],
    )
    table = simulate_facility(two, workload, parse_strategy("sgs-t", knows="oracle")).jobs
    assert table["kind"].to_list() == ["gpu", "cpu", "theirs"]
    # The GPU job holds c0 till 100 s; a CPU job ends there at 200 s, at c1 at 400 s.
    assert table["cluster"].to_list() == ["c0", "c0", "c1"]
    assert table["end_s"].to_list() == [100, 200, 100]


def test_a_predicted_runtime_is_as_long_as_the_cluster_is_slow() -> None:
    workload = jobs(
        submit_s=[0, 1, 1],
        runtime_s=[10, 90, 90],
        walltime_s=[10, 1000, 100],
        predicted={"runtime_s": [np.nan, 150, np.nan]},
    )
    slow = facility({"nodes": 1, "factor": 2, "policy": "sjf+easy"})
    # The second job is predicted to run 300 s there, and the third one has a limit of 200 s.
    assert simulate_facility(slow, workload, "random").jobs["start_s"].to_list() == [0, 200, 20]


def test_utilization_is_that_of_the_whole_run_also_where_jobs_come_late_or_never() -> None:
    workload = jobs(submit_s=[100, 250], runtime_s=[200, 50], nodes=[2, 2])
    three = facility({"nodes": 4}, {"nodes": 2}, {"nodes": 8})
    result = simulate_facility(three, workload, "round-robin")
    assert result.jobs["cluster"].to_list() == ["c0", "c1"]
    summary = result.summary()
    assert [summary[f"utilization_c{i}"] for i in range(3)] == [0.5, 0.25, 0]
    assert summary["utilization_spread"] == 0.5
    assert result.weeks["span_s"].to_list() == [200] * 3


def test_the_oracle_sees_a_job_that_ends_early_and_the_honest_does_not() -> None:
    workload = jobs(submit_s=[0, 0, 10], runtime_s=[20, 300, 50], walltime_s=[1000, 400, 50])
    two = facility({"nodes": 1}, {"nodes": 1})
    where = {
        knows: simulate_facility(
            two, workload, parse_strategy("sgs-t", knows=knows, tie_break="first")
        )
        for knows in ("oracle", "walltime")
    }
    assert where["oracle"].jobs["cluster"].to_list() == ["c0", "c1", "c0"]
    assert where["walltime"].jobs["cluster"].to_list() == ["c0", "c1", "c1"]
    assert where["oracle"].summary()["mean_forecast_error_s"] == 0


def test_recent_runs_of_like_jobs_correct_walltimes() -> None:
    size = 12
    workload = jobs(
        submit_s=[*range(0, 1000, 100), 1000, 1001],
        runtime_s=[10] * size,
        walltime_s=[100] * size,
    )
    result = simulate_facility(
        facility({"nodes": 1}, {"nodes": 1}), workload, parse_strategy("sgs-t", knows="like-jobs")
    )
    forecast = (result.jobs["forecast_end_s"] - result.jobs["start_s"]).to_list()
    assert forecast[0] == 100  # nothing known yet
    assert forecast[-1] == 10


def test_staging_delays_a_job_and_keeps_it_at_home_when_that_is_sooner() -> None:
    workload = jobs(submit_s=[0, 0, 0], runtime_s=[100] * 3, user=Category.of(["c0", "c0", "c0"]))
    about: dict[str, Any] = {"origin": {"by": "user"}}
    near = simulate_facility(facility({"nodes": 1}, {"nodes": 1}, staging="30s", **about), workload)
    assert near.jobs["cluster"].to_list() == ["c0", "c1", "c0"]
    assert near.jobs["start_s"].to_list() == [0, 30, 100]
    assert near.jobs["wait_s"].to_list() == [0, 30, 100]
    far = simulate_facility(facility({"nodes": 1}, {"nodes": 1}, staging="10m", **about), workload)
    assert far.jobs["cluster"].to_list() == ["c0"] * 3


def test_a_full_queue_sends_jobs_elsewhere_and_holds_them_when_all_are_full() -> None:
    workload = jobs(submit_s=[0] * 6, runtime_s=[1000] * 6)
    limited = facility({"nodes": 1, "max_queued": 2}, {"nodes": 1, "max_queued": 1, "factor": 9})
    result = simulate_facility(limited, workload, "user(1)")
    assert result.jobs["placed_s"].to_list() == [0, 0, 0, 600, 600, 1200]
    assert result.jobs["cluster"].to_list() == ["c0", "c0", "c1", "c0", "c1", "c0"]
    per_user = facility({"nodes": 1, "max_queued_per_user": 1}, {"nodes": 1, "factor": 9})
    workload = workload.replace(user=Category.of(["a", "a", "b", "b", "c", "c"]))
    result = simulate_facility(per_user, workload, "user(1)")
    assert result.jobs["cluster"].to_list() == ["c0", "c1"] * 3


def test_jobs_held_by_a_queue_that_stays_full_are_canceled_or_wait() -> None:
    used_up = {"decays": False, "used_minutes": {"nodes": 3}}
    cluster = Cluster(name="a", nodes=[{"name": "n", "count": 2}], limits=[used_up])
    workload = Workload.build(
        submit_s=[0, 1, 2, 2, 2], runtime_s=[100, 100, 5, 5, 5], nodes=[2, 2, 1, 1, 3],
        cancel_s=[-1, -1, 3, -1, -1],
    )  # fmt: skip
    full = Facility(name="f", clusters=[{"name": "a", "machine": cluster, "max_queued": 1}])
    states = simulate_facility(full, workload, "least-loaded").jobs["state"].to_list()
    assert states == ["completed", "waiting", "cancelled", "waiting", "rejected"]


def test_an_idle_peer_pulls_only_what_it_starts_at_once() -> None:
    workload = jobs(
        submit_s=[0] * 4,
        runtime_s=[5000, 100, 100, 100],
        nodes=[2, 2, 2, 1],
        user=Category.of(["c0"] * 4),
    )
    two = facility({"nodes": 2}, {"nodes": 2}, origin={"by": "user"})
    result = simulate_facility(two, workload, "peer")
    assert result.jobs["start_s"].to_list() == [0, 600, 1200, 1800]
    assert result.jobs["cluster"].to_list() == ["c0", "c1", "c1", "c1"]
    assert result.jobs["moves"].to_list() == [0, 1, 1, 1]


def test_no_job_is_moved_where_moving_is_not_asked_for_though_held_ones_are_looked_at_again() -> (
    None
):
    facility = Facility.model_validate(
        {"clusters": [{"name": "a", "nodes": 4, "max_queued": 1}, {"name": "b", "nodes": 4}]}
    )
    workload = generate("poisson", jobs=200, nodes=4, seed=3)
    result = simulate_facility(facility, workload, "sgs-t")
    assert result.jobs["moves"].sum() == 0


def test_a_waiting_job_is_moved_when_another_cluster_becomes_free_early() -> None:
    workload = jobs(submit_s=[0, 0, 1], runtime_s=[1000, 10, 100], walltime_s=[1000, 2000, 100])
    two = facility({"nodes": 1}, {"nodes": 1})
    stays = simulate_facility(two, workload, parse_strategy("sgs-t"))
    moved = simulate_facility(
        two, workload, parse_strategy("sgs-t", move_every_s=60, move_gain_s=60)
    )
    assert stays.jobs["start_s"].to_list() == [0, 0, 1000]
    assert moved.jobs["start_s"].to_list() == [0, 0, 60]
    assert moved.jobs["moves"].to_list() == [0, 0, 1]
    assert moved.summary()["moves"] == 1


def test_jobs_of_a_window_are_placed_together_by_the_least_sum() -> None:
    """One by one, the long job takes the fast cluster from the three short ones."""
    workload = jobs(
        submit_s=[0, 0, 0, 0], runtime_s=[100, 90, 90, 90], walltime_s=[100, 90, 90, 90]
    )
    two = facility({"nodes": 1}, {"nodes": 1, "factor": 1.5})
    greedy = simulate_facility(two, workload, parse_strategy("sgs-t"))
    tree = simulate_facility(two, workload, parse_strategy("sgs-t", batch=4))
    assert tree.jobs["turnaround_s"].sum() < greedy.jobs["turnaround_s"].sum()
    waiting = jobs(submit_s=[1, 3], runtime_s=[10, 10])
    windowed = simulate_facility(two, waiting, parse_strategy("sgs-t", batch=2, window_s=5))
    assert windowed.jobs["placed_s"].to_list() == [5, 5]


def test_the_same_seed_gives_the_same_choices_and_another_others() -> None:
    workload = jobs(submit_s=np.arange(60), runtime_s=[100] * 60)
    two = facility({"nodes": 4}, {"nodes": 4})
    for strategy in ("random", "user(0.5)"):
        a, b, other = (
            simulate_facility(two, workload, strategy, seed=seed).jobs["cluster"].to_list()
            for seed in (1, 1, 2)
        )
        assert a == b != other
    sampled = parse_strategy("sgs(total)", samples=3)
    first, second = (simulate_facility(two, workload, sampled).jobs for _ in range(2))
    assert first["start_s"].equals(second["start_s"])


def test_a_job_that_fits_nowhere_is_rejected_and_counted() -> None:
    workload = jobs(submit_s=[0, 0], runtime_s=[10, 10], nodes=[9, 1])
    result = simulate_facility(facility({"nodes": 4}, {"nodes": 8}), workload)
    assert result.jobs["state"].to_list() == ["rejected", "completed"]
    assert result.summary()["jobs_nowhere"] == 1


def test_the_threshold_of_bounded_slowdowns_is_an_option() -> None:
    workload = jobs(submit_s=[0, 0], runtime_s=[20, 40], nodes=[4, 4])
    result = simulate_facility(facility({"nodes": 4}), workload)
    plain, other = result.summary(), result.summary(tau_s=120)
    assert "tau_s" not in plain
    assert plain["mean_bounded_slowdown"] == (1 + 60 / 40) / 2
    assert (other["mean_bounded_slowdown"], other["tau_s"]) == (1, 120)


def test_a_user_can_cancel_during_data_transfer() -> None:
    workload = jobs(
        submit_s=[0, 0], runtime_s=[50, 50], cancel_s=[-1, 20], user=Category.of(["c0", "c0"])
    )
    two = facility({"nodes": 1}, {"nodes": 1}, staging=30, origin={"by": "user"})
    result = simulate_facility(two, workload)
    assert result.jobs["state"].to_list() == ["completed", "cancelled"]
    assert result.jobs["start_s"].to_list() == [0, None]


def test_strategies_can_be_compared_and_are_distinguishable() -> None:
    workload = jobs(submit_s=[0, 0, 5], runtime_s=[10, 10, 10])
    two = facility({"nodes": 1}, {"nodes": 1})
    chosen = ["random", parse_strategy("sgs-t", knows="oracle"), parse_strategy("sgs-t")]
    found = compare_strategies(two, workload, chosen)
    assert list(found) == ["random", "sgs-t [oracle]", "sgs-t [walltime]"]
    with pytest.raises(ConfigError, match="'random' is listed twice; list it once"):
        compare_strategies(two, workload, ["random", "random"])
    with pytest.raises(ConfigError, match="no strategy"):
        compare_strategies(two, workload, [])


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("sgs-x", UnknownNameError, "Did you mean 'sgs-t'"),
        ("sgs(waiting)", UnknownNameError, "Did you mean 'wait'"),
        ("sgs(wait+wait)", ConfigError, "wait is listed twice; list it once"),
        ("sgs(0*wait)", ConfigError, "above 0"),
        ("sgs(2 wait)", ConfigError, "WEIGHT"),
        ("user(2)", ConfigError, "from 0 to 1"),
        ("user(x)", ConfigError, "'x' is not a number"),
        ("random(3)", ConfigError, "takes no argument"),
    ],
)
def test_a_wrong_strategy_says_what_would_be_right(
    text: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        parse_strategy(text)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"knows": "all"}, "unknown knowledge"),
        ({"tie_break": "coin"}, "unknown tie rule"),
        ({"batch": 0}, "at least 1"),
        ({"batch": 2, "samples": 1}, "look-ahead tree"),
        ({"horizon_s": 0}, "above 0"),
    ],
)
def test_a_wrong_option_says_what_would_be_right(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=says):
        parse_strategy("sgs-t", **options)


def test_siloed_needs_an_origin_and_dependencies_are_rejected() -> None:
    from hpctwin.model import Dependencies, DependencyKind

    workload = jobs(submit_s=[0, 0], runtime_s=[10, 10])
    two = facility({"nodes": 1}, {"nodes": 1})
    with pytest.raises(ConfigError, match="origin of job 1 is unknown"):
        simulate_facility(two, workload, "siloed")
    depends = Dependencies.of([(1, 0, DependencyKind.AFTEROK, 0)])
    with pytest.raises(WorkloadError, match="dependencies are not supported"):
        simulate_facility(two, workload.replace(dependencies=depends))


def test_exchanged_arguments_are_reported_and_a_path_of_a_trace_is_a_workload(
    tmp_path: Path,
) -> None:
    small, one = jobs(submit_s=[0, 1], runtime_s=[5, 5]), facility({"nodes": 2})
    with pytest.raises(
        ConfigError, match=r"is not a facility; give a Facility first and then the workload"
    ):
        compare_strategies(small, one, ["sgs-t"])  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="is not a workload; give a Workload"):
        simulate_facility(one, one)  # type: ignore[arg-type]
    write_workload(small, tmp_path / "jobs.csv")
    assert simulate_facility(one, tmp_path / "jobs.csv").jobs.height == 2
