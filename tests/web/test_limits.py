"""No request stops the service: bounds, time limits, clients that leave, and half-open connections."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from hpctwin.errors import HpctwinError, LateError, TooLargeError
from hpctwin.web.server import api, gate, serve
from hpctwin.web.server.assembly import Part
from hpctwin.web.server.gate import Access
from hpctwin.web.server.serve import Brief, Listening, room_for_connections, server_of, socket_at
from hpctwin.web.views import source, whatif
from hpctwin.web.views.views import Change
from hpctwin.web.views.whatif import MOST_WORK, check_size
from tests.web.page import ACCESS, ACTS, LOOKS, Page, bearer


class Blocked:
    """A what-if that runs until it is stopped."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.ended = 0

    def __call__(self, change: Change, sees: Any, runs: Any) -> Any:
        self.begun.release()
        until = time.monotonic() + 120
        while not runs.stopped:
            assert time.monotonic() < until
            time.sleep(0.005)
        self.ended += 1
        raise LateError("stopped")


@contextmanager
def served(page: Page, access: Access = ACCESS) -> Iterator[int]:
    """The port of a server in this process, as `hpctwin serve` runs it."""
    app = api.application(page.source, kill_switch=page.switch, every_s=0.02)
    page.app = app
    part = Part(app, app.state.live, page.source.shown)
    with socket_at("127.0.0.1", 0) as listens:
        port = listens.getsockname()[1]
        server = server_of({"twin": part}, Listening(), access)
        page.server = server
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listens])))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


HEADERS = {**bearer(LOOKS), "Host": "localhost"}


def get(port: int, path: str, method: str = "GET") -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers=HEADERS)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), body


