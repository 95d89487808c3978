"""The pass ``pbs`` on small cases that can be reckoned by hand, and queues with a depth of their own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, simulate
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.policies import formula, parse_policy
from tests import strategies
from tests.by_hand import jobs, labels
from tests.engine.examples import examples
from tests.engine.test_against_reference import PBS, cases, compared, name_of

TWO = Cluster.model_validate(
    {
        "nodes": [{"name": "n", "count": 4}],
        "partitions": [{"name": "low"}, {"name": "high", "priority": 10}],
    }
)


def starts(policy: str, cluster: Cluster, *rows: tuple[int, int, int, str]) -> list[float]:
    """Start times of jobs, each its nodes, time to run, submit time and partition."""
    workload = jobs(
        *((submit, runtime, runtime, nodes) for nodes, runtime, submit, _ in rows),
        partition=labels(*(partition for *_, partition in rows)),
    )
    return simulate(workload, cluster, policy).jobs["start_s"].to_list()


WIDE_BETWEEN = (
    (3, 100, 0, "low"),  # runs
    (4, 10, 1, "low"),  # a top job, from 100 on
    (1, 200, 2, "low"),  # would delay it
    (1, 50, 3, "low"),  # would not
)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", [0, 202, 2, 100]),
        ("strict_ordering=yes", [0, 100, 110, 3]),
        ("strict_ordering=yes,backfill_depth=0", [0, 100, 110, 110]),
    ],
)
def test_top_jobs_are_not_delayed_where_the_order_is_strict(setting, expected):
    assert starts(f"fcfs+pbs:{setting}", TWO, *WIDE_BETWEEN) == expected


def test_each_of_the_top_jobs_keeps_its_time():
    rows = (
        (2, 100, 0, "low"),
        (4, 10, 1, "low"),  # from 100 on
        (3, 10, 2, "low"),  # from 110 on
        (2, 109, 3, "low"),  # ends at 112: would delay the first
        (1, 97, 4, "low"),
    )
    assert starts("fcfs+pbs:strict_ordering=yes,backfill_depth=2", TWO, *rows)[1:3] == [100, 110]


def test_a_queue_of_higher_priority_goes_first_and_round_robin_takes_one_of_each():
    rows = [(4, 10, 0, "low")] + [(4, 10, 1, "low")] * 2 + [(4, 10, 2, "high")] * 2
    assert starts("fcfs+pbs", TWO, *rows) == [0, 30, 40, 10, 20]
    assert starts("fcfs+pbs:by_queue=no", TWO, *rows) == [0, 10, 20, 30, 40]
    equal = TWO.model_copy(
        update={"partitions": tuple(p.model_copy(update={"priority": 0}) for p in TWO.partitions)}
    )
    assert starts("fcfs+pbs", equal, *rows) == [0, 10, 20, 30, 40]
    # At each end the queues are gone through anew, from the first one named.
    assert starts("fcfs+pbs:round_robin=yes", equal, *rows) == [0, 10, 20, 30, 40]
    narrow = [(4, 10, 0, "low")] + [(2, 10, 1, "low")] * 2 + [(2, 10, 2, "high")] * 2
    assert starts("fcfs+pbs:round_robin=yes", equal, *narrow) == [0, 10, 20, 10, 20]
    assert starts("fcfs+pbs", equal, *narrow) == [0, 10, 10, 20, 20]


def test_a_job_that_a_limit_keeps_back_is_a_top_job_from_when_it_is_let():
    one_each = Cluster.model_validate(
        {
            "nodes": [{"name": "n", "count": 4}],
            "partitions": [{"name": "q", "max_jobs_per_user": 1}],
        }
    )
    workload = jobs(
        (0, 100, 100, 1),
        (1, 10, 10, 4),  # eve's second: from 100 on, and the one top job
        (2, 50, 50, 1),
        (3, 200, 200, 1),  # would delay it
        (4, 10, 10, 4),
        partition=labels(*["q"] * 5),
        user=labels("eve", "eve", "ann", "ben", "cat"),
    )
    for setting, expected in (
        ("strict_ordering=yes", [0, 100, 2, 110, 310]),
        ("strict_ordering=yes,backfill_depth=0", [0, 100, 110, 110, 310]),
        ("strict_ordering=no", [0, 203, 2, 3, 213]),
    ):
        run = simulate(workload, one_each, f"fcfs+pbs:{setting}")
        assert run.jobs["start_s"].to_list() == expected, setting


def test_a_cycle_comes_when_nothing_else_happens():
    # A narrow job that has waited for 25 s goes first, which until the first one ends only a cycle sees.
    order = "submit - 1000*(wait >= 25)*(nodes < 3)"
    rows = ((2, 100, 0, "low"), (4, 5, 1, "low"), (2, 500, 20, "low"))
    for iteration, found in (("10m", 100), ("10s", 50)):
        text = f"{order}+pbs:strict_ordering=yes,scheduler_iteration={iteration}"
        assert starts(text, TWO, *rows)[2] == found


def test_a_job_under_the_threshold_of_the_formula_is_not_run():
    rows = ((1, 10, 0, "low"), (2, 10, 0, "low"), (4, 10, 0, "low"))
    nobody = "pbs:nodes if nodes > 1 else -1e999"
    assert starts(f"{nobody}+pbs:strict_ordering=yes", TWO, *rows) == [None, 10, 0]
    # Beneath it at first: each cycle looks again, though nothing else happens.
    later = "pbs:wait if wait > 25 else -1e999"
    assert starts(f"{later}+pbs:scheduler_iteration=20s", TWO, *rows) == [40, 40, 50]


@pytest.mark.parametrize("policy", PBS, ids=name_of)
@settings(max_examples=examples(60))
@given(
    case=cases(strategies.clusters(outages=False, cleanup=True), strategies.workloads, ("fcfs",)),
    least=st.integers(0, 9),
)
def test_a_job_under_a_threshold_is_skipped_until_time_lifts_it(
    policy: dict[str, Any], case: dict[str, Any], least: int
) -> None:
    compared(policy=policy, **{**case, "order": formula(f"nodes if wait >= {least} else 1e999")})


@pytest.mark.parametrize("policy", PBS, ids=name_of)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_queues_with_a_depth_of_their_own_are_counted_apart(
    policy: dict[str, Any], data: st.DataObject
) -> None:
    case = data.draw(cases(strategies.clusters(), strategies.workloads, ("fcfs", "sjf", "wfp")))
    cluster = case["cluster"]
    case["cluster"] = cluster.model_copy(
        update={
            "partitions": tuple(
                one.model_copy(
                    update={"backfill_depth": data.draw(st.sampled_from((None, 0, 1, 2)))}
                )
                for one in cluster.partitions
            )
        }
    )
    compared(policy=policy, **case)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("fcfs+pbs:strict_orderin=yes", UnknownNameError, "strict_ordering"),
        ("fcfs+pbs:backfill_depth=-1", ConfigError, "a whole number, at least 0"),
        ("fcfs+pbs:backfill_depth=many", ConfigError, "a whole number, at least 0"),
        ("fcfs+pbs:scheduler_iteration=0", ConfigError, "at least 1 ms"),
        ("fcfs+pbs:scheduler_iteration=soon", ConfigError, "soon"),
        ("fcfs+pbs:strict_ordering=maybe", ConfigError, "it must be yes or no"),
        ("fcfs+pbs:by_queue=yes,by_queue=no", ConfigError, "twice"),
        ("fcfs+pbs/sjf", ConfigError, "candidates need"),
        ("pbs:gold*2+pbs", Exception, "unknown field 'gold'"),
        ("fcfs+pb", UnknownNameError, "pbs"),
    ],
)
def test_wrong_settings_are_reported_in_one_line(text, error, said):
    with pytest.raises(error, match=said) as caught:
        parse_policy(text)
    assert "\n" not in str(caught.value)
