"""Two futures: of the cluster as it is, and with a change."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import yaml

from hpctwin import Cluster
from hpctwin.errors import HpctwinError
from hpctwin.model.text import compact
from hpctwin.twin.what_if.pool import Scene
from hpctwin.web.views.views import Bar, Change
from hpctwin.web.views.whatif import node_sets, select_nodes


def ask(page: Any, **change: Any) -> Any:
    return page.source.what_if(Change.model_validate(change))


def test_without_a_change_both_futures_are_the_same_and_those_of_the_forecasts(make: Any) -> None:
    page = make()
    answer = ask(page)
    assert answer.as_is == answer.changed
    with page.source.looking() as stands:
        waits = {i for i, job in stands.core.mirror.jobs.items() if job.start_s is None}
        said = {i: one.start_s for i, one in stands.forecasts.items() if i in waits}
    assert answer.as_is.starts == pytest.approx(said)


def drawn(page: Any) -> list[Bar]:
    page.source.update_schedule()
    return page.source._bars()


def test_without_a_change_what_if_shows_the_schedule_of_the_timeline(make: Any) -> None:
    page = make()
    now_s = page.source.head().time_s
    live = [bar for bar in drawn(page) if bar.end_s > now_s]
    plain = [bar.model_copy(update={"low_s": None, "high_s": None}) for bar in live]
    assert list(ask(page).as_is.bars) == plain
    assert {bar.kind for bar in plain} == {"runs", "forecast"}
    assert page.source.timeline_view().schedule.runtimes == "their walltimes"


def test_the_schedule_is_one_that_could_happen(make: Any) -> None:
    """No lane has two jobs at a time, and each job has as many nodes as it asks for."""
    page = make()
    bars = [bar for bar in drawn(page) if bar.kind != "ran"]
    jobs = page.source.core.mirror.jobs
    assert {bar.job for bar in bars} == set(jobs)
    spans: dict[int, list[tuple[float, float]]] = {}
    for bar in bars:
        assert sum(count for _, count in bar.rows) == jobs[bar.job].spec.nodes
        for first, count in bar.rows:
            for lane in range(first, first + count):
                spans.setdefault(lane, []).append((bar.start_s, bar.end_s))
    for one in spans.values():
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(one)))


def test_bars_have_the_intervals_of_the_queue(make: Any) -> None:
    page = make()
    told = {job.id: (job.low_s, job.high_s) for job in page.source.job_views()}
    waits = [bar for bar in drawn(page) if bar.kind == "forecast"]
    assert waits
    assert all((bar.low_s, bar.high_s) == told[bar.job] for bar in waits)
    assert any(bar.low_s is not None for bar in waits)


def test_without_fresh_forecasts_the_queue_has_the_starts_of_the_schedule(make: Any) -> None:
    """As after a twin that was stopped for a while and goes on."""
    page = make()
    with page.source.looking() as stands:
        stands.forecasts.clear()
    page.source.version += 1
    planned = ask(page).as_is.starts
    waits = [job for job in page.source.job_views() if job.state == "waiting"]
    assert {job.id: job.start_s for job in waits} == planned
    assert all(job.low_s is None for job in waits)


def test_a_policy_that_cannot_be_simulated_here_is_reported_and_the_rest_is_shown(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = make()

    def fails(*_: object) -> None:
        raise HpctwinError("policy 'own.py:order' is unknown")

    with monkeypatch.context() as patch:
        patch.setattr(Scene, "present", fails)
        assert {bar.kind for bar in drawn(page)} <= {"ran", "runs"}
        assert any("own.py:order" in one for one in page.source.head().trouble)
    page.source.version += 1
    assert {"runs", "forecast"} <= {bar.kind for bar in drawn(page)}
    assert not any("own.py:order" in one for one in page.source.head().trouble)


def test_the_head_is_told_without_a_simulation(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make()
    mirror = page.source.core.mirror
    group = mirror.machine.nodes[0].model_dump()
    group["modes"] = {"base": {"power_w": 200.0, "idle_w": 50.0}}
    mirror.machine = type(mirror.machine).model_validate({"name": "m", "nodes": [group]})
    page.source.version += 1
    monkeypatch.setattr(page.source, "update_schedule", None)
    busy = sum(len(job.node_names) for job in mirror.jobs.values())
    assert page.source.head().energy.power_w == 8 * 50 + busy * 150


def test_with_as_many_nodes_more_as_all_ask_for_every_job_starts_now(make: Any) -> None:
    answer = ask(make(), add_nodes=100)
    assert answer.nodes == (8, 108)
    assert set(answer.changed.starts.values()) == {answer.time_s}
    assert answer.changed.metrics["mean_wait_s"] < answer.as_is.metrics["mean_wait_s"]


def test_drained_nodes_take_no_job_and_what_needs_them_never_starts(make: Any) -> None:
    page = make()
    answer = ask(page, drain=_names(page))
    assert answer.changed.starts == {}
    assert answer.changed.never == len(answer.as_is.starts)


def test_nodes_are_named_as_administrators_name_them(make: Any) -> None:
    page = make()
    names = _names(page)
    group = page.source.core.mirror.machine.nodes[0].name
    for text, chosen in (
        (compact(names[:4]), names[:4]),
        (f"{names[5]}  {compact(names[1:3])},{names[1]}", [*names[1:3], names[5]]),
        (f"group={group}", names),
    ):
        assert ask(page, drain=[text]).changed == ask(page, drain=chosen).changed
        reserve = {"for_s": 10_000}
        assert (
            ask(page, reserve={**reserve, "nodes": [text]}).changed
            == ask(page, reserve={**reserve, "nodes": chosen}).changed
        )


MACHINE = """
nodes:
  - {name: cpu, count: 8, components: {cpu: {count: 2, idle_w: 50, max_w: 250}},
     racks: {racks_per_cdu: 3, missing: [1], nodes_per_chassis: 4}}
  - {name: gpu, count: 4, components: {cpu: {count: 2, idle_w: 50, max_w: 250}}}
