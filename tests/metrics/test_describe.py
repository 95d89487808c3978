"""A workload's description."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from hpctwin import Workload
from hpctwin.metrics.description import describe
from hpctwin.model import Category, Dependencies, DependencyKind
from hpctwin.report.tables import description_tables


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


def test_the_cluster_is_given_or_stated_or_as_large_as_the_widest_job() -> None:
    assert describe(small()).figures["nodes_are"] == "the widest job"
    assert describe(small().replace(nodes_hint=12)).figures["nodes"] == 12
    assert describe(small(), 99).figures["nodes"] == 99


def test_a_description_is_plain_json_even_of_an_empty_workload() -> None:
    empty = Workload.build(submit_s=[], runtime_s=[], nodes=[])
    for workload in (small(), empty):
        told = describe(workload).to_dict()
        assert json.loads(json.dumps(told))["jobs"] == len(workload)


def shared() -> Workload:
    return Workload.build(
        submit_s=[0, 100, 1000],
        runtime_s=[100, 200, 300],
        nodes=[1, 1, 2],
        user=Category.of(["a", "b", "a"]),
        chunks={
            "tasks": [4, 2, 0],
            "cores_per_task": [2, 1, 0],
            "memory_gb_per_task": [8, 0, 0],
            "gpus_per_task": [0, 1, 0],
        },
        per_node={"cores": [0, 0, 16]},
    )


def test_jobs_that_share_nodes_are_described_by_their_tasks_and_cores() -> None:
    found = describe(shared())
    figures = found.figures
    assert figures["jobs_with_tasks"] == 2
    assert figures["nodes"] is None
    assert not {"offered_load", "node_hours"} & set(figures)
    assert figures["core_hours"] == pytest.approx((8 * 100 + 2 * 200 + 32 * 300) / 3600)
    assert figures["gpu_hours"] == pytest.approx(2 * 200 / 3600)
    assert figures["offered_cores"] == pytest.approx(10_800 / 1000)
    assert figures["offered_memory_gb"] == pytest.approx(32 * 100 / 1000)
    assert found.distributions["tasks"]["mean"] == 3
    assert found.distributions["cores_per_task"]["max"] == 2
    assert found.distributions["cores"]["max"] == 8
    assert found.distributions["nodes"]["mean"] == 2
    assert [(row["cores"], row["jobs"]) for row in found.by_width] == [(2, 1), (8, 1), (32, 1)]
    assert found.top_users[0]["user"] == "a"
    assert found.top_users[0]["core_hours"] == pytest.approx((800 + 9600) / 3600)


def test_a_description_of_tasks_fits_80_columns() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    for table in description_tables(describe(shared())):
        console.print(table)
    text = out.getvalue()
    assert "cores up to" in text
    assert "offered cores" in text
    assert "…" not in text
    assert re.search(r"tasks +a task", text)
    assert max(map(len, text.splitlines())) <= 80
