"""The list of jobs: filtered, sorted and paged alike for a twin and a run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hpctwin import Cluster, generate, simulate
from hpctwin.report.pages.run import write_run
from hpctwin.rms.records.records import JobSpec
from hpctwin.web.server.serve import run_application
from hpctwin.web.views.runs import RunSource

JOBS = [  # id, user, partition, qos, nodes
    ("99", "ana", "long", "low", 3),
    ("100", "ben", "long", "high", 1),
    ("1001", "anabel", "short", "low", 2),
    ("20", "ben", "", "high", 2),
]


@pytest.fixture
def twin(make: Any) -> Any:
    """A client of a twin whose cluster has these jobs among others."""
    page = make()
    for number, (job, user, partition, qos, nodes) in enumerate(JOBS):
        spec = JobSpec(
            id=job, submit_s=page.setting.cluster.now_s, nodes=nodes, walltime_s=60 + number,
            user=user, partition=partition, qos=qos,
        )  # fmt: skip
        assert page.setting.cluster.submit(spec, 30).result == "done"
    page.setting.until(lambda: page.decided and "20" in page.setting.twin.core.mirror.jobs)
    page.tell()
    page.look()
    with page.client() as client:
        yield client


def jobs(client: Any, **asked: Any) -> Any:
    answer = client.get("/api/v1/jobs", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(client: Any, **asked: Any) -> list[str]:
    return [job["id"] for job in jobs(client, **asked)["shown"]]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"user": "ana"}, {"99"}),
        ({"user": ["ana", "ben"]}, {"99", "100", "20"}),
        ({"partition": "long", "qos": "high"}, {"100"}),
        ({"partition": "long", "min_nodes": 2}, {"99"}),
        ({"user": "ben", "max_nodes": 1}, {"100"}),
        ({"find": "ANA"}, {"99", "1001"}),
        ({"find": "100"}, {"100"}),
        ({"find": "10"}, set()),
        ({"user": "nobody"}, set()),
    ],
)
def test_only_jobs_that_match_all_filters_are_returned(
    twin: Any, asked: dict[str, Any], expected: set[str]
) -> None:
    found = jobs(twin, **asked)
    assert {job["id"] for job in found["shown"]} == expected
    assert found["found"] == len(expected)


def test_states_and_waits_are_filters(twin: Any) -> None:
    all_of_them = jobs(twin)["shown"]
    for state in ("waiting", "running"):
        expected = [job["id"] for job in all_of_them if job["state"] == state]
        assert expected
        assert ids(twin, state=state) == expected
    middle = sorted(job["wait_s"] for job in all_of_them)[len(all_of_them) // 2]
    long = {job["id"] for job in all_of_them if job["wait_s"] >= middle}
    assert set(ids(twin, min_wait_s=middle)) == long
    assert set(ids(twin)) - long == set(ids(twin, max_wait_s=middle)) - set(
        ids(twin, min_wait_s=middle)
    )


def test_any_column_sorts_in_both_orders_and_ids_sort_as_numbers(twin: Any) -> None:
    assert ids(twin, user=["ana", "ben"], sort="id") == ["20", "99", "100"]
    for column in ("user", "nodes", "walltime_s", "submit_s", "start_s", "end_s", "wait_s"):
        values = [job[column] for job in jobs(twin, sort=column)["shown"]]
        values = [value for value in values if value is not None]
        assert values == sorted(values)
        back = [job[column] for job in jobs(twin, sort=column, order="desc")["shown"]]
        assert [value for value in back if value is not None] == values[::-1]


def test_pages_together_are_the_whole_list(twin: Any) -> None:
    whole = ids(twin, sort="user")
    pages = [jobs(twin, sort="user", limit=2, offset=at) for at in range(0, len(whole), 2)]
    assert [job["id"] for page in pages for job in page["shown"]] == whole
    assert {page["found"] for page in pages} == {len(whole)}
    assert jobs(twin, offset=10**6)["shown"] == []


@pytest.mark.parametrize(
    "asked",
    [{"sort": "color"}, {"order": "up"}, {"limit": 0}, {"limit": 10**6}, {"min_wait_s": "nan"},
     {"state": "asleep"}, {"usr": "ana"}, {"offset": -1}],
)  # fmt: skip
def test_an_unknown_filter_is_rejected_by_name(twin: Any, asked: dict[str, Any]) -> None:
    answer = twin.get("/api/v1/jobs", params=asked)
    assert answer.status_code == 422
    assert next(iter(asked)) in answer.text


def test_one_job_is_returned_by_its_id(twin: Any) -> None:
    assert twin.get("/api/v1/jobs/99").json()["job"]["user"] == "ana"
    answer = twin.get("/api/v1/jobs/4711")
    assert answer.status_code == 404
    assert "unknown pending, running or recent job '4711'" in answer.text


def test_a_run_is_filtered_sorted_and_paged_alike(tmp_path: Path) -> None:
    workload = generate("poisson", jobs=60, nodes=16, seed=3)
    result = simulate(workload, Cluster.uniform(nodes=16), policy="fcfs+easy")
    write_run(result, tmp_path / "run", {})
    rows = result.jobs.to_dicts()
    with TestClient(run_application(RunSource(tmp_path / "run"))) as client:
        user = rows[0]["user"]
        assert ids(client, user=user) == [str(r["job_id"]) for r in rows if r["user"] == user]
        waits = [job["wait_s"] for job in jobs(client, sort="wait_s", order="desc")["shown"]]
        assert all(a >= b for a, b in itertools.pairwise(waits))
        assert ids(client, min_nodes=4, max_nodes=8) == [
            str(row["job_id"]) for row in rows if 4 <= row["nodes"] <= 8
        ]
        assert len(ids(client, limit=7, offset=55)) == 5
        assert jobs(client, state="completed")["found"] == 60
