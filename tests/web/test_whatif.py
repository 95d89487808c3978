"""Two futures: of the cluster as it is, and with a change."""

from __future__ import annotations

from typing import Any

import pytest

from hpctwin.web.views import Change


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


def test_a_withdrawn_job_makes_room(make: Any) -> None:
    page = make()
    first = ask(page)
    gone = list(first.as_is.starts)[:1]
    answer = ask(page, withdraw=gone)
    assert answer.changed.starts.keys() == first.as_is.starts.keys() - set(gone)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"policy": "wpf+easy"}, "wpf"),
        ({"policy": "/etc/passwd.py:x"}, "a Python file is used here only if it is in core.pool"),
        ({"policy": "fcfs+easy@evil.py:place"}, "a Python file"),
        ({"drain": ["nowhere"]}, "nowhere"),
        ({"withdraw": ["4711"]}, "4711"),
        ({"job": {"nodes": 1, "walltime_s": 60, "partition": "p"}}, "partition"),
        ({"reserve": {"for_s": 60, "nodes": ["nowhere"]}}, "nowhere"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_by_name(
    make: Any, change: dict[str, Any], says: str
) -> None:
    with make().client() as client:
        answer = client.post("/api/v1/what-if", json=change)
    assert answer.status_code in (404, 409)
    assert says in answer.json()["detail"]


def test_a_change_of_unknown_form_is_refused(make: Any) -> None:
    with make().client() as client:
        for change in ({"adnodes": 3}, {"add_nodes": -1}, {"job": {"nodes": 0, "walltime_s": 1}}):
            assert client.post("/api/v1/what-if", json=change).status_code == 422


def _names(page: Any) -> list[str]:
    return [node.name for node in page.setting.cluster.snapshot().nodes]
