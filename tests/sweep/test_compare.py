"""Several policies on one workload are what each is alone, with their figures."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, compare, generate, make_policy, ordering
from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.errors import PolicyError

compare_module = importlib.import_module("hpctwin.sweep.compare")

POLICIES = ["fcfs+easy", "wfp+easy", "sjf+none", "smallest+conservative", "fairshare+easy@random"]


@given(st.integers(0, 99), st.integers(1, 4), st.permutations(POLICIES))
def test_each_is_as_if_it_were_simulated_alone(
    seed: int, threads: int, policies: list[str]
) -> None:
    workload, cluster = generate("poisson", jobs=60, nodes=16, seed=seed), Cluster.uniform(nodes=16)
    results = compare(workload, cluster, policies, threads=threads, seed=seed)
    assert list(results) == policies
    for name, result in results.items():
        alone = Simulation(workload, cluster, name, seed=seed).run()
        assert result.jobs.equals(alone.jobs)
        assert {**result.summary(), "engine_s": 0} == {**alone.summary(), "engine_s": 0}


def test_their_figures_are_known_when_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = generate("poisson", jobs=60, nodes=16, seed=1)
    results = compare(workload, 16, ["fcfs+easy", "wfp+easy"])

    def nothing_more(*given: object) -> None:
        raise AssertionError("looked for again")

    monkeypatch.setattr("hpctwin.metrics.summary.summarize_jobs", nothing_more)
    assert all(result.summary()["jobs"] == 60 for result in results.values())


def test_a_policy_that_fails_ends_all_with_its_name() -> None:
    workload = generate("poisson", jobs=60, nodes=16, seed=1)

    @ordering
    def no_number(now: float, job: JobView) -> float:
        return (job.nodes - job.nodes) / (job.nodes - job.nodes)

    policies = ["fcfs+easy", make_policy(no_number, "easy"), "wfp+easy"]
    with pytest.raises(PolicyError, match="'no-number' returned NaN"):
        compare(workload, 16, policies, threads=2)


@given(st.integers(1, 30), st.integers(1, 40_000), st.integers(1, 4))
def test_rounds_have_each_policy_once_and_spread_those_that_take_long(
    policies: int, jobs: int, threads: int
) -> None:
    pool = [make_policy(f"wait*{number}", "easy") for number in range(policies)]
    rounds = compare_module._rounds(pool, jobs, threads)
    assert sorted(id(one) for of_round in rounds for one in of_round) == sorted(map(id, pool))
    # The longest are begun first, each in another round, and none is idle while others have two to run.
    assert [one[0] for one in rounds] == pool[: len(rounds)]
    assert max(map(len, rounds)) * jobs <= compare_module.AT_ONCE or max(map(len, rounds)) == 1
    assert len(rounds) >= min(threads, policies)
