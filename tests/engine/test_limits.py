"""Limits of users, accounts and QOS: by hand, and against the plain reference."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.errors import ConfigError
from hpctwin.model import Category
from hpctwin.simulation import explain
from hpctwin.simulation.lowering.workload import limits_in
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import cases, compared, name_of
from tests.limit_strategies import limited, limited_in_use, slowed

POLICIES: list[dict[str, Any]] = [
    {"backfill": "slurm"},
    {"backfill": "easy"},
    {"backfill": "conservative"},
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "pack", "settings": {"depth": 3, "patience": 20}},
    {"backfill": "pbs", "settings": {"strict_ordering": True, "backfill_depth": 2}},
]


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(120))
@given(
    case=cases(
        limited(strategies.clusters(cleanup=True)),
        strategies.workloads,
        ("fcfs", "sjf", "wfp", "largest", "multifactor"),
    )
)
def test_limits_hold_as_the_reference_has_them(
    policy: dict[str, Any], case: dict[str, Any]
) -> None:
    if case["overrun"] == "continue":
        case["overrun"] = "terminate"
    compared(policy=policy, **case)


@pytest.mark.parametrize("policy", POLICIES[:4], ids=name_of)
@settings(max_examples=examples(60))
@given(
    case=cases(
        limited(strategies.shared_clusters()),
        strategies.shared_workloads,
        ("fcfs", "sjf", "largest"),
    )
)
def test_limits_hold_where_nodes_are_shared(policy: dict[str, Any], case: dict[str, Any]) -> None:
    if case["overrun"] == "continue":
        case["overrun"] = "terminate"
    compared(policy=policy, **case)


def compared_slowed(policy: dict[str, Any], case: dict[str, Any], factor: int) -> None:
    """As `compared`, with jobs that take so many times as long."""
    workload = slowed(case["workload"], factor)
    case |= {"overrun": "terminate", "workload": workload, "expected_ms": None}
    compared(policy=policy, **case)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
@settings(max_examples=examples(80))
@given(
    case=cases(
        limited_in_use(strategies.clusters(cleanup=True)),
        strategies.workloads,
        ("fcfs", "sjf", "wfp", "fairshare"),
    ),
    factor=st.sampled_from((3, 10, 40)),
)
def test_limits_of_use_hold_as_the_reference_has_them(
    policy: dict[str, Any], case: dict[str, Any], factor: int
) -> None:
    compared_slowed(policy, case, factor)


@pytest.mark.parametrize("policy", POLICIES[:2], ids=name_of)
@settings(max_examples=examples(40))
@given(
    case=cases(
        limited_in_use(strategies.shared_clusters()),
        strategies.shared_workloads,
        ("fcfs", "sjf", "fairshare"),
    ),
    factor=st.sampled_from((3, 10, 40)),
)
def test_limits_of_use_hold_where_nodes_are_shared(
    policy: dict[str, Any], case: dict[str, Any], factor: int
) -> None:
    compared_slowed(policy, case, factor)


def jobs(**columns: Any) -> Workload:
    size = max(len(column) for column in columns.values())
    given = {"submit_s": [0] * size, "runtime_s": [10] * size, "nodes": [1] * size, **columns}
    labels = {
        name: Category.of(given[name])
        for name in ("user", "account", "qos", "partition")
        if name in given
    }
    return Workload.build(**{**given, **labels})


def starts(workload: Workload, *limits: dict[str, Any], **cluster: Any) -> list[float | None]:
    made = Cluster.uniform(8, limits=limits, **cluster)
    return simulate(workload, made).jobs["start_s"].to_list()


def test_each_user_of_a_qos_has_a_limit_of_running_jobs() -> None:
    workload = jobs(user=["ann", "ann", "ann", "ben"], qos=["normal"] * 4)
    assert starts(workload, {"qos": "normal", "per": "user", "jobs": 2}) == [0, 0, 10, 0]


def test_an_account_counts_the_accounts_below_it() -> None:
    workload = jobs(account=["lattice", "optics", "physics", "chemistry"], nodes=[2, 2, 2, 2])
    accounts = [
        {"name": "physics"},
        {"name": "chemistry"},
        {"name": "lattice", "parent": "physics"},
        {"name": "optics", "parent": "physics"},
    ]
    found = starts(workload, {"account": "physics", "nodes": 4}, accounts=accounts)
    assert found == [0, 0, 10, 0]


def test_a_qos_setting_overrides_that_of_the_account() -> None:
    workload = jobs(
        account=["physics"] * 4, qos=["high", "high", "normal", "normal"], nodes=[2, 2, 2, 2]
    )
    limits = ({"account": "physics", "nodes": 4}, {"qos": "high", "nodes": 8})
    # Jobs of the QOS count under the account's limit, but are not kept back by it.
    assert starts(workload, *limits) == [0, 0, 10, 10]


def test_a_users_limit_replaces_that_of_the_account() -> None:
    workload = jobs(user=["ann", "ann", "ben", "ben"], account=["physics"] * 4)
    limits = (
        {"account": "physics", "per": "user", "jobs": 1},
        {"account": "physics", "user": "ann", "jobs": 2},
    )
    assert starts(workload, *limits) == [0, 0, 0, 10]


def test_a_limit_of_partitions_holds_besides_those_of_qos_and_of_others() -> None:
    workload = jobs(
        user=["ann", "ann", "ann", "ben"],
        qos=["high"] * 4,
        partition=["long", "long", "short", "short"],
    )
    cluster = {"partitions": [{"name": "long"}, {"name": "short"}]}
    of_qos = {"qos": "high", "jobs": 3}
    both = {"partitions": ["long", "short"], "per": "user", "jobs": 2}
    assert starts(workload, of_qos, both, **cluster) == [0, 0, 10, 0]
    own = {"partitions": ["short", "long"], "user": "ann", "jobs": 1}
    assert starts(workload, of_qos, both, own, **cluster) == [0, 10, 20, 0]
    # Of other partitions than all of these, it is another limit, which holds too.
    own = {"partitions": ["long"], "user": "ann", "jobs": 3}
    assert starts(workload, of_qos, both, own, **cluster) == [0, 0, 10, 0]
    everywhere = {"partitions": "all", "nodes": 1}
    assert starts(workload, of_qos, everywhere, **cluster) == [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"partitions": ["lnog"], "jobs": 1}, "partition 'lnog'. Did you mean 'long'?"),
        ({"partitions": [], "jobs": 1}, "partitions"),
        ({"partitions": ["long"], "qos": "high", "jobs": 1}, "remove qos"),
        ({"partitions": ["long"], "account": "a", "user": "b", "jobs": 1}, "give only one of them"),
        ({"partitions": ["long"], "account": "a", "per": "account", "jobs": 1}, "of account 'a'; remove it"),
        ({"partitions": ["long"], "account": "a", "per": "user", "jobs": 1}, "remove per: user"),
        ({"account": "a", "per": "account", "jobs": 1}, "per: account is only valid for limits of a QOS"),
        ({"partitions": ["long"]}, "the limit is empty"),
    ],
)  # fmt: skip
def test_an_invalid_limit_of_partitions_is_rejected(limit: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        Cluster.checked(
            {
                "nodes": [{"name": "n", "count": 2}],
                "partitions": [{"name": "long"}],
                "limits": [limit],
            },
            "here",
        )


def test_the_reason_for_waiting_in_partitions_is_reported_in_words() -> None:
    workload = jobs(user=["ann"] * 3, partition=["long"] * 3, walltime_s=[10, 10, 99])
    limits = [
        {"partitions": ["long"], "per": "user", "jobs": 1},
        {"partitions": "all", "per": "job", "walltime": 50},
        {"partitions": "all", "per": "user", "submitted": 2},
    ]
    cluster = Cluster.uniform(8, limits=limits, partitions=[{"name": "long"}])
    result = simulate(workload, cluster)
    assert result.rejection_reasons == {
        "were submitted when the limit of pending and running jobs was reached "
        "(submitted jobs of each user in all partitions)": 1
    }
    simulation = Simulation(workload, cluster)
    told = " ".join(moment.text for moment in explain(simulation, "2"))
    assert "limit reached: jobs of each user in long" in told


def test_a_job_that_waits_for_a_limit_holds_back_no_other() -> None:
    workload = jobs(user=["ann", "ann", "ben"], qos=["normal"] * 3, nodes=[4, 8, 4])
    assert starts(workload, {"qos": "normal", "per": "user", "jobs": 1}) == [0, 10, 0]


def test_one_submission_too_many_is_rejected_and_reported() -> None:
    workload = jobs(user=["ann"] * 4, qos=["normal"] * 4, submit_s=[0, 0, 0, 15])
    made = Cluster.uniform(8, limits=[{"qos": "normal", "per": "user", "submitted": 2}])
    result = simulate(workload, made)
    assert result.jobs["state"].to_list() == ["completed", "completed", "rejected", "completed"]
    assert result.rejection_reasons == {
        "were submitted when the limit of pending and running jobs was reached "
        "(QOSMaxSubmitJobPerUserLimit)": 1
    }


def test_a_job_that_could_never_start_waits_forever_or_is_denied() -> None:
    workload = jobs(qos=["normal", "strict"], walltime_s=[7200, 7200])
    limits = [
        {"qos": name, "per": "job", "walltime": "1h", "deny": name == "strict"}
        for name in ("normal", "strict")
    ]
    result = simulate(workload, Cluster.uniform(8, limits=limits))
    assert result.jobs["state"].to_list() == ["waiting", "rejected"]
    assert result.rejection_reasons == {"are denied by a limit (QOSMaxWallDurationPerJobLimit)": 1}


def test_minutes_that_are_left_let_a_job_in_as_they_run_down() -> None:
    workload = jobs(
        account=["physics"] * 2, runtime_s=[600, 60], walltime_s=[600, 300], nodes=[1, 1]
    )
    # 10 minutes are left of the first one, which leaves room for 5 more when 5 of them are over.
    assert starts(workload, {"account": "physics", "minutes": {"nodes": 10}}) == [0, 300]


def test_a_user_at_a_use_limit_waits_until_the_use_has_decayed() -> None:
    workload = jobs(account=["physics"] * 2, runtime_s=[600, 60], submit_s=[0, 700], nodes=[2, 1])
    share = {"half_life": "10m", "every": "1m"}
    limit = {"account": "physics", "used_minutes": {"nodes": 10}}
    # 20 node-minutes by 600 s, as they decay 14.4; below 10 some 317 s after that, looked at each minute.
    assert starts(workload, limit, fairshare=share) == [0, 960]
    assert starts(workload, {**limit, "decays": False}, fairshare=share) == [0, None]
    # Whoever runs when it is reached runs on.
    assert starts(
        workload, {"account": "physics", "used_minutes": {"nodes": 15}}, fairshare=share
    ) == [
        0,
        700,
    ]


def factored(factors: dict[str, float], **fields: Any) -> dict[str, Any]:
    return {"fairshare": {"half_life": "36500d", "factors": factors, **fields}}


def test_use_counts_as_often_as_the_factor_of_the_qos_says() -> None:
    used = {"account": "root", "used_minutes": {"nodes": 4}, "decays": False}
    two = {"submit_s": [0, 120], "runtime_s": [120, 10], "nodes": [1, 1], "qos": ["q", "q"]}
    workload = jobs(**two, walltime_s=[120, 10])
    # 2 node-minutes have been used, which count half, once, or twice.
    assert starts(workload, used, **factored({"q": 0.5})) == [0, 120]
    assert starts(workload, used, **factored({"other": 2})) == [0, 120]
    assert starts(workload, used, **factored({"q": 2})) == [0, None]
    wall = {"qos": "q", "used_minutes": {"wall": 4}, "decays": False}
    assert starts(workload, wall, **factored({"q": 1.75})) == [0, 120]
    assert starts(workload, wall, **factored({"q": 2})) == [0, None]


def test_a_job_without_usage_is_not_held_back_by_the_use_of_others() -> None:
    workload = jobs(runtime_s=[120, 10, 10], submit_s=[0, 120, 120], qos=["a", "a", "free"])
    used = {"account": "root", "used_minutes": {"nodes": 2}, "decays": False}
    assert starts(workload, used, **factored({"free": 0})) == [0, None, 120]
    # … but by the time that others ran, as there.
    wall = {"account": "root", "used_minutes": {"wall": 2}, "decays": False}
    assert starts(workload, wall, **factored({"free": 0})) == [0, None, None]


def test_what_is_left_of_walltimes_counts_so_too_and_ones_own_walltime_if_that_is_said() -> None:
    workload = jobs(runtime_s=[600, 60], walltime_s=[600, 60], qos=["q", "q"])
    left = {"account": "root", "minutes": {"nodes": 21}}
    assert starts(workload, left, **factored({"q": 2})) == [0, 0]
    # With its own walltime twice, 20 and 2 minutes are more than 21 until a minute has gone by.
    both = factored({"q": 2}, safe_factors=["q"])
    assert starts(workload, left, **both) == [0, 60]
    alone = {"qos": "q", "per": "job", "walltime": "10m"}
    assert starts(workload, alone, **factored({"q": 2})) == [0, 0]
    assert starts(workload, alone, **both) == [None, 0]


def test_a_safe_factor_for_an_unknown_qos_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"'lwo' has no factor.*Did you mean 'low'\?"):
        Cluster.uniform(2, fairshare={"factors": {"low": 0.5}, "safe_factors": ["lwo"]})


def test_use_is_forgotten_when_it_is_reset() -> None:
    workload = jobs(account=["physics"] * 2, runtime_s=[600, 60], submit_s=[0, 700], nodes=[2, 1])
    limit = {"account": "physics", "used_minutes": {"wall": 10}, "decays": False}
    assert starts(workload, limit, fairshare={"resets": [800]}) == [0, 800]
    assert starts(workload, limit, fairshare={"resets": [300]}) == [0, 700]


def test_a_safe_limit_lets_only_those_start_that_can_run_for_their_walltime() -> None:
    workload = jobs(
        account=["physics"] * 3,
        runtime_s=[60, 600, 60],
        walltime_s=[300, 600, 300],
        submit_s=[0, 0, 1],
    )
    limit = {"account": "physics", "used_minutes": {"nodes": 12}, "decays": False, "safe": True}
    # 5 and 10 minutes are too many together; two of 5 are not, and when each has taken one, 10 are left.
    assert starts(workload, limit) == [0, 61, 1]
    # Of the time that jobs ran, Slurm does not look at how long those may still run that do.
    assert starts(workload, {**limit, "used_minutes": {"wall": 12}}) == [0, 0, 1]


def test_a_job_without_gpus_does_not_wait_for_minutes_of_gpus() -> None:
    workload = jobs(account=["physics"] * 2)
    made = Cluster.model_validate(
        {
            "nodes": [{"name": "a", "count": 4, "gpus": 2}, {"name": "b", "count": 4, "gpus": 0}],
            "partitions": [{"name": "a", "groups": ["a"]}, {"name": "b", "groups": ["b"]}],
            "limits": [{"account": "physics", "used_minutes": {"gpus": 0}}],
        }
    )
    found = simulate(workload.replace(partition=Category.of(["a", "b"])), made)
    assert found.jobs["start_s"].to_list() == [None, 0]


def test_use_continues_in_a_fork_and_in_parts_of_a_run(tmp_path: Any) -> None:
    workload = jobs(
        account=["physics", "optics"] * 6,
        runtime_s=[90] * 12,
        submit_s=list(range(0, 1200, 100)),
        nodes=[2] * 12,
    )
    limits = [
        {"account": "physics", "used_minutes": {"nodes": 5}},
        {"account": "root", "used_minutes": {"nodes": 8}},
    ]
    made = Cluster.uniform(4, limits=limits, fairshare={"half_life": "5m", "every": "1m"})
    whole = simulate(workload, made).jobs["start_s"].to_list()
    assert whole != simulate(workload, Cluster.uniform(4)).jobs["start_s"].to_list()
    simulation = Simulation(workload, made)
    simulation.advance(450)
    simulation.save(tmp_path / "half.hpctwin")
    for half in (simulation.fork(), Simulation.load(tmp_path / "half.hpctwin")):
        half.advance()
        assert half.result().jobs["start_s"].to_list() == whole


def test_cores_of_whole_nodes_are_all_that_the_nodes_have() -> None:
    workload = jobs(account=["physics"] * 3)
    limit = {"account": "physics", "cores": 128}
    made = Cluster.model_validate(
        {"nodes": [{"name": "thin", "count": 8, "cores": 64}], "limits": [limit]}
    )
    assert simulate(workload, made).jobs["start_s"].to_list() == [0, 0, 10]


def test_a_fork_and_a_saved_simulation_know_what_is_held(tmp_path: Any) -> None:
    workload = jobs(user=["ann"] * 4, qos=["normal"] * 4)
    made = Cluster.uniform(8, limits=[{"qos": "normal", "per": "user", "jobs": 1}])
    whole = simulate(workload, made).jobs["start_s"].to_list()
    simulation = Simulation(workload, made)
    simulation.advance(15)
    simulation.save(tmp_path / "half.hpctwin")
    for half in (simulation.fork(), Simulation.load(tmp_path / "half.hpctwin")):
        half.advance()
        assert half.result().jobs["start_s"].to_list() == whole == [0, 10, 20, 30]


def test_the_reason_for_waiting_has_slurms_name() -> None:
    workload = jobs(account=["physics"] * 3, qos=["normal"] * 3, walltime_s=[60, 60, 7200])
    limits = [
        {"account": "physics", "jobs": 1},
        {"qos": "normal", "per": "job", "walltime": "1h"},
    ]
    made = Cluster.uniform(8, limits=limits)
    for row, reason in ((1, "AssocGrpJobsLimit"), (2, "QOSMaxWallDurationPerJobLimit")):
        told = explain(Simulation(workload, made), str(workload.job_id[row]))
        text = " ".join(moment.text for moment in told)
        assert f"limit reached: {reason}" in text or row == 2
    assert limits_in(workload, made).why.tolist() == ["", "", "QOSMaxWallDurationPerJobLimit"]


def test_minutes_that_are_left_go_with_walltimes_that_end_jobs() -> None:
    made = Cluster.uniform(8, limits=[{"account": "root", "minutes": {"nodes": 5}}])
    with pytest.raises(ConfigError, match="overrun 'continue'"):
        Simulation(jobs(nodes=[1]), made, overrun="continue")


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({}, "the limit is empty"),
        ({"qos": "a", "account": "b", "jobs": 1}, "give only one of them"),
        ({"account": "phyics", "jobs": 1}, "Did you mean 'physics'?"),
        ({"qos": "a", "walltime": 60}, "set per: job"),
        ({"qos": "a", "per": "job", "jobs": 1}, "count several"),
        (
            {"account": "physics", "user": "ann", "per": "user", "jobs": 1},
            "of user 'ann'; remove it",
        ),
        ({"account": "physics", "deny": True}, "only valid for a QOS"),
        ({"qos": "a", "jobs": -1}, "0"),
        ({"qos": "a", "minutes": {"cpus": 1}}, "cores"),
        ({"qos": "a", "per": "user", "used_minutes": {"cores": 1}}, "remove per"),
        ({"qos": "a", "jobs": 1, "safe": True}, "only valid with 'used_minutes'"),
        ({"qos": "a", "used_minutes": {"cpus": 1}}, "cores"),
    ],
)
def test_a_meaningless_limit_is_reported(limit: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        Cluster.uniform(8, limits=[limit], accounts=[{"name": "physics"}])


@pytest.mark.parametrize(
    ("resets", "said"),
    [((5, 5), "later than the one before"), ((-5, 5), "0 or more"), (("soon",), "soon")],
)
def test_invalid_resets_are_reported(resets: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Cluster.uniform(8, fairshare={"resets": resets})


def test_accounts_in_a_cycle_are_reported() -> None:
    with pytest.raises(ConfigError, match="own ancestor"):
        Cluster.uniform(2, accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}])
