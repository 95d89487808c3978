"""Simulations as a user handles them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, compare, make_policy, ordering, replay, simulate
from hpctwin.engine.state import layout
from hpctwin.errors import ConfigError, PolicyError, SimulationError, WorkloadError
from hpctwin.model import Category
from hpctwin.sweep import fair_starts


def random_workload(jobs: int = 200, seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload.build(
        submit_s=np.sort(rng.integers(0, 4000, jobs)),
        runtime_s=rng.integers(0, 300, jobs),
        walltime_s=rng.integers(1, 400, jobs),
        nodes=rng.integers(1, 17, jobs),
        user=Category.of(rng.integers(1, 6, jobs)),
    )


MACHINE = Cluster.uniform(nodes=32)


def test_the_summary_and_the_jobs_agree() -> None:
    result = simulate(random_workload(), MACHINE, order="wfp", backfill="easy")
    summary = result.summary()
    assert summary["mean_wait_s"] == pytest.approx(result.jobs["wait_s"].mean())
    assert summary["policy"] == "wfp+easy"
    assert summary["engine_s"] > 0
    assert (result.jobs["wait_s"] == result.jobs["start_s"] - result.jobs["submit_s"]).all()
    assert result.series["used_nodes"].max() <= 32


def test_progress_is_reported_and_changes_nothing() -> None:
    shares: list[float] = []
    shown = Simulation(random_workload(), MACHINE, "sjf").run(shares.append)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert shown.jobs.equals(simulate(random_workload(), MACHINE, "sjf").jobs)


@pytest.mark.parametrize("policy", ["fcfs+easy", "wfp+conservative", "fairshare+easy@random"])
def test_a_saved_simulation_continues_as_if_it_had_not_been_saved(
    policy: str, tmp_path: Path
) -> None:
    from hpctwin import parse_policy

    cluster = Cluster.uniform(nodes=32, failures={"mtbf": "1d", "mttr": "1h", "seed": 3})
    simulation = Simulation(random_workload(), cluster, policy=parse_policy(policy), seed=5)
    simulation.advance(1500)
    simulation.save(tmp_path / "saved.npz")
    loaded = Simulation.load(tmp_path / "saved.npz")
    assert loaded.now_s == simulation.now_s
    assert loaded.run().jobs.equals(simulation.run().jobs)
    assert loaded.result().capacity.equals(simulation.result().capacity)
    assert list(tmp_path.iterdir()) == [tmp_path / "saved.npz"]


def test_a_saved_simulation_can_continue_under_another_policy(tmp_path: Path) -> None:
    simulation = Simulation(random_workload(), MACHINE, "fcfs")
    simulation.advance(1000)
    simulation.save(tmp_path / "saved.npz")
    other = make_policy("sjf", "conservative")
    loaded = Simulation.load(tmp_path / "saved.npz", policy=other)
    assert loaded.run().jobs.equals(simulation.fork(other).run().jobs)


def test_files_that_are_no_saved_simulation_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=r"none\.npz: file does not exist"):
        Simulation.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(SimulationError, match="not a simulation saved by hpctwin"):
        Simulation.load(tmp_path / "text.npz")
    whole = tmp_path / "whole.npz"
    Simulation(random_workload(), MACHINE).save(whole)
    (tmp_path / "half.npz").write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(SimulationError, match="not a simulation saved by hpctwin"):
        Simulation.load(tmp_path / "half.npz")


def _resaved(path: Path, to: Path, about: dict[str, object], **arrays: object) -> Path:
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files}
    known = json.loads(kept["about"].tobytes()) | about
    kept["about"] = np.frombuffer(json.dumps(known).encode(), np.uint8)
    kept |= arrays
    np.savez(to, **{name: array for name, array in kept.items() if array is not None})
    return to


def test_a_simulation_of_another_version_is_rejected_by_its_format_and_version(
    tmp_path: Path,
) -> None:
    whole, other = tmp_path / "whole.npz", tmp_path / "other.npz"
    Simulation(random_workload(), MACHINE).save(whole)
    # What another version has besides, or lacks, does not matter then.
    _resaved(whole, other, {"format": 99, "version": "9.9"}, sim_state=None)
    told = r"format 99, written by hpctwin 9.9; this is hpctwin .*, which reads format 20: use the"
    with pytest.raises(SimulationError, match=told):
        Simulation.load(other)
    for form in ({"sim_state": None}, {"sim_state": np.zeros(3)}, {"workload": None}):
        _resaved(whole, other, {"version": "9.9"}, **form)
        with pytest.raises(
            SimulationError, match=r"file of hpctwin 9\.9, whose format differs"
        ) as said:
            Simulation.load(other)
        assert "\n" not in str(said.value)
    _resaved(whole, other, {"cluster": {"nodez": 3}, "version": "9.9"})
    with pytest.raises(SimulationError, match=r"file of hpctwin 9\.9, whose format differs"):
        Simulation.load(other)


def test_an_ordering_that_gives_nan_is_an_error_that_names_the_job() -> None:
    with pytest.raises(PolicyError, match="NaN for job"):
        simulate(random_workload(), MACHINE, "wait*0/(wait*0)")


def test_an_ordering_that_raises_stops_the_simulation_and_says_so() -> None:
    @ordering
    def refuses(now, job):  # type: ignore[no-untyped-def]
        if job.nodes > 8:
            raise ValueError("too wide")
        return job.submit

    simulation = Simulation(random_workload(), MACHINE, refuses)
    with pytest.raises(PolicyError, match="too wide"):
        simulation.run()
    with pytest.raises(SimulationError, match="cannot continue"):
        simulation.advance()


def test_a_placement_that_needs_identity_cannot_be_taken_up_midway() -> None:
    simulation = Simulation(random_workload(), MACHINE)
    with pytest.raises(SimulationError, match="track_nodes=True"):
        simulation.fork(make_policy(placement="random"))


def test_a_fork_without_arrivals_runs_its_queue_empty() -> None:
    simulation = Simulation(random_workload(), MACHINE)
    simulation.advance(1000)
    submitted = simulation.snapshot()["submitted"]
    ahead = simulation.fork(arrivals=False)
    ahead.advance()
    assert ahead.snapshot()["waiting"] == ahead.snapshot()["running"] == []
    assert ahead.result().jobs["end_s"].is_not_null().sum() == submitted


@pytest.mark.parametrize("placement", ["first-fit", "contiguous", "random", "spread", "best-fit"])
def test_no_node_ever_has_two_jobs_and_each_job_has_its_nodes(placement: str) -> None:
    simulation = Simulation(random_workload(), MACHINE, placement=placement, track_nodes=True)
    result = simulation.run()
    assert result.node_map is not None
    busy_until = np.zeros(32)
    for row in result.node_map.sort("start_s", "end_s", maintain_order=True).iter_rows(named=True):
        nodes = slice(row["first_node"], row["first_node"] + row["count"])
        if row["end_s"] > row["start_s"]:
            assert (busy_until[nodes] <= row["start_s"]).all()
            busy_until[nodes] = row["end_s"]
    given = result.node_map.group_by("job_id").agg(pl.col("count").sum())
    asked = result.jobs.join(given, on="job_id")
    assert len(asked) == len(result.jobs)
    assert (asked["nodes"] == asked["count"]).all()


def test_placement_by_count_does_not_change_when_jobs_start() -> None:
    plain = simulate(random_workload(), MACHINE).jobs
    for placement in ("contiguous", "random", "spread"):
        assert simulate(random_workload(), MACHINE, placement=placement).jobs.equals(plain)


def test_contiguous_placement_makes_fewer_pieces_than_random() -> None:
    pieces = {
        placement: len(simulate(random_workload(), MACHINE, placement=placement).node_map)
        for placement in ("contiguous", "random")
    }
    assert pieces["contiguous"] < pieces["random"] / 2


def test_fair_starts_are_those_of_a_schedule_without_later_arrivals() -> None:
    workload = random_workload(60)
    fair = fair_starts(Simulation(workload, MACHINE, "sjf"))
    for row in (0, 17, 59):
        alone = workload.take(np.flatnonzero(workload.submit_ms <= workload.submit_ms[row]))
        expected = simulate(alone, MACHINE, "sjf").jobs["start_s"][row]
        assert fair[row] == expected
    fcfs = Simulation(workload, MACHINE, "fcfs", "none")
    assert np.array_equal(fair_starts(fcfs), fcfs.result().jobs["start_s"].to_numpy())


def test_replay_starts_jobs_as_recorded_and_reports_each_conflict() -> None:
    workload = Workload.build(
        submit_s=[0, 0, 5, 20],
        runtime_s=[10, 10, 10, 10],
        nodes=[3, 2, 1, 1],
        recorded_start_s=[0, 5, 4, -1],
    )
    replayed = replay(workload, Cluster.uniform(nodes=4))
    assert replayed.result.jobs["start_s"].to_list() == [0, 5, 4, None]
    assert replayed.result.jobs["end_s"].to_list() == [10, 15, 14, None]
    assert replayed.without_start == 1
    found = replayed.conflicts.select("time_s", "job_id", "what").rows()
    assert found == [(4.0, 3, "submit"), (5.0, 2, "nodes")]


def test_replay_without_recorded_starts_says_so() -> None:
    with pytest.raises(WorkloadError, match="no recorded start times"):
        replay(random_workload(), MACHINE)


def test_comparing_gives_each_policys_own_result() -> None:
    workload = random_workload()
    results = compare(workload, MACHINE, ["fcfs+easy", "wfp+none"], threads=2)
    assert list(results) == ["fcfs+easy", "wfp+none"]
    assert results["wfp+none"].jobs.equals(simulate(workload, MACHINE, "wfp", "none").jobs)
    with pytest.raises(ConfigError, match=r"'wfp\+easy' is listed twice"):
        compare(workload, MACHINE, ["wfp", "wfp+easy"])
    with pytest.raises(ConfigError, match="policies to compare are missing"):
        compare(workload, MACHINE, [])


def test_parts_that_do_not_go_together_are_rejected() -> None:
    workload = random_workload()
    with pytest.raises(ConfigError, match="overrun is 'stop'"):
        simulate(workload, MACHINE, overrun="stop")
    with pytest.raises(ConfigError, match=r"expected_s has shape \(3,\)"):
        simulate(workload, MACHINE, expected_s=[1, 2, 3])
    licensed = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], resources={"licence": [1]})
    with pytest.raises(ConfigError, match="add it under 'resources:'"):
        simulate(licensed, MACHINE)
    split = Cluster.uniform(nodes=4, partitions=[{"name": "a"}])
    with pytest.raises(WorkloadError, match="names no partition"):
        simulate(workload, split)


def test_a_fork_of_a_busy_cluster_takes_no_longer_than_needed_and_shares_nothing() -> None:
    simulation = Simulation(random_workload(), MACHINE)
    simulation.advance(500)
    fork = simulation.fork()
    for name in layout.STATE:
        assert not np.shares_memory(simulation.state[name], fork.state[name])
    for name in layout.KNOWN:
        assert not simulation.state[name].flags.writeable
        assert not fork.state[name].flags.writeable


def test_a_policy_is_made_once_for_all_forks_and_for_each_restart_with_as_many_jobs() -> None:
    simulation = Simulation(random_workload(), MACHINE)
    other = make_policy("wfp+easy")
    made = simulation.fork(other).compiled_policy()
    assert simulation.fork(other).compiled_policy() is made
    assert simulation.with_workload(random_workload(seed=1)).fork(other).compiled_policy() is made
    assert simulation.compiled_policy() is not made


def test_jobs_that_want_for_other_rules_have_their_policy_made_for_them() -> None:
    nobodys = random_workload().replace(user=Category.unknown(200))
    simulation = Simulation(random_workload(), MACHINE, order="fairshare")
    alone = simulation.with_workload(nobodys)
    assert alone.compiled_policy() is not simulation.compiled_policy()
    one, same = alone.run().jobs, simulate(nobodys, MACHINE, order="fairshare").jobs
    assert one["start_s"].to_list() == same["start_s"].to_list()


def test_fields_that_only_a_later_policy_uses_exist_when_needed() -> None:
    rng = np.random.default_rng(1)
    jobs = 60
    workload = Workload.build(
        submit_s=np.zeros(jobs),
        runtime_s=rng.integers(1, 300, jobs),
        nodes=rng.integers(1, 17, jobs),
        priority=rng.permutation(jobs),
    )

    def by_risk(now: float, job: object) -> float:
        return job.risk - job.priority / 1000  # type: ignore[attr-defined]

    risk = np.round(rng.uniform(size=jobs), 1)
    plain = Simulation(workload, MACHINE, "fcfs+easy", risk=risk)
    for order in ("-priority", by_risk):
        asked = Simulation(workload, MACHINE, order, risk=risk)
        later = plain.fork(asked.policy)
        assert later.run().jobs.equals(asked.run().jobs)
    assert not plain.run().jobs.equals(asked.result().jobs)


def test_importing_the_package_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, hpctwin; from hpctwin.cli.app import app; "
        "heavy = {'numba', 'polars', 'matplotlib', 'numpy', 'pydantic'} & set(sys.modules); "
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("policy", ["fcfs+conservative", "wfp+easy"])
def test_one_event_time_with_a_queue_longer_than_its_buffer_is_one_event_time(
    policy: str,
) -> None:
    rng = np.random.default_rng(0)
    size = 1500
    jobs = Workload.build(
        submit_s=np.zeros(size),
        runtime_s=(runtime := rng.integers(100, 100_000, size)),
        walltime_s=runtime + rng.integers(0, 100_000, size),
        nodes=rng.integers(1, 64, size),
    )
    one, whole = Simulation(jobs, 512, policy), Simulation(jobs, 512, policy)
    assert one.advance(instants=1) == "stepped"
    whole.advance(0.0)
    assert one.column("start").tolist() == whole.column("start").tolist()
    assert (one.column("start") == 0).sum() > 10


@pytest.mark.parametrize(
    "cluster",
    [
        MACHINE,
        Cluster.uniform(nodes=32, failures={"mtbf": "1d", "mttr": "1h", "seed": 3}),
        Cluster.uniform(nodes=32, active_w=200, idle_w=60, off_s=60, on_s=120),
    ],
    ids=["plain", "failing", "powered"],
)
def test_under_another_policy_it_equals_a_new_one(cluster: Cluster) -> None:
    workload = random_workload()
    expected = {"expected_s": workload.runtime_ms / 1000}
    policies = ["fcfs+easy", "wfp+conservative", "fairshare+easy@random", "sjf+none"]
    policies += ["fcfs+easy~psus:5m"] if cluster.depths else []
    first = Simulation(workload, cluster, "fcfs+easy", **expected)
    for number, policy in enumerate(policies * 2):
        told = first.with_policy(policy, seed=number).finish()
        wanted = Simulation(workload, cluster, policy, seed=number, **expected).finish()
        assert told.jobs.equals(wanted.jobs)
        assert (told.node_map is None) == (wanted.node_map is None)
        assert told.node_map is None or told.node_map.equals(wanted.node_map)
        assert {**told.summary(), "engine_s": 0} == {**wanted.summary(), "engine_s": 0}
        if number == len(policies):
            first.finish()  # and drops what is known of the jobs


@given(st.integers(0, 12), st.sampled_from([None, 0.0, 500.0]), st.booleans())
def test_how_far_a_simulation_has_come_makes_no_difference_to_one_under_another_policy(
    instants: int, until_s: float | None, arrivals: bool
) -> None:
    workload = random_workload()
    first = Simulation(workload, MACHINE, "fcfs+easy@random", seed=1)
    first.advance(until_s, instants=instants)
    told = first.fork(arrivals=arrivals).with_policy("wfp+easy@random", seed=2).run()
    wanted = Simulation(workload, MACHINE, "wfp+easy@random", seed=2).run()
    assert told.jobs.equals(wanted.jobs)
    assert told.node_map is not None
    assert told.node_map.equals(wanted.node_map)


@pytest.mark.parametrize("kind", ["whole", "shared", "power"])
def test_finished_for_good_it_gives_what_a_run_gives(kind: str) -> None:
    jobs, machine, policy = random_workload(), MACHINE, "wfp+easy"
    if kind == "shared":
        jobs = Workload.build(
            submit_s=jobs.submit_ms / 1000,
            runtime_s=jobs.runtime_ms / 1000,
            walltime_s=jobs.walltime_ms / 1000,
            nodes=[1] * len(jobs),
            chunks={"tasks": [3] * len(jobs), "cores_per_task": [2] * len(jobs)},
        )
        machine = Cluster.model_validate({"nodes": [{"name": "n", "count": 32, "cores": 4}]})
    if kind == "power":
        machine = Cluster.uniform(
            nodes=32, active_w=100, idle_w=50, sleep_w=5, off_s=3, off_w=9, on_s=5, on_w=60
        )
        policy += "~psus:1m"
    kept = Simulation(jobs, machine, policy)
    told: list[float] = []
    run, finished = kept.run(), Simulation(jobs, machine, policy).finish(told.append)
    assert finished.jobs.equals(run.jobs)
    same = {"engine_s": None, "instants": None}
    assert {**finished.summary(), **same} == {**run.summary(), **same}
    assert told[-1] == 1.0
    assert kept.fork().result().jobs.equals(run.jobs)
