"""Whatever is sent, the REST interfaces answer as their own documents say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from hpctwin import Cluster, generate, simulate
from hpctwin.report.pages.run import write_run
from hpctwin.web.server import gate
from hpctwin.web.server.api import application
from hpctwin.web.server.assembly import together
from hpctwin.web.server.gate import Access, Gate
from hpctwin.web.server.serve import run_application, run_part
from hpctwin.web.views.runs import RunSource
from tests.web.page import ACTS, Page, bearer

EXAMPLES = 15
HANG_S = 600
"""On a busy machine an answer may take much longer than the 10 s that are waited for by default."""


@pytest.fixture(autouse=True)
def at_any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "PER_S", 1e9)


def test_no_request_to_a_twins_page_causes_a_server_error(tmp_path: Any) -> None:
    page = Page(tmp_path)
    try:
        _all_answer_as_documented(application(page.source, kill_switch=page.switch), 15)
    finally:
        page.close()


def test_no_request_to_a_runs_page_causes_a_server_error(tmp_path: Path) -> None:
    workload = generate("poisson", jobs=30, nodes=8, seed=3)
    write_run(
        simulate(workload, Cluster.uniform(nodes=8), policy="fcfs+easy"), tmp_path / "run", {}
    )
    _all_answer_as_documented(run_application(RunSource(tmp_path / "run")), 8)
    _all_answer_as_documented(together({"a": run_part(tmp_path / "run")}), 2)


def _all_answer_as_documented(app: Any, least: int) -> None:
    schema = schemathesis.openapi.from_asgi(
        "/api/v1/openapi.json", Gate(app, Access((ACTS,), frozenset())), headers=bearer(ACTS)
    )
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/api/v1/events":
            continue  # it never ends
        tried += 1
        _answers_as_documented(operation)
    assert tried >= least


def _answers_as_documented(operation: Any) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    def one(case: Any) -> None:
        answer = case.call(timeout=HANG_S, headers=bearer(ACTS))
        assert answer.status_code < 500 or operation.path == "/readyz", answer.text
        # On a busy machine the twin of this test may count as ended.
        late = [schemathesis.checks.not_a_server_error] if operation.path == "/readyz" else []
        case.validate_response(answer, excluded_checks=late)

    one()
