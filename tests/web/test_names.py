"""With hidden names, users see their own, and nothing tells them those of others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from starlette.testclient import TestClient

from hpctwin import Cluster, generate, simulate
from hpctwin.report.pages.run import write_run
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.records import JobSpec
from hpctwin.web.server.api import application
from hpctwin.web.server.assembly import Live, together
from hpctwin.web.server.assistant import assistant
from hpctwin.web.server.gate import Access, Gate, Token
from hpctwin.web.server.serve import run_part
from hpctwin.web.views.job_list import RunJobFilter
from hpctwin.web.views.runs import RunSource
from hpctwin.web.views.visibility import Visibility
from tests.web.page import ACTS, LOOKS, Page, bearer

ANN = Token("ann", "user", b"u" * 24)
ACCESS = Access((ACTS, LOOKS, ANN), frozenset({"localhost"}), hide_names=True)
SECRET = "zoesecret"
"""A part of all names of the other user."""


@pytest.fixture
def page(make: Any) -> Page:
    """Ann's job 50 and Zoe's 51 wait, each for a reason; Zoe's 60 has run, and her 61 was refused."""
    one: Page = make()

    def submit(number: int, user: str, nodes: int, reason: str) -> None:
        spec = JobSpec(
            id=str(number), submit_s=one.setting.cluster.now_s, nodes=nodes, walltime_s=60, user=user,
            account=f"{user}-account", reason=reason, partition="", qos="",
        )  # fmt: skip
        assert one.setting.cluster.submit(spec, 10).result == "done"

    def mirrored(number: int) -> Any:
        return one.setting.twin.core.mirror.jobs.get(str(number))

    def empty() -> bool:
        one.setting.cluster.advance(one.setting.cluster.now_s + 40)
        one.setting.turn(3)
        return not one.setting.twin.core.mirror.jobs

    one.setting.until(empty)
    submit(60, SECRET, 1, "")
    one.setting.until(lambda: mirrored(60) and mirrored(60).start_s is not None)
    one.setting.cluster.advance(one.setting.cluster.now_s + 20)
    one.setting.until(lambda: mirrored(60) is None)
    one.setting.manager.answer = Outcome("refused", f"{SECRET} has too many jobs")
    submit(61, SECRET, 1, "")
    one.setting.until(lambda: one.setting.journal.read_actions(job="61"))
    one.setting.manager.answer = None
    submit(50, "ann", 8, "limit: ann has too many jobs")
    submit(51, SECRET, 8, f"limit: {SECRET} has too many jobs")
    one.setting.until(lambda: mirrored(51))
    one.tell()
    journal = one.setting.journal
    status = journal.read_latest("status")
    assert status is not None
    with journal.writing():
        journal.latest("status", {**status[1], "fault": f"job of {SECRET}",
                                  "not_read": [f"limit of {SECRET}"]}, status[0])  # fmt: skip
        one.setting.twin.follower.history.write(journal, one.setting.twin.core)
    one.look()
    return one


def client(page: Page, token: Token) -> TestClient:
    app = Gate(application(page.source, kill_switch=page.switch, every_s=60.0), ACCESS)
    return TestClient(app, base_url="http://localhost", headers=bearer(token))


VALUES = {
    "job": ("50", "51", "60", "61"), "name": ("ann", SECRET, "n1", "p"), "number": ("1", "2"),
    "from_s": ("0",), "to_s": ("1000",), "top": ("0",), "bottom": ("8",), "width": ("80",),
    "height": ("8",), "time_s": ("10",), "lane": ("0", "1"), "find": ("", SECRET, "sec"),
    "user": (SECRET,), "account": (f"{SECRET}-account",), "sort": ("user", "account", "wait_s"),
    "order": ("asc", "desc"), "by": ("user", "account"),
    "step": ("minute", "hour"),
}  # fmt: skip


def asked(schema: dict[str, Any]) -> Iterator[str]:
    """Each address that is only read, with values for its parameters."""
    for path, methods in schema["paths"].items():
        if "get" not in methods or path.endswith("/events"):
            continue
        parameters = methods["get"].get("parameters", [])
        rounds = max([len(VALUES.get(one["name"], ())) for one in parameters] or [1])
        for i in range(max(rounds, 1)):
            here, query = path, []
            for one in parameters:
                values = VALUES.get(one["name"], ())
                if not values:
                    assert not one.get("required"), f"give a value for {one['name']} of {path}"
                    continue
                value = values[i % len(values)]
                if one["in"] == "path":
                    here = here.replace(f"{{{one['name']}}}", value)
                    here = here.replace(f"{{{one['name']}:path}}", value)
                else:
                    query.append(f"{one['name']}={value}")
            yield here + ("?" + "&".join(query) if query else "")


def answers(one: TestClient) -> dict[str, str]:
    """What each address answers. An error repeats what was asked for, which tells nothing."""
    found = {}
    for address in asked(one.get("/api/v1/openapi.json").json()):
        answer = one.get(address)
        text = answer.text
        if answer.status_code >= 400:
            for value in re.findall(rf"[\w-]*{SECRET}[\w-]*", address):
                text = text.replace(value, "")
        found[address] = text
    return found


@pytest.mark.parametrize("token", [LOOKS, ANN], ids=["viewer", "user"])
def test_no_answer_has_the_name_of_another_user(page: Page, token: Token) -> None:
    with client(page, token) as one:
        found = answers(one)
        shown = one.get("/api/v1/jobs").json()["shown"]
    assert len(found) > 30
    assert [address for address, text in found.items() if SECRET in text] == []
    # Nothing is hidden by leaving jobs out.
    assert {job["id"] for job in shown} >= {"50", "51"}


