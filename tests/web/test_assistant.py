"""An assistant is given typed answers; what users write reaches it only as marked data."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from hpctwin.rms.records.records import JobSpec
from hpctwin.web.server.assistant import INSTRUCTIONS, assistant, quoted
from tests.web.injections import CASES
from tests.web.page import Page

TOOLS: dict[str, dict[str, Any]] = {
    "state": {},
    "queue": {},
    "when": {"job": "99"},
    "explain_job": {"job": "99"},
    "explain_decision": {},
    "what_if": {"change": {"add_nodes": 4, "job": {"nodes": 2, "walltime_s": 60}}},
}


def call(server: Any, tools: dict[str, dict[str, Any]] = TOOLS) -> dict[str, Any]:
    """What each tool answers."""

    async def all_of_them() -> dict[str, Any]:
        async with Client(server) as client:
            return {name: await client.call_tool(name, args) for name, args in tools.items()}

    return asyncio.run(all_of_them())


def of_a_user(page: Page, text: str) -> None:
    """A job that waits, whose user, account and reason are this text."""
    spec = JobSpec(
        id="99", submit_s=page.setting.cluster.now_s, nodes=8, walltime_s=60, user=text, account=text,
        reason=text,
    )  # fmt: skip
    assert page.setting.cluster.submit(spec, 30).result == "done"
    page.setting.until(lambda: page.setting.twin.core.mirror.jobs.get("99") is not None)
    page.tell()


def outside_quotes(value: Any) -> list[str]:
    """All text of an answer that is not marked as somebody else's, keys too."""
    if isinstance(value, dict):
        if value.keys() == {"quoted"}:
            return []
        return [*value, *(text for one in value.values() for text in outside_quotes(one))]
    if isinstance(value, list):
        return [text for one in value for text in outside_quotes(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("text", CASES, ids=range(len(CASES)))
def test_text_of_users_is_data_wherever_it_is_shown(make: Any, text: str) -> None:
    page = make()
    plain = call(assistant(page.source), {k: v for k, v in TOOLS.items() if v != {"job": "99"}})
    of_a_user(page, text)
    answers = call(assistant(page.source))
    for name, answer in answers.items():
        assert not answer.is_error, (name, answer.content)
        ours = outside_quotes(answer.structured_content)
        assert not any(text in one or quoted(text).quoted in one for one in ours), name
        assert json.loads(answer.content[0].text) == answer.structured_content
        whole = json.dumps(answer.structured_content, ensure_ascii=False)
        assert not any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") for one in whole), name
        if name in plain and name != "queue":
            known = plain[name].structured_content
            assert answer.structured_content.keys() == known.keys()
    (job,) = [one for one in answers["queue"].structured_content["shown"] if one["id"] == "99"]
    assert job["user"] == job["account"] == quoted(text).model_dump()


def test_fifty_cases_are_tried() -> None:
    assert len(set(CASES)) >= 50


def test_no_tool_acts_and_each_says_so_with_typed_answers(make: Any) -> None:
    async def listed() -> tuple[Any, str | None]:
        async with Client(assistant(make().source)) as client:
            return (await client.list_tools()).tools, client.instructions

    tools, instructions = asyncio.run(listed())
    assert {tool.name for tool in tools} == TOOLS.keys()
    assert instructions == INSTRUCTIONS
    for tool in tools:
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
        assert tool.output_schema["type"] == "object"
        assert tool.description


@pytest.mark.parametrize(
    ("tool", "asked", "says"),
    [
        ("when", {"job": "--help"}, "job: String should match"),
        ("what_if", {"change": {"drain": ["nowhere"]}}, "unknown node 'nowhere'. Known: group="),
        ("what_if", {"change": {"policy": "rm -rf"}}, "rm -rf"),
        ("what_if", {"change": {"add_nodes": 10**9}}, "change.add_nodes: Input should be less"),
        ("what_if", {"change": {"add_node": 1}}, "change.add_node: Extra inputs"),
        ("queue", {"limit": 0}, "limit: Input should be greater"),
        ("explain_decision", {"number": 999}, "no decision 999"),
        ("state", None, ""),
    ],
)
def test_an_assistant_is_told_in_one_sentence_why_a_tool_failed(
    make: Any, tool: str, asked: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    page = make()
    if asked is None:  # the journal is gone
        page.source.path = page.source.path.with_name("none.sqlite")
        says = "none.sqlite"
    (answer,) = call(assistant(page.source), {tool: asked or {}}).values()
    assert answer.is_error
    (content,) = answer.content
    assert says in content.text
    assert "\n" not in content.text
    assert not any(record.exc_info for record in caplog.records)


def test_sentences_are_whole_and_no_start_is_in_the_past(make: Any) -> None:
    page = make()
    long = " ".join(["word"] * 100)
    assert quoted(long, 2000).quoted == long
    with page.source.looking() as stands:
        told = next(iter(stands.forecasts.values()))
        times = {"start_s": -50.0, "low_s": -90.0, "high_s": 205.0}
        late = {
            job: told._replace(job_id=job, **{n: stands.now_s + by for n, by in times.items()})
            for job in stands.core.mirror.jobs
        }
        page.source._stands = replace(stands, forecasts=late)
        page.source.version += 1
    source = page.source
    source.turn = lambda journal: False
    answers = call(assistant(source), {"queue": {}, "explain_decision": {}})
    shown = answers["queue"].structured_content["shown"]
    waits = [job for job in shown if job["state"] == "waiting"]
    assert waits
    for job in waits:
        assert job["starts_in_s"] == 0.0
        assert job["between_s"] == [0.0, 205.0]
    for sentence in answers["explain_decision"].structured_content["why"]:
        assert sentence["quoted"][-1] in ".:;"


def test_no_expected_error_writes_a_traceback(make: Any) -> None:
    page = make()
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
         "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
         "params": {"name": "what_if", "arguments": {"change": {"policy": "rm -rf"}}}},
    ]  # fmt: skip
    server = subprocess.Popen(
        [sys.executable, "-m", "hpctwin", "mcp", "--journal", str(page.source.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    for request in requests:
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline()) if "id" in request else None
    _, errors = server.communicate(timeout=120)
    assert answer is not None
    assert "rm -rf" in answer["result"]["content"][0]["text"]
    assert errors == ""


def test_the_command_serves_a_client_over_its_standard_input(make: Any) -> None:
    page = make()
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "hpctwin", "mcp", "--journal", str(page.source.path)],
        env=dict(os.environ),
    )
    tools = {"state": {}, "what_if": {"change": {"add_nodes": 100}}}
    answers = call(server, tools)
    assert answers["state"].structured_content["nodes"] == 8
    futures = answers["what_if"].structured_content
    assert futures["changed"]["metrics"]["mean_wait_s"] < futures["as_is"]["metrics"]["mean_wait_s"]
