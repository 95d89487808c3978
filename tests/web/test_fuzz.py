"""Whatever is sent, the REST interface answers as its own document says."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from hpctwin.web import gate
from hpctwin.web.access import Access
from hpctwin.web.api import application
from tests.web.page import Page

EXAMPLES = 15


def test_no_request_is_answered_by_a_fault_of_the_server(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "PER_S", 1e9)
    page = Page(tmp_path)
    app = application(page.source, Access((), frozenset()), kill_switch=page.switch)
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
    tried = 0
    try:
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.path == "/api/v1/events":
                continue  # it never ends
            tried += 1

            _answers_as_documented(operation)
    finally:
        page.close()
    assert tried >= 12


def _answers_as_documented(operation: Any) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    def one(case: Any) -> None:
        answer = case.call()
        assert answer.status_code < 500 or operation.path == "/readyz", answer.text
        case.validate_response(answer)

    one()
