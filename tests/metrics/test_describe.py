"""A workload's description."""

from __future__ import annotations

import json

import pytest

from hpctwin import Workload
from hpctwin.metrics.describe import describe
from hpctwin.model import Category, Dependencies, DependencyKind


def small() -> Workload:
    return Workload.build(
        submit_s=[0, 3600, 7200, 10_000],
        runtime_s=[100, 200, 300, 400],
        walltime_s=[200, 200, 200, 800],
        nodes=[1, 2, 3, 8],
        user=Category.of(["a", "b", "a", None]),
        dependencies=Dependencies.of([(1, 0, DependencyKind.AFTEROK, 0)]),
        start_epoch_s=0.0,
    )


def test_the_figures_are_those_worked_out_by_hand() -> None:
    found = describe(small(), nodes=10)
    assert found.figures["offered_load"] == pytest.approx((100 + 400 + 900 + 3200) / (10 * 10_000))
    assert found.figures["users"] == 2
    assert found.figures["share_serial"] == 0.25
    assert found.figures["share_power_of_two"] == 0.75
    assert found.figures["share_past_walltime"] == 0.25
    assert found.figures["share_with_dependencies"] == 0.25
    assert found.figures["first_submit"] == "1970-01-01T00:00:00+00:00"
    assert found.distributions["runtime_s"]["median"] == 250
    assert found.distributions["walltime_accuracy"]["max"] == 1.5
    assert found.by_hour[:3] == [1, 1, 2]
    assert [(row["nodes"], row["jobs"]) for row in found.by_width] == [
        (1, 1),
        (2, 1),
        (4, 1),
        (8, 1),
    ]
    assert found.top_users[0] == {"user": "a", "jobs": 2, "node_hours": pytest.approx(1000 / 3600)}


def test_the_machine_is_what_is_given_else_stated_else_the_widest_job() -> None:
    assert describe(small()).figures["nodes_are"] == "the widest job"
    assert describe(small().replace(nodes_hint=12)).figures["nodes"] == 12
    assert describe(small(), 99).figures["nodes"] == 99


def test_a_description_is_plain_json_even_of_an_empty_workload() -> None:
    empty = Workload.build(submit_s=[], runtime_s=[], nodes=[])
    for workload in (small(), empty):
        told = describe(workload).to_dict()
        assert json.loads(json.dumps(told))["jobs"] == len(workload)
