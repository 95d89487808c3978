"""Workflows of WfCommons, in the forms of its versions; all made by hand here."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from hpctwin import Cluster, simulate
from hpctwin.errors import HpctwinError, TraceError, WorkloadError
from hpctwin.formats import SwfRules, read_workload, write_workload
from hpctwin.metrics import dependency_violations
from hpctwin.model import DependencyKind, Workload
from tests.examples import examples
from tests.formats.test_fuzz import DAMAGE, damaged


def spec(
    name: str, parents: tuple[str, ...] = (), children: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {"name": name[0], "id": name, "parents": list(parents), "children": list(children)}


def ran(name: str, runtime: Any, **more: Any) -> dict[str, Any]:
    return {"id": name, "runtimeInSeconds": runtime, **more}


def diamond() -> dict[str, Any]:
    """Version 1.5: s splits into a1 and a2, which are merged by m."""
    return {
        "name": "diamond",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    spec("s", (), ("a1", "a2")),
                    spec("a1", ("s",), ("m",)),
                    spec("a2", ("s",), ("m",)),
                    spec("m", ("a1", "a2")),
                ],
                "files": [],
            },
            "execution": {
                "makespanInSeconds": 90,
                "executedAt": "2024-05-06T07:08:09+00:00",
                "tasks": [
                    ran("m", 5.5, priority=3),
                    ran("s", 10, coreCount=4, memoryInBytes=2**31),
                    ran("a1", 20.25, coreCount=1),
                    ran("a2", 40, avgCPU=97.1),
                ],
                "machines": [{"nodeName": "n1"}, {"nodeName": "n2"}],
            },
        },
    }


def read(tmp_path: Path, document: Any, **how: Any) -> Workload:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(document))
    return read_workload(path, **how)


def edges_of(workload: Workload) -> set[tuple[str, str]]:
    edges = workload.dependencies
    assert (edges.kind == DependencyKind.AFTEROK).all()
    ids = workload.job_id
    return {(str(ids[job]), str(ids[on])) for job, on in zip(edges.job, edges.on, strict=True)}


DIAMOND = {("a1", "s"), ("a2", "s"), ("m", "a1"), ("m", "a2")}


def test_a_workflow_is_read(tmp_path: Path) -> None:
    w = read(tmp_path, diamond())
    row = {str(name): i for i, name in enumerate(w.job_id)}
    assert set(row) == {"s", "a1", "a2", "m"}
    assert (w.name, w.nodes_hint, w.start_epoch_s) == ("w", 2, 1714979289.0)
    assert w.submit_ms.tolist() == [0] * 4
    assert w.runtime_ms[row["a1"]] == w.walltime_ms[row["a1"]] == 20_250
    assert w.per_node["cores"][row["s"]] == 4
    assert w.per_node["memory_gb"][row["s"]] == 2
    assert w.per_node["cores"][row["a2"]] == 0
    assert w.priority[row["m"]] == 3
    assert edges_of(w) == DIAMOND
    assert w.notes.counts == {"job without walltime, given its run time": 4}


def test_tasks_share_nodes_if_the_rule_says_so(tmp_path: Path) -> None:
    w = read(tmp_path, diamond(), rules=SwfRules(processors="cores"))
    row = {str(name): i for i, name in enumerate(w.job_id)}
    assert not w.per_node
    assert w.chunks["tasks"].tolist() == [1] * 4
    assert w.chunks["cores_per_task"][[row["s"], row["a2"]]].tolist() == [4, 1]
    assert w.chunks["memory_gb_per_task"][row["s"]] == 2
    one_node = Cluster.model_validate({"nodes": [{"name": "a", "count": 1, "cores": 8}]})
    jobs = simulate(w, one_node).jobs
    assert jobs["end_s"].to_numpy().max() == 10 + 40 + 5.5  # both in the middle at once


def test_it_runs_in_order(tmp_path: Path) -> None:
    w = read(tmp_path, diamond())
    jobs = simulate(w, Cluster.uniform(nodes=2), "adaptive", "pack").jobs
    assert dependency_violations(jobs, w.dependencies) == 0
    assert jobs["end_s"].to_numpy().max() == 10 + 40 + 5.5  # the critical path


@pytest.mark.parametrize("drop", ["parents", "children"])
def test_dependencies_may_be_given_on_one_side_only(tmp_path: Path, drop: str) -> None:
    document = diamond()
    for task in document["workflow"]["specification"]["tasks"]:
        task[drop] = []
    assert edges_of(read(tmp_path, document)) == DIAMOND


@pytest.mark.parametrize(
    ("tasks", "runtime"), [("tasks", "runtimeInSeconds"), ("tasks", "runtime"), ("jobs", "runtime")]
)
def test_older_versions_refer_to_names_and_keep_all_in_one_place(
    tmp_path: Path, tasks: str, runtime: str
) -> None:
    one = {"name": "split_1", "id": "1", runtime: 3, "cores": 2, "memory": 1_073_742, "files": []}
    two = {"name": "merge_1", "id": "1", runtime: 4, "parents": ["split_1"], "files": []}
    w = read(tmp_path, {"schemaVersion": "1.3", "workflow": {tasks: [one, two]}})
    assert edges_of(w) == {("merge_1", "split_1")}
    assert sorted(w.runtime_ms) == [3000, 4000]
    assert w.per_node["cores"].max() == 2
    assert w.per_node["memory_gb"].max() == pytest.approx(1, rel=1e-5)


def test_it_is_distinguished_from_other_json_compressed_or_named(tmp_path: Path) -> None:
    path = tmp_path / "w.json.gz"
    path.write_bytes(gzip.compress(json.dumps(diamond()).encode()))
    assert len(read_workload(path)) == 4
    assert len(read_workload(path, format="wfcommons")) == 4
    with pytest.raises(TraceError, match="expected an object with a list 'jobs'"):
        read_workload(path, format="spars")


def broken(tmp_path: Path, change: Any) -> TraceError:
    document = diamond()
    change(
        document["workflow"]["specification"]["tasks"], document["workflow"]["execution"]["tasks"]
    )
    with pytest.raises(TraceError) as error:
        read(tmp_path, document)
    return error.value


def test_errors_name_the_task_the_problem_and_the_remedy(tmp_path: Path) -> None:
    def says(change: Any, *parts: str) -> None:
        text = str(broken(tmp_path, change))
        assert all(part in text for part in parts), text

    says(lambda s, e: e.pop(0), "task m", "runtimeInSeconds is missing")
    says(lambda s, e: e[1].update(runtimeInSeconds=-1), "task s", "a number, 0 or more")
    says(lambda s, e: e[1].update(coreCount="four"), "task s", "'four'")
    says(lambda s, e: s[1].update(id="s"), "task s occurs twice in the file")
    says(lambda s, e: s[1].update(parents="s"), "task a1", "expected a list of tasks")
    says(lambda s, e: s[1].update(id=""), "tasks[1]", "printable text")
    says(lambda s, e: s.append(5), "expected an object")


def test_a_missing_parent_is_named_with_the_chain(tmp_path: Path) -> None:
    error = broken(tmp_path, lambda s, e: s[0].update(parents=["gone"]))
    assert "task s: parents names 'gone'" in str(error)
    assert "(chain m → a1 → s → gone; each waits for the next)" in str(error)


def test_a_cycle_is_reported_by_name(tmp_path: Path) -> None:
    error = broken(tmp_path, lambda s, e: s[0].update(parents=["m"]))
    assert "dependencies form a cycle" in str(error)
    assert "w.json" in str(error)


def test_invalid_tasks_can_be_skipped_and_are_counted(tmp_path: Path) -> None:
    document = diamond()
    document["workflow"]["execution"]["tasks"][2]["runtimeInSeconds"] = None
    w = read(tmp_path, document, skip_invalid=True)
    assert edges_of(w) == {("a2", "s"), ("m", "a2")}
    assert "task a1" in w.notes.skipped[0]
    assert w.notes.counts["dependency on an unknown task, ignored"] == 4


def test_it_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="can only be read"):
        write_workload(read(tmp_path, diamond()), tmp_path / "o.json", format="wfcommons")
    write_workload(read(tmp_path, diamond()), tmp_path / "o.csv")
    assert edges_of(read_workload(tmp_path / "o.csv")) == DIAMOND


@pytest.mark.parametrize("skip_invalid", [False, True])
@settings(max_examples=examples(300))
@given(damage=DAMAGE)
def test_damage_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory,
    skip_invalid: bool,
    damage: list[tuple[str, int, int, bytes]],
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "w.json"
    path.write_bytes(damaged(json.dumps(diamond()).encode(), damage))
    with suppress(HpctwinError):
        read_workload(path, format="wfcommons", skip_invalid=skip_invalid)


ODD = [
    None,
    0,
    -1,
    1.5,
    True,
    "",
    "s",
    "gone",
    10**400,
    [],
    [1],
    ["s"],
    [[]],
    {},
    {"id": "s"},
    [{}],
]


def places(document: Any) -> list[tuple[Any, Any]]:
    """Everything that a document holds, as what holds it and under which key."""
    found: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        one = stack.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one)
        for key, inner in items:
            found.append((one, key))
            if isinstance(inner, dict | list):
                stack.append(inner)
    return found


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:12])
def test_any_value_in_any_place_is_read_or_rejected(tmp_path: Path, value: Any) -> None:
    for place in range(len(places(diamond()))):
        document = diamond()
        holder, key = places(document)[place]
        holder[key] = value
        for skip_invalid in (False, True):
            with suppress(HpctwinError):
                read(tmp_path, document, format="wfcommons", skip_invalid=skip_invalid)