def test_a_what_if_that_would_take_long_is_refused_before_it_starts(make: Any) -> None:
    check_size(MOST_WORK // 1000, Change(add_nodes=1000))
    with pytest.raises(TooLargeError, match=r"add at most 5,263$"):
        check_size(19_000, Change(add_nodes=10_000))
    page = make()
    jobs = len(page.source.core.mirror.jobs)
    with page.client() as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(whatif, "MOST_WORK", 10 * jobs)
        assert client.post("/api/v1/what-if", json={"add_nodes": 10}).status_code == 200
        answer = client.post("/api/v1/what-if", json={"add_nodes": 11})
        assert answer.status_code == 422
        assert "add at most 10" in answer.json()["detail"]
        patch.setattr(whatif, "MOST_WORK", 10 * jobs + 9)
        job = {"nodes": 1, "walltime_s": 60}
        answer = client.post("/api/v1/what-if", json={"add_nodes": 10, "job": job})
        assert answer.status_code == 422


def test_a_what_if_that_takes_long_is_stopped(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make()
    monkeypatch.setattr(whatif, "LONGEST_S", 0.0)
    slow = whatif.Scene.present
    monkeypatch.setattr(whatif.Scene, "present", lambda *args: [time.sleep(0.1), slow(*args)][1])
    with pytest.raises(HpctwinError, match="what-if stopped after"):
        page.source.what_if(Change())
    with page.client() as client:
        answer = client.post("/api/v1/what-if", json={})
        assert answer.status_code == 503
        assert "simulate a smaller change" in answer.json()["detail"]


def test_other_answers_do_not_wait_for_a_what_if(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = make()
    entered, go_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        entered.set()
        assert go_on.wait(120)
        raise HpctwinError("enough")

    monkeypatch.setattr(whatif.Scene, "present", slow)
    with page.client() as client:
        asking = threading.Thread(target=lambda: client.post("/api/v1/what-if", json={}))
        asking.start()
        assert entered.wait(120)
        # Its preparation holds no lock: these would wait for ever.
        for path in ("/healthz", "/api/v1/state", "/api/v1/jobs", "/metrics"):
            assert client.get(path).status_code == 200
        go_on.set()
        asking.join(120)


@pytest.mark.parametrize("path", ["/api/v1/jobs/5/when", "/api/v1/timeline"])
def test_other_answers_do_not_wait_for_a_forecast_or_the_schedule(
    make: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    page = make()
    page.source._stands = replace(page.source._stands, forecasts={})
    entered, go_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        entered.set()
        assert go_on.wait(120)
        raise HpctwinError("enough")

    monkeypatch.setattr(source, "_forecasts", slow)
    monkeypatch.setattr(source, "schedule_of", slow)
    with page.client() as client:
        asking = threading.Thread(target=lambda: client.get(path))
        asking.start()
        assert entered.wait(120)
        started = threading.Thread(target=page.look)
        started.start()
        started.join(120)
        assert not started.is_alive()
        page.source._heads.clear()  # not the last answer, which is there for a locked state
        for other in ("/healthz", "/api/v1/state", "/api/v1/nodes", "/metrics"):
            assert client.get(other).status_code == 200
        go_on.set()
        asking.join(120)


def test_a_forecast_on_a_copy_is_the_same_and_the_copy_stays_as_it_was(make: Any) -> None:
    page = make()
    core, now_s = page.source.core, page.source._stands.now_s
    copied, before = core.copy(), core.state()
    assert copied.state() == before
    assert copied.forecasts(now_s) == core.forecasts(now_s)
    page.setting.submit(77, nodes=1)
    page.tell()
    page.look()
    assert core.state() != before
    assert copied.state() == before


def test_a_kept_schedule_shows_no_job_twice(make: Any) -> None:
    page = make()
    page.source.timeline_view()
    page.source._scheduled_until = float("inf")
    waiting = [one.job for one in page.source.course() if one.kind == "forecast"]
    assert waiting
    page.setting.cluster.advance(page.setting.cluster.now_s + 40)
    page.setting.until(lambda: page.decided and waiting[0] in page.setting.running())
    page.setting.until(lambda: page.decided)
    page.tell()
    page.look()
    page.source.timeline_view()
    jobs = page.source.core.mirror.jobs
    drawn = [one for one in page.source.course() if one.job == waiting[0]]
    assert [one.kind for one in drawn] == ["runs" if waiting[0] in jobs else "ran"]
    runs = {one.job for one in page.source.course() if one.kind == "runs"}
    assert runs == {i for i, job in jobs.items() if job.start_s is not None}


def test_pages_of_a_job_and_a_user_have_the_starts_of_the_queue(make: Any) -> None:
    page = make()
    page.source._stands = replace(page.source._stands, forecasts={})
    with page.client() as client:
        queue = {one["id"]: one for one in client.get("/api/v1/jobs").json()["shown"]}
        waiting = [one for one in queue.values() if one["state"] == "waiting"]
        assert waiting
        assert all(one["start_s"] is not None for one in waiting)
        for one in waiting:
            assert client.get(f"/api/v1/jobs/{one['id']}").json()["job"] == one


def test_a_client_that_leaves_frees_its_place(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make()
    blocked = Blocked()
    monkeypatch.setattr(page.source, "what_if", blocked)
    body = b"{}"
    ask = (
        "POST /api/v1/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: {bearer(LOOKS)['Authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with served(page) as port:
        for _ in range(3):
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(api.AT_ONCE)]
            for client in clients:
                client.sendall(ask)
            for _ in clients:
                assert blocked.begun.acquire(timeout=120)
            for client in clients:
                client.close()
            page.setting.until(lambda: page.app.state.turns._value == api.AT_ONCE)
        assert blocked.ended == 3 * api.AT_ONCE


def test_half_open_connections_stop_nothing_and_fill_no_log(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page = make()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 100
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", most)
    assert room_for_connections() == most
    half = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    with served(page) as port, caplog.at_level(logging.DEBUG):
        held = []
        for _ in range(3 * most):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(half)
            held.append(client)
        assert get(port, "/healthz")[0] == 200
        # The oldest ones made room.
        held[0].settimeout(60)
        assert _received(held[0]) == 0
        for client in held:
            client.close()
        assert get(port, "/api/v1/state")[0] == 200
    assert sum(len(record.getMessage()) for record in caplog.records) < 10_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: lo"])
def test_a_header_must_arrive_in_time_also_on_a_connection_that_was_used(
    make: Any, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(serve, "HEADER_S", 0.2)
    with served(make()) as port:
        for before in (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            if before and not sent:
                continue  # an idle connection may stay
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            client.sendall(before)
            if before:
                answer = b""
                while not answer.endswith(b'{"status":"ok"}'):
                    answer += client.recv(65_536)
            client.sendall(sent)
            assert client.recv(65_536) == b""
            client.close()


def test_a_body_must_arrive_in_time(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_S", 0.2)
    ask = (
        b"POST /api/v1/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
        b"Authorization: " + bearer(LOOKS)["Authorization"].encode() + b"\r\n\r\n{"
    )
    with served(make()) as port:
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        client.sendall(ask)
        assert client.recv(65_536).startswith(b"HTTP/1.1 408")
        client.close()


def test_a_client_that_reads_nothing_is_disconnected(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "STALLED_S", 0.2)
    page = make()
    ask = (
        "GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {bearer(LOOKS)['Authorization']}\r\n\r\n"
    ).encode()
    with served(page) as port:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(60)
        client.connect(("127.0.0.1", port))
        client.sendall(ask * 150)  # pipelined, so that more is answered than the kernel buffers
        page.setting.until(lambda: page.server.server_state.total_requests)
        page.setting.until(lambda: not page.server.server_state.connections)
        whole = 150 * len(get(port, "/api/v1/openapi.json")[2])
        assert _received(client) < whole
        client.close()


def _received(client: socket.socket) -> int:
    """The number of bytes until the server closes the connection."""
    received = 0
    try:
        while part := client.recv(1 << 16):
            received += len(part)
    except ConnectionResetError:
        pass
    return received


def test_only_a_few_log_messages_pass_and_the_rest_is_counted() -> None:
    brief = Brief(burst=3, every_s=1000.0)
    records = [logging.makeLogRecord({"msg": "full %d", "args": (i,)}) for i in range(10)]
    assert [brief.filter(record) for record in records] == [True] * 3 + [False] * 7
    brief._left = 1.0
    last = logging.makeLogRecord({"msg": "full"})
    assert brief.filter(last)
    assert last.getMessage() == "full (7 similar messages omitted)"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("what-if", '{"add_nodes": X}'),
        ("what-if", '{"cap_w": X}'),
        ("what-if", '{"job": {"nodes": 1, "walltime_s": X}}'),
        ("what-if", '{"drain": [X]}'),
        ("what-if", '{"surprise": X}'),
        ("what-if", "X"),
    ],
)
def test_numbers_that_are_not_finite_are_rejected_by_name(
    make: Any, path: str, body: str, number: str
) -> None:
    with make().client() as client:
        answer = client.post(
            f"/api/v1/{path}",
            content=body.replace("X", number),
            headers={"Content-Type": "application/json"},
        )
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    named = answer.json()["errors"][0]["field"]
    assert all(part in body or part.isdigit() for part in named.split(".")) or named == "body"


@pytest.mark.parametrize("value", ["no", "true", 0, 1, None, "", [], 0.0])
def test_only_booleans_act(make: Any, value: Any) -> None:
    page = make()
    page.switch.touch()
    with page.client(ACTS) as client:
        answer = client.put("/api/v1/kill-switch", json={"thrown": value})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "thrown"
        assert page.switch.exists()
        answer = client.post("/api/v1/decisions/1/approval", json={"approved": value})
        assert answer.status_code == 422


def test_head_has_the_headers_of_get_and_no_body(make: Any) -> None:
    with served(make()) as port:
        for path in ("/", "/healthz", "/readyz", "/api/v1/nodes", "/static/main.js",
                     "/nothing"):  # fmt: skip
            status, headers, body = get(port, path, method="HEAD")
            expected = get(port, path)
            assert (status, body) == (expected[0], b""), path
            for name in ("content-type", "content-length", "cache-control"):
                assert headers.get(name) == expected[1].get(name), (path, name)
        # An endless answer ends.
        status, headers, body = get(port, "/api/v1/events", method="HEAD")
        assert (status, body) == (200, b"")
        assert headers["content-type"].startswith("text/event-stream")
        assert get(port, "/healthz")[0] == 200


def test_large_answers_are_compressed_and_event_streams_are_not(make: Any) -> None:
    page = make()
    with page.client() as client:
        zipped = client.get("/api/v1/openapi.json")
        assert zipped.headers["content-encoding"] == "gzip"
        plain = client.get("/api/v1/openapi.json", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert zipped.json() == plain.json()
        assert int(zipped.headers["content-length"]) < len(plain.content) / 4
        refused = client.get("/api/v1/openapi.json", headers={"Accept-Encoding": "gzip;q=0"})
        assert "content-encoding" not in refused.headers
        assert "content-encoding" not in client.get("/healthz").headers
    with served(page) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/api/v1/events", headers={**HEADERS, "Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        assert "content-encoding" not in answer.headers
        first = [answer.readline() for _ in range(3)]
        assert any(line.startswith(b"data: {") for line in first), first
        connection.close()


def test_an_unchanged_answer_is_not_sent_again(make: Any) -> None:
    page = make()
    with page.client() as client:
        first = client.get("/api/v1/nodes")
        tag = first.headers["etag"]
        again = client.get("/api/v1/nodes", headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        other = client.get("/api/v1/nodes", headers={"If-None-Match": '"other"'})
        assert other.json() == first.json()
        missing = client.get("/api/v1/decisions/999", headers={"If-None-Match": "*"})
        assert missing.status_code == 404


def test_all_errors_are_problem_details(make: Any) -> None:
    with make().client() as client:
        answers = [
            client.get("/api/v1/nothing"),
            client.delete("/api/v1/state"),
            client.get("/api/v1/decisions/999"),
            client.get("/api/v1/jobs?limit=x"),
            client.get("/api/v1/state", headers={"Authorization": "Bearer x"}),
            client.get("/api/v1/state", headers={"Host": "evil.example"}),
            client.put("/api/v1/kill-switch", json={"thrown": True}),
            client.post(
                "/api/v1/what-if", content=b"\xff", headers={"Content-Type": "application/json"}
            ),
            client.post("/api/v1/what-if", json={"policy": "x" * gate.LARGEST_BODY}),
        ]
    assert [one.status_code for one in answers] == [404, 405, 404, 422, 401, 421, 403, 400, 413]
    for one in answers:
        assert one.headers["content-type"] == "application/problem+json"
        found = json.loads(one.text)
        assert found["status"] == one.status_code
        assert found["title"]
        assert found["detail"]


def test_the_state_does_not_wait_for_an_answer_that_takes_long(make: Any) -> None:
    page = make()
    before = page.source.head()
    with ThreadPoolExecutor(1) as pool, page.source.looking():
        late = pool.submit(page.source.head).result(10)
    assert late.model_copy(update={"age_s": before.age_s}) == before
    page.setting.submit(99, nodes=1)
    page.setting.until(lambda: "99" in page.setting.twin.core.mirror.jobs)
    page.tell()
    page.look()
    assert page.source.head().version > before.version
