"""An assistant is given typed answers; what users write reaches it only as marked data."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import unicodedata
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


def test_a_question_that_makes_no_sense_is_answered_in_words(make: Any) -> None:
    wrong = {
        "when": {"job": "--help"},
        "what_if": {"change": {"drain": ["nowhere"]}},
        "queue": {"limit": 0},
        "explain_decision": {"number": 999},
    }
    for name, answer in call(assistant(make().source), wrong).items():
        assert answer.is_error, name
        assert answer.content[0].text


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
