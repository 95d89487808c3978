"""What the REST interface answers, and whom."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpctwin.model.text import expand
from hpctwin.web.server import gate
from hpctwin.web.server.gate import LARGEST_BODY, Access
from tests.web.page import ACTS, bearer

LOOKED_AT = ("state", "jobs", "nodes", "bars", "lines", "timeline", "decisions", "accuracy")


def test_all_that_is_looked_at_answers_in_its_own_schema(make: Any) -> None:
    page = make()
    with page.client() as client:
        schema = client.get("/api/v1/openapi.json").json()
        for name in LOOKED_AT:
            answer = client.get(f"/api/v1/{name}")
            assert answer.status_code == 200, name
            assert f"/api/v1/{name}" in schema["paths"]
        assert client.get("/api/v1/state").json()["waiting"] >= 1


def test_jobs_and_nodes_are_those_of_the_cluster(make: Any) -> None:
    page = make()
    snapshot = page.setting.cluster.snapshot()
    with page.client() as client:
        jobs = {job["id"]: job for job in client.get("/api/v1/jobs").json()["shown"]}
        nodes = {node["name"]: node["jobs"] for node in client.get("/api/v1/nodes").json()}
    assert jobs.keys() == {job.spec.id for job in snapshot.jobs}
    for job in snapshot.jobs:
        runs = job.start_s is not None
        assert jobs[job.spec.id]["state"] == ("running" if runs else "waiting")
        assert {name for name, on in nodes.items() if job.spec.id in on} == set(job.node_names)
        assert bool(jobs[job.spec.id]["why"]) is not runs


def test_waiting_jobs_come_in_the_order_of_their_forecasts(make: Any) -> None:
    page = make()
    with page.client() as client:
        jobs = client.get("/api/v1/jobs").json()["shown"]
    waiting = [job["start_s"] for job in jobs if job["state"] == "waiting"]
    assert waiting == sorted(waiting)
    assert None not in waiting
    assert [job["state"] for job in jobs] == ["waiting"] * len(waiting) + ["running"] * (
        len(jobs) - len(waiting)
    )


def test_bars_of_running_and_predicted_jobs_never_overlap_on_a_node(make: Any) -> None:
    page = make()
    page.setting.cluster.advance(40)
    page.setting.turn(5)
    page.tell()
    page.look()
    with page.client() as client:
        bars = client.get("/api/v1/bars").json()
    assert {"ran", "runs"} <= {bar["kind"] for bar in bars}
    on: dict[int, list[tuple[float, float]]] = {}
    for bar in bars:
        for first, count in bar["rows"]:
            for node in range(first, first + count):
                on.setdefault(node, []).append((bar["start_s"], bar["end_s"]))
    for spans in on.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_an_event_of_the_cluster_reaches_a_listener_without_being_asked_for(make: Any) -> None:
    page = make()
    with page.client() as client:
        before = client.get("/api/v1/state").json()
        page.setting.submit(99)
        page.setting.turn(3)
        page.tell()

        def waiting() -> int:
            return client.get("/api/v1/state").json()["waiting"]

        page.setting.until(lambda: waiting() == before["waiting"] + 1)
        assert client.get("/api/v1/state").json()["version"] > before["version"]


def test_an_action_is_dated_by_the_clusters_clock(make: Any) -> None:
    page = make()
    with page.client() as client:
        [job] = client.get("/api/v1/jobs?state=running&limit=1").json()["shown"]
        [action] = client.get(f"/api/v1/jobs/{job['id']}").json()["actions"]
        decision = client.get(f"/api/v1/decisions/{action['decision']}").json()
        assert action["decided_s"] == decision["time_s"]
        assert action["decided_s"] <= job["start_s"]


def test_explanations_are_those_of_the_command_line(make: Any) -> None:
    page = make()
    with page.client() as client:
        (last, *_) = client.get("/api/v1/decisions").json()
        lines = client.get(f"/api/v1/decisions/{last['id']}/explain").json()["why"]
        assert lines == list(page.source.explain_decision(last["id"]).why)
        waits = client.get("/api/v1/jobs?state=waiting").json()["shown"][0]
        told = client.get(f"/api/v1/jobs/{waits['id']}/when").json()
    assert told["state"] == "waiting"
    assert told["start_s"] == waits["start_s"]
    assert f"Job {waits['id']}" in told["why"][0]


def test_a_client_learns_its_name_its_role_and_the_kill_switch(make: Any) -> None:
    page = make()
    with page.client() as client:
        path = "/api/v1/me"
        looks = {"name": "ben", "role": "viewer", "kill_switch": False}
        assert client.get(path).json().items() >= looks.items()
        page.switch.touch()
        acts = {"name": "ana", "role": "operator", "kill_switch": True}
        assert client.get(path, headers=bearer(ACTS)).json().items() >= acts.items()


def test_jobs_have_their_kind_of_reason_and_running_ones_a_hostlist(make: Any) -> None:
    page = make()
    with page.client() as client:
        jobs = client.get("/api/v1/jobs").json()["shown"]
    names = {job.spec.id: job.node_names for job in page.setting.cluster.snapshot().jobs}
    for job in jobs:
        assert (job["reason"] == "turn") is (job["state"] == "waiting")
        assert expand(job["node_list"]) == sorted(names[job["id"]])


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("decisions/999", 404, "no decision 999"),
        ("decisions/999/explain", 404, "no decision 999"),
        ("decisions/0", 422, ""),
        ("jobs/--help/when", 422, ""),
        ("nothing", 404, ""),
        ("decisions?limit=100000", 422, ""),
    ],
)
def test_missing_items_are_named(make: Any, path: str, status: int, says: str) -> None:
    with make().client() as client:
        answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == status
    assert says in json.dumps(answer.json())


def test_without_a_token_only_health_and_the_bare_page_are_given(make: Any) -> None:
    with make().client(token=None) as client:
        for path in ("/healthz", "/readyz", "/", "/static/main.js", "/static/style.css"):
            assert client.get(path).status_code == 200, path
        for path in ("/metrics", "/api/v1/openapi.json", *(f"/api/v1/{n}" for n in LOOKED_AT)):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for given in ("Bearer", "Bearer x", "Basic " + "a" * 24, "a" * 24, "Bearer " + "b" * 25):
            answer = client.get("/api/v1/state", headers={"Authorization": given})
            assert answer.status_code == 401, given


def test_only_an_operator_acts_and_the_journal_names_the_operator(make: Any) -> None:
    page = make()
    with page.client() as client:
        asked = {"thrown": True}
        assert client.put("/api/v1/kill-switch", json=asked).status_code == 403
        assert not page.switch.exists()
        answer = client.put("/api/v1/kill-switch", json=asked, headers=bearer(ACTS))
        assert answer.json() == asked
        assert page.switch.exists()
        client.put("/api/v1/kill-switch", json={"thrown": False}, headers=bearer(ACTS))
        assert not page.switch.exists()
        approval = {"approved": True}
        path = "/api/v1/decisions/1/approval"
        assert client.post(path, json=approval).status_code == 403
        answer = client.post(path, json=approval, headers=bearer(ACTS))
        assert answer.status_code == 409
        assert "is not awaiting approval" in answer.json()["detail"]
    notes = [one for one in page.setting.journal.inputs_after(0) if one.kind == "kill switch"]
    assert [json.loads(one.body)["by"] for one in notes] == ["ana", "ana"]


def test_a_decision_that_waits_is_done_once_an_operator_confirms_it(make: Any) -> None:
    page = make(act={"mode": "approve"}, running=False)
    page.look()
    with page.client() as client:
        waits = next(
            one for one in client.get("/api/v1/decisions").json() if one["approval"] == "pending"
        )
        assert not page.setting.running()
        path = f"/api/v1/decisions/{waits['id']}/approval"
        answer = client.post(path, json={"approved": True}, headers=bearer(ACTS))
        assert answer.json()["approval"] == "approved"
        again = client.post(path, json={"approved": False}, headers=bearer(ACTS))
        assert again.status_code == 409
        assert f"decision {waits['id']} is not awaiting approval" in again.json()["detail"]
        assert client.get(f"/api/v1/decisions/{waits['id']}").json()["approval"] == "approved"
        page.setting.until(lambda: page.setting.running() == set(waits["starts"]))


def test_another_hosts_name_is_rejected(make: Any) -> None:
    with make().client() as client:
        for host in ("evil.example", "localhost.evil.example:8642", ""):
            assert client.get("/api/v1/state", headers={"Host": host}).status_code == 421, host
        assert client.get("/api/v1/state", headers={"Host": "localhost:8642"}).status_code == 200


def test_too_long_requests_are_rejected(make: Any) -> None:
    with make().client() as client:
        long = {"policy": "x" * LARGEST_BODY}
        assert client.post("/api/v1/what-if", json=long).status_code == 413
        chunks = (b" " * 1000 for _ in range(LARGEST_BODY // 1000 + 2))
        assert client.post("/api/v1/what-if", content=chunks).status_code == 413


def test_too_many_requests_are_rejected_until_some_time_has_passed(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "PER_S", 0.001)
    with make().client() as client:
        codes = [client.get("/favicon.ico") for _ in range(int(gate.BURST) + 1)]
        assert [one.status_code for one in codes[:-1]] == [200] * (len(codes) - 1)
        assert codes[-1].status_code == 429
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        assert 0 < int(codes[-1].headers["retry-after"]) <= 1000
        monkeypatch.setattr(gate, "PER_S", 1e9)
        assert client.get("/favicon.ico").status_code == 200


def test_every_answer_forbids_scripts_and_frames_of_others(make: Any) -> None:
    with make().client() as client:
        for path in ("/", "/api/v1/state", "/static/main.js", "/nothing", "/api/v1/decisions/999"):
            headers = client.get(path).headers
            assert "default-src 'self'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"]


def test_prometheus_reads_the_metrics_and_they_are_those_of_the_state(make: Any) -> None:
    with make().client() as client:
        text = client.get("/metrics").text
        state = client.get("/api/v1/state").json()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    cluster = state["cluster"]
    assert samples["hpctwin_jobs_waiting", cluster] == state["waiting"]
    assert samples["hpctwin_nodes", cluster, "free"] == state["free_nodes"]
    assert samples["hpctwin_policy_in_force", cluster, state["policy"]] == 1
    assert samples["hpctwin_decisions_total", cluster] >= 1
    decided = samples["hpctwin_decision_seconds_count", cluster]
    assert decided == samples["hpctwin_policy_decisions_total", cluster, state["policy"]] >= 1
    assert samples["hpctwin_partition_jobs", cluster, "", "waiting"] == state["waiting"]
    assert [key for key in samples if key[0] == "hpctwin_build_info"]


def test_ready_means_that_the_twin_runs(make: Any) -> None:
    page = make()
    with page.client() as client:
        assert client.get("/readyz").status_code == 200
        page.setting.twin.status_writer.write(ended=True)
        page.setting.until(lambda: client.get("/readyz").status_code == 503)
        trouble = client.get("/api/v1/state").json()["trouble"]
    assert trouble[0] == "the twin is not running"


def test_no_answer_reveals_a_secret(make: Any) -> None:
    page = make()
    secrets = [token.secret.decode() for token in page.access.tokens]
    with page.client() as client:
        texts = [client.get(f"/api/v1/{name}").text for name in (*LOOKED_AT, "openapi.json")]
    assert not any(secret in text for secret in secrets for text in texts)
    assert not any(secret in repr(page.access) for secret in secrets)


def test_without_required_tokens_every_user_views_and_no_user_acts(make: Any) -> None:
    page = make(access=Access((), frozenset({"localhost"})))
    with page.client(token=None) as client:
        assert client.get("/api/v1/state").status_code == 200
        assert client.put("/api/v1/kill-switch", json={"thrown": True}).status_code == 403