partitions: [{name: all}, {name: p, groups: [gpu]}]
"""
SWITCHED = """
nodes: [{name: cpu, count: 12}]
switches: [{name: a, nodes: "0-5"}, {name: b, nodes: "6-11"}, {name: top, switches: [a, b]}]
"""


@pytest.mark.parametrize(
    ("machine", "text", "chosen"),
    [
        (MACHINE, "partition=p", [8, 9, 10, 11]), (MACHINE, "rack=2,n0", [0, 4, 5, 6, 7]),
        (MACHINE, "partition=all", list(range(12))), (MACHINE, "group=gpu n[1,0]", [0, 1, 8, 9, 10, 11]),
        (SWITCHED, "switch=b", [6, 7, 8, 9, 10, 11]), (SWITCHED, "switch=top", list(range(12))),
    ],
)  # fmt: skip
def test_racks_partitions_groups_and_switches_name_their_nodes(
    machine: str, text: str, chosen: list[int]
) -> None:
    cluster = Cluster.model_validate(yaml.safe_load(machine))
    names = [f"n{i}" for i in range(12)]
    found = select_nodes([text], names, node_sets(cluster, names))
    assert found == tuple(names[i] for i in chosen)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n[1-99]", "unknown node 'n12'. Known: group=cpu, n[0-11]"), ("n[1", "bracket is not closed"),
        ("rack=9", "unknown set of nodes 'rack=9'"), ("n[0-999999],n[0-999999]", "unknown node 'n12'"),
        ("; rm -rf", "is not a name"), ("n[0-11] " * 100_000, "more than 1,000,000 nodes"),
    ],
)  # fmt: skip
def test_node_lists_that_name_no_nodes_are_rejected_in_one_sentence(text: str, says: str) -> None:
    names = [f"n{i}" for i in range(12)]
    cluster = Cluster.model_validate({"nodes": [{"name": "cpu", "count": 12}]})
    with pytest.raises(HpctwinError) as error:
        select_nodes([text], names, node_sets(cluster, names))
    assert says in str(error.value)
    assert len(str(error.value)) < 400


def test_nothing_starts_on_reserved_nodes_before_they_are_back(make: Any) -> None:
    page = make()
    answer = ask(page, reserve={"for_s": 10_000, "in_s": 0.0})
    assert min(answer.changed.starts.values()) >= answer.time_s + 10_000
    assert min(answer.as_is.starts.values()) < answer.time_s + 10_000


def test_a_pretended_job_has_a_start_and_the_cluster_knows_nothing_of_it(make: Any) -> None:
    page = make()
    answer = ask(page, job={"nodes": 8, "walltime_s": 60})
    assert answer.pretend in answer.changed.starts
    assert answer.pretend not in answer.as_is.starts
    assert answer.pretend not in {job.spec.id for job in page.setting.cluster.snapshot().jobs}
    assert ask(page).as_is.starts == answer.as_is.starts


def test_under_a_power_cap_nodes_never_draw_more_together_than_it_says(make: Any) -> None:
    page = make()
    mirror = page.source.core.mirror
    group = mirror.machine.nodes[0].model_dump()
    group["modes"] = {"base": {"power_w": 200.0, "idle_w": 50.0}}
    mirror.machine = type(mirror.machine).model_validate({"name": "m", "nodes": [group]})
    runs = sum(len(job.node_names) for job in mirror.jobs.values())
    wide = max(job.spec.nodes for job in mirror.jobs.values() if job.start_s is None)
    idle_w = 32 * 50
    cap_w = idle_w + max(runs, wide) * 150
    free = ask(page, add_nodes=24).changed
    answer = ask(page, add_nodes=24, cap_w=cap_w)
    assert answer.changed.never == 0
    moments = {bar.start_s for bar in answer.changed.bars}
    for now in moments:
        held = sum(
            sum(count for _, count in bar.rows)
            for bar in answer.changed.bars
            if bar.start_s <= now < bar.end_s
        )
        assert idle_w + 150 * held <= cap_w
    assert sum(answer.changed.starts.values()) > sum(free.starts.values())
    with pytest.raises(HpctwinError, match="idle nodes already draw 400 W"):
        ask(page, cap_w=399)


def test_a_withdrawn_job_frees_capacity(make: Any) -> None:
    page = make()
    first = ask(page)
    gone = list(first.as_is.starts)[:1]
    answer = ask(page, withdraw=gone)
    assert answer.changed.starts.keys() == first.as_is.starts.keys() - set(gone)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"policy": "wpf+easy"}, "wpf"),
        ({"policy": "/etc/passwd.py:x"}, "a Python file is accepted only if it is in core.pool"),
        ({"policy": "fcfs+easy@evil.py:place"}, "a Python file"),
        ({"drain": ["nowhere"]}, "nowhere"),
        ({"withdraw": ["4711"]}, "4711"),
        ({"cap_w": 1000}, "has no power model"),
        ({"job": {"nodes": 1, "walltime_s": 60, "partition": "p"}}, "partition"),
        ({"reserve": {"for_s": 60, "nodes": ["nowhere"]}}, "nowhere"),
    ],
)
def test_a_change_that_makes_no_sense_is_rejected_by_name(
    make: Any, change: dict[str, Any], says: str
) -> None:
    with make().client() as client:
        answer = client.post("/api/v1/what-if", json=change)
    assert answer.status_code in (404, 409)
    assert says in answer.json()["detail"]


def test_a_change_of_unknown_form_is_rejected(make: Any) -> None:
    with make().client() as client:
        for change in ({"adnodes": 3}, {"add_nodes": -1}, {"job": {"nodes": 0, "walltime_s": 1}}):
            assert client.post("/api/v1/what-if", json=change).status_code == 422


def _names(page: Any) -> list[str]:
    return [node.name for node in page.setting.cluster.snapshot().nodes]
