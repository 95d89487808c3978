"""The OpenAPI document: enough for a program that reads nothing else."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hpctwin import Cluster, generate, simulate
from hpctwin.report.pages.run import write_run
from hpctwin.web.server.answers import OPEN_PATHS
from hpctwin.web.server.api import application
from hpctwin.web.server.assembly import together
from hpctwin.web.server.gate import Access
from hpctwin.web.server.serve import run_application, run_part
from hpctwin.web.views.runs import RunSource
from tests.web.page import ACTS, Page
from tests.web.test_limits import served

OPERATIONS = {
    "accuracy", "approve", "bars", "decision", "decisions", "events", "explain_decision",
    "explain_job", "healthz", "history_periods", "job", "jobs", "kill_switch", "lines", "me",
    "metrics", "node", "nodes", "partition", "readyz", "state", "timeline", "timeline_at", "timeline_picture",
    "user", "what_if", "when",
}  # fmt: skip


@pytest.fixture
def documents(make: Any, tmp_path: Path) -> dict[str, Any]:
    workload = generate("poisson", jobs=30, nodes=8, seed=3)
    write_run(simulate(workload, Cluster.uniform(nodes=8), policy="fcfs+easy"), tmp_path / "r", {})
    apps = {
        "twin": application(make().source),
        "run": run_application(RunSource(tmp_path / "r")),
        "together": together({"a": run_part(tmp_path / "r")}),
    }
    return {name: app.openapi() for name, app in apps.items()}


def operations(document: Any) -> Iterator[tuple[str, Any]]:
    for path, methods in document["paths"].items():
        yield from ((path, operation) for operation in methods.values())


def test_operations_have_stable_names(documents: Any) -> None:
    named = [one["operationId"] for _, one in operations(documents["twin"])]
    assert sorted(named) == sorted(OPERATIONS)


def test_a_token_is_required_wherever_the_server_requires_one(documents: Any) -> None:
    for document in documents.values():
        assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
        assert document["security"] == [{"token": []}]
        for path, one in operations(document):
            assert (one.get("security") == []) is (path in OPEN_PATHS), path
            assert ("401" in one["responses"]) is (path not in OPEN_PATHS)


def test_everything_is_described(documents: Any) -> None:
    for document in documents.values():
        for name, schema in document["components"]["schemas"].items():
            for field, about in schema.get("properties", {}).items():
                assert about.get("description"), (name, field)
        for path, one in operations(document):
            assert one.get("description"), path
            for parameter in one.get("parameters", []):
                assert parameter.get("description"), (path, parameter["name"])


def test_errors_are_listed_as_problems_where_they_can_happen(documents: Any) -> None:
    by_name = {one["operationId"]: one["responses"] for _, one in operations(documents["twin"])}
    assert {"400", "403", "409", "413", "422"} <= by_name["approve"].keys()
    assert "403" not in by_name["state"]
    assert "404" not in by_name["state"]
    assert "404" in by_name["decision"]
    for responses in by_name.values():
        for status, about in responses.items():
            if status != "200":
                assert list(about["content"]) == ["application/problem+json"]


def test_every_body_has_an_example_and_all_examples_are_valid(documents: Any) -> None:
    for document in documents.values():
        schemas = document["components"]["schemas"]
        for _, one in operations(document):
            for content in one.get("requestBody", {}).get("content", {}).values():
                name = content["schema"]["$ref"].rpartition("/")[2]
                assert schemas[name]["examples"]
        for name, schema in schemas.items():
            for example in schema.get("examples", []):
                whole = {
                    "$ref": f"#/components/schemas/{name}",
                    "components": document["components"],
                }
                jsonschema.validate(example, whole)


def test_a_generated_client_in_python_works(make: Any, tmp_path: Path) -> None:
    from openapi_python_client import Config, MetaType, generate
    from openapi_python_client.config import ConfigFile

    page: Page = make()
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(application(page.source).openapi()))
    config = Config.from_sources(
        ConfigFile(post_hooks=[], package_name_override="hpctwin_client"),
        MetaType.NONE, document, "utf-8", overwrite=True, output_path=tmp_path / "hpctwin_client",
    )  # fmt: skip
    problems = [one for one in generate(config=config) if "event-stream" not in str(one)]
    assert [f"{one.header} {one.detail}" for one in problems] == []
    sys.path.insert(0, str(tmp_path))
    try:
        with served(page, Access((ACTS,), frozenset({"127.0.0.1"}))) as port:
            _use(f"http://127.0.0.1:{port}", page)
    finally:
        sys.path.remove(str(tmp_path))
        for name in [name for name in sys.modules if name.startswith("hpctwin_client")]:
            del sys.modules[name]


def _use(address: str, page: Page) -> None:
    """What a user's program does."""
    package = importlib.import_module("hpctwin_client")
    models = importlib.import_module("hpctwin_client.models")

    def call(module: str, *args: Any, **options: Any) -> Any:
        return importlib.import_module(f"hpctwin_client.api.{module}").sync(
            *args, client=client, **options
        )

    client = package.AuthenticatedClient(base_url=address, token=ACTS.secret.decode(), timeout=120)
    state = call("look.state")
    assert (state.nodes, state.cluster) == (8, page.source.head().cluster)
    found = call(
        "look.jobs", state=[models.JobsStateItem.WAITING], sort=models.JobsSort.WAIT_S, limit=2
    )
    assert found.found == state.waiting
    forecast = call("ask.when", found.shown[0].id)
    assert forecast.state in ("waiting", "starting", "stuck")
    assert forecast.why
    missing = call("ask.when", "4711")
    assert (missing.status, missing.title) == (404, "Not Found")
    answer = call("ask.what_if", body=models.Change(add_nodes=100))
    assert answer.changed.metrics["mean_wait_s"] < answer.as_is.metrics["mean_wait_s"]
    page.switch.touch()
    assert call("act.kill_switch", body=models.KillSwitch(thrown=False)).thrown is False
    assert not page.switch.exists()
    stranger = package.AuthenticatedClient(base_url=address, token="x" * 20)
    module = importlib.import_module("hpctwin_client.api.look.state")
    assert module.sync(client=stranger).status == 401
    for one in (client, stranger):
        one.get_httpx_client().close()
