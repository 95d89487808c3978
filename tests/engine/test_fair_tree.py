"""Fair shares as a tree: by hand, as sshare prints them, and against the plain reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings

from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.errors import ConfigError
from hpctwin.model import Category
from hpctwin.policies import formula
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import cases, compared, name_of
from tests.limit_strategies import with_tree
from tests.reference.share_tree import TreeUsage

POLICIES: list[dict[str, Any]] = [{"backfill": "slurm"}, {"backfill": "easy"}]
ORDER = formula("0 - fairshare")
NODES = 4 * 10**6


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(150))
@given(
    case=cases(with_tree(strategies.clusters(maintenance=False)), strategies.workloads, ("fcfs",))
)
def test_users_are_ranked_as_the_reference_ranks_them(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    made: list[TreeUsage] = []

    class Kept(TreeUsage):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.reference.share_tree.TreeUsage", Kept)
        try:
            compared(policy=policy, **{**case, "order": ORDER})
        except AssertionError:
            # Who is as good as another by rounding alone may be ranked either way.
            assume(not made[0].unclear)
            raise


def factors(accounts: list[dict[str, Any]], used: dict[tuple[str, str], int]) -> dict[str, float]:
    """Fair-share factors of users who have used so many node-seconds of late."""
    pairs = [(account["name"], user) for account in accounts for user in account.get("users", ())]
    past = [pair for pair in pairs if used.get(pair)]
    # Two jobs more, of which the second waits: factors are reckoned while somebody does.
    rows = [*past, pairs[0], pairs[0]]
    workload = Workload.build(
        submit_s=[0] * len(past) + [10, 10],
        runtime_s=[1] * len(past) + [5, 5],
        nodes=[used[pair] for pair in past] + [NODES] * 2,
        account=Category.of([account for account, _ in rows]),
        user=Category.of([user for _, user in rows]),
    )
    cluster = Cluster.uniform(
        NODES, accounts=accounts, fairshare={"kind": "tree", "half_life": "36500d", "every": 1}
    )
    simulation = Simulation(workload, cluster, order=ORDER)
    simulation.advance(10)
    rank = simulation.state["rank"].tolist()
    return {f"{account}/{user}": rank[i] for i, (account, user) in enumerate(pairs)}


def users(count: int, share: float = 1) -> dict[str, float]:
    return {f"u{number}": share for number in range(count)}


def test_factors_are_those_that_a_sites_sshare_printed() -> None:
    # `sshare -l` in the handbook of EPFL's SCITAS: of 300 users, an account with 23 shares, of which 11 users
    # have used nothing (0.290000) and three 344, 351 and 681 of 1376 (0.253333, 0.250000, 0.246667).
    accounts = [
        {"name": "ahead", "share": 64, "users": users(213)},
        {"name": "here", "share": 1, "users": {**users(13), "other": 10}},
        {"name": "behind", "share": 64, "users": users(73)},
    ]
    used = {("here", "u5"): 344, ("here", "u7"): 351, ("here", "u8"): 681, ("behind", "u0"): 10**6}
    found = factors(accounts, used)
    assert {round(found[f"here/u{n}"], 6) for n in (0, 1, 2, 3, 4, 6, 9, 12)} == {0.29}
    assert [round(found[f"here/u{n}"], 6) for n in (5, 7, 8)] == [0.253333, 0.25, 0.246667]


def test_all_users_of_a_better_account_come_before_those_of_a_worse_one() -> None:
    accounts = [
        {"name": "a", "share": 1, "users": {"heavy": 1, "light": 1}},
        {"name": "b", "share": 9, "users": {"heavy": 1, "light": 1}},
    ]
    used = {("a", "heavy"): 90, ("a", "light"): 10, ("b", "heavy"): 99, ("b", "light"): 1}
    assert factors(accounts, used) == {
        "b/light": 1.0,
        "b/heavy": 0.75,
        "a/light": 0.5,
        "a/heavy": 0.25,
    }


def test_accounts_that_tie_are_ranked_as_one() -> None:
    accounts = [
        {"name": "a", "users": {"x": 3, "y": 1}},
        {"name": "b", "users": {"x": 1, "y": 1}},
    ]
    used = dict.fromkeys((("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")), 2)
    assert factors(accounts, used) == {"a/x": 1.0, "b/x": 0.75, "b/y": 0.75, "a/y": 0.25}


def test_a_user_as_good_as_an_account_has_the_rank_of_its_best_user() -> None:
    accounts = [
        {"name": "a", "share": "parent", "users": {"x": 1}},
        {"name": "b", "share": 1, "users": {"y": 1, "z": 1}},
    ]
    used = {("a", "x"): 10, ("b", "y"): 10}
    # What is below `a` counts as below the root: its user stands beside account `b`.
    assert factors(accounts, used) == {"a/x": 1.0, "b/z": 1.0, "b/y": 1 / 3}


def test_a_share_of_nothing_comes_last_and_that_of_the_parent_first() -> None:
    accounts = [{"name": "a", "users": {"none": 0, "some": 1, "first": "parent"}}]
    used = {("a", "some"): 1, ("a", "first"): 100}
    assert factors(accounts, used) == {"a/first": 1.0, "a/some": 2 / 3, "a/none": 1 / 3}


def test_ranks_stay_for_a_period() -> None:
    # Three users begin alike; who runs is behind only when the next period has begun.
    workload = Workload.build(
        submit_s=[0, 1, 1, 100, 100],
        runtime_s=[10, 10, 10, 10, 10],
        nodes=[4] * 5,
        user=Category.of(["x", "x", "y", "x", "y"]),
        account=Category.of(["a"] * 5),
    )
    accounts = [{"name": "a", "users": {"x": 1, "y": 1}}]
    started = {}
    for every in (1, 1000):
        tree = {"kind": "tree", "every": every, "half_life": "1d"}
        cluster = Cluster.uniform(4, accounts=accounts, fairshare=tree)
        result = simulate(workload, cluster, order=ORDER, backfill="none")
        started[every] = result.jobs["start_s"].to_list()[:3]
    assert started == {1: [0, 20, 10], 1000: [0, 10, 20]}


@pytest.mark.parametrize(
    ("accounts", "fairshare", "said"),
    [
        ([], {"kind": "tree", "shares": {"a": 1}}, "from 'accounts:'"),
        ([{"name": "a", "share": -1}], {"kind": "tree"}, "accounts"),
        ([{"name": "a", "share": "mother"}], {"kind": "tree"}, "parent"),
        ([{"name": "a", "parent": "c"}], {"kind": "tree"}, "account 'a': unknown parent 'c'"),
        (
            [{"name": "root", "share": 2}],
            {"kind": "tree"},
            "is the root of all accounts; it can have users, but",
        ),
        ([{"name": "a", "users": {"x": 1}}], {}, "only kind: tree reads"),
    ],
)
def test_an_invalid_tree_is_reported(accounts: Any, fairshare: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Cluster.uniform(2, accounts=accounts, fairshare=fairshare)