def test_operators_see_all_names_and_without_the_policy_so_does_everybody(page: Page) -> None:
    with client(page, ACTS) as one:
        with_names = {address for address, text in answers(one).items() if SECRET in text}
    wanted = {"/api/v1/state", "/api/v1/jobs/51", "/api/v1/jobs/60",
              f"/api/v1/users/{SECRET}", "/api/v1/jobs/61/explain"}  # fmt: skip
    assert wanted <= with_names
    assert any(address.startswith("/api/v1/jobs?") for address in with_names)
    access = Access((LOOKS,), frozenset({"localhost"}))
    app = Gate(application(page.source, every_s=60.0), access)
    with TestClient(app, base_url="http://localhost", headers=bearer(LOOKS)) as one:
        assert SECRET in one.get("/api/v1/jobs").text


def test_users_see_their_own_names_and_reasons(page: Page) -> None:
    with client(page, ANN) as one:
        jobs = {job["id"]: job for job in one.get("/api/v1/jobs").json()["shown"]}
        me = one.get("/api/v1/users/ann").json()
        own = one.get("/api/v1/jobs/50").json()
        other = one.get("/api/v1/jobs/51").json()
    assert jobs["50"]["user"] == "ann"
    assert jobs["50"]["account"] == "ann-account"
    assert jobs["50"]["why"] == "limit: ann has too many jobs"
    assert (jobs["51"]["user"], jobs["51"]["account"], jobs["51"]["why"]) == ("", "", "limit")
    assert [job["id"] for job in me["jobs"]] == ["50"]
    assert own["job"]["user"] == "ann"
    assert other["job"]["user"] == ""
    assert other["job"]["nodes"] == 8


def test_a_hidden_user_cannot_be_told_from_one_that_does_not_exist(page: Page) -> None:
    with client(page, ANN) as one:
        for path in ("users/{}", "users/{}/"):
            hidden = one.get(f"/api/v1/{path.format(SECRET)}", follow_redirects=True)
            nobody = one.get(f"/api/v1/{path.format('nobody')}", follow_redirects=True)
            assert hidden.status_code == nobody.status_code == 404
            assert hidden.text.replace(SECRET, "") == nobody.text.replace("nobody", "")
        what_if = "/api/v1/what-if"
        answers = [
            one.post(what_if, json={"job": {"nodes": 1, "walltime_s": 60, "user": name}})
            for name in (SECRET, "nobody", "ann")
        ]
    assert [answer.status_code for answer in answers] == [404, 404, 200]
    assert all(SECRET not in answer.text for answer in answers[1:])


def test_what_if_and_live_updates_have_no_names_either(page: Page) -> None:
    with client(page, ANN) as one:
        for change in ({}, {"add_nodes": 4}, {"withdraw": ["51"]}, {"withdraw": ["nobody"]},
                       {"drain": ["nowhere"]}, {"policy": "nothing"}):  # fmt: skip
            assert SECRET not in one.post("/api/v1/what-if", json=change).text

    async def first(sees: Visibility) -> str:
        return await anext(Live(page.source).events(sees))

    assert SECRET in asyncio.run(first(Visibility()))
    assert SECRET not in asyncio.run(first(Visibility("ann", names=False)))


def test_live_updates_of_one_listener_do_not_reach_another(page: Page) -> None:
    live = Live(page.source)

    async def both() -> list[str]:
        return [await anext(live.events(sees)) for sees in
                (Visibility(), Visibility(names=False), Visibility("ann", names=False))]  # fmt: skip

    texts = asyncio.run(both())
    assert [SECRET in text for text in texts] == [True, False, False]


def test_an_assistant_without_names_is_told_none(page: Page) -> None:
    tools: dict[str, dict[str, Any]] = {
        "state": {}, "queue": {}, "when": {"job": "51"}, "explain_job": {"job": "61"},
        "explain_decision": {}, "what_if": {"change": {"add_nodes": 1}},
    }  # fmt: skip

    async def all_of_them(sees: Visibility) -> str:
        async with Client(assistant(page.source, sees)) as one:
            return " ".join([str(await one.call_tool(name, args)) for name, args in tools.items()])

    assert SECRET in asyncio.run(all_of_them(Visibility()))
    assert SECRET not in asyncio.run(all_of_them(Visibility(names=False)))


def test_runs_hide_names_too_in_answers_and_searches(tmp_path: Path) -> None:
    workload = generate("poisson", jobs=40, nodes=16, seed=3)
    result = simulate(workload, Cluster.uniform(nodes=16), policy="fcfs+easy")
    for name in ("a", "b"):
        write_run(result, tmp_path / name, {})
    source = RunSource(tmp_path / "a")
    names = sorted({one.user for one in source.jobs(RunJobFilter()).shown if one.user})
    if not names:
        pytest.fail("the generated jobs have no users")
    other, own = names[0], names[-1]
    app = together({name: run_part(tmp_path / name) for name in ("a", "b")})
    token = Token(own, "user", b"o" * 24)
    gate = Gate(app, Access((token,), frozenset({"localhost"}), hide_names=True))
    with TestClient(gate, base_url="http://localhost", headers=bearer(token)) as one:
        shown = one.get("/a/api/v1/jobs").json()["shown"]
        assert {job["user"] for job in shown} == {"", own}
        assert one.get(f"/a/api/v1/jobs?find={other}").json()["found"] == len(
            [job for job in shown if job["id"] == other]
        )
        assert one.get(f"/a/api/v1/jobs?find={own}").json()["found"] >= 1
        assert one.get(f"/a/api/v1/users/{other}").status_code == 404
        assert one.get(f"/a/api/v1/users/{own}").json()["found"] >= 1
        hidden = next(job["id"] for job in shown if not job["user"])
        assert one.get(f"/a/api/v1/jobs/{hidden}").json()["user"] == ""
