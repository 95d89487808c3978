"""A twin watched by other programs: Prometheus, Grafana, a terminal."""

from __future__ import annotations

import io
import json
import re
from importlib import resources
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from starlette.testclient import TestClient

from hpctwin import Cluster, generate, simulate
from hpctwin.cli.app import main
from hpctwin.cli.live.screen import render
from hpctwin.cli.live.top import live_view, seen
from hpctwin.report.pages.run import write_run
from hpctwin.web.server.api import application
from hpctwin.web.server.assembly import Part, together
from hpctwin.web.server.gate import Gate
from hpctwin.web.server.serve import run_part


def _exposed(page: Any) -> dict[str, Any]:
    with page.client() as client:
        text = client.get("/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_readiness_of_several_parts_is_answered_at_the_root(make: Any, tmp_path: Any) -> None:
    page = make()
    workload = generate("poisson", jobs=30, nodes=8, seed=3)
    write_run(simulate(workload, Cluster.uniform(nodes=8), policy="fcfs+easy"), tmp_path / "r", {})
    app = application(page.source, every_s=0.02)
    parts = {"hawk": Part(app, app.state.live, page.source.shown), "r": run_part(tmp_path / "r")}
    with TestClient(Gate(together(parts), page.access), base_url="http://localhost") as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        page.setting.twin.status_writer.write(ended=True)
        page.setting.until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/readyz").json()["detail"] == "hawk: the twin is not running"


def _dashboard() -> Any:
    return json.loads((resources.files("hpctwin.web") / "static" / "grafana.json").read_text())


def test_grafana_asks_only_for_metrics_and_labels_that_there_are(make: Any) -> None:
    exposed = _exposed(make())
    known = {sample.name for family in exposed.values() for sample in family.samples}
    known |= {name for name, family in exposed.items() if family.type == "gauge"}
    # A machine that does not say what it draws has no power.
    known |= {"hpctwin_power_watts"}
    labels = {key for family in exposed.values() for one in family.samples for key in one.labels}
    for panel in _dashboard()["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"hpctwin_\w+", target["expr"])) <= known, target["expr"]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= {*labels, "wait"}


def test_the_panels_of_the_dashboard_are_next_to_each_other_within_the_page() -> None:
    board = _dashboard()
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        taken |= cells
        assert panel["datasource"]["uid"] == "${source}"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert {one["name"] for one in board["templating"]["list"]} == {"source", "instance", "page"}


VARIABLE = {
    "type",
    "name",
    "label",
    "hide",
    "query",
    "datasource",
    "current",
    "multi",
    "refresh",
    "includeAll",
    "allValue",
}
DEMANDED: dict[str, tuple[str, set[str]]] = {
    "board": ("schemaVersion templating annotations", {"id", "uid", "title", "description", "tags",
              "timezone", "editable", "time", "refresh", "version", "panels", "links"}),
    "variable": ("type name", VARIABLE),
    "current": ("text value", {"selected"}),
    "panel": ("type", {"id", "targets", "title", "description", "datasource", "gridPos", "options",
              "fieldConfig"}),
    "gridPos": ("h w x y", {"static"}),
    "fieldConfig": ("defaults overrides", set()),
    "target": ("refId expr", {"datasource", "legendFormat", "instant", "range", "format", "hide"}),
    "stat": ("graphMode colorMode justifyMode textMode wideLayout showPercentChange percentChangeColorMode "
             "orientation reduceOptions", {"text"}),
    "reduceOptions": ("calcs", {"fields", "values", "limit"}),
    "timeseries": ("legend tooltip", {"timezone", "orientation"}),
    "legend": ("displayMode placement showLegend calcs", {"sortBy", "sortDesc", "width", "isVisible"}),
    "tooltip": ("mode sort", {"maxWidth", "maxHeight", "hideZeros"}),
}  # fmt: skip
"""What must be there and what else may be, by Grafana's own schemas: dashboard, prometheus, stat and
timeseries in grafana-foundation-sdk/jsonschema (June 2026). Of what may be there, as far as it is used."""


def test_the_dashboard_has_what_grafanas_schemas_ask_for_and_nothing_unknown() -> None:
    board = _dashboard()

    def holds(what: str, found: dict[str, Any]) -> None:
        required, more = DEMANDED[what]
        assert set(required.split()) <= set(found), (what, found)
        assert set(found) <= {*required.split(), *more}, (what, found)

    holds("board", board)
    assert isinstance(board["schemaVersion"], int)
    for one in board["templating"]["list"]:
        holds("variable", one)
        holds("current", one["current"])
    for panel in board["panels"]:
        for what in ("panel", "gridPos", "fieldConfig", panel["type"]):
            holds(what, {"panel": panel, panel["type"]: panel["options"], **panel}[what])
        for part in ("reduceOptions", "legend", "tooltip"):
            if part in panel["options"]:
                holds(part, panel["options"][part])
        assert panel["fieldConfig"]["defaults"]["unit"] in ("short", "s", "percentunit", "watt")
        for target in panel["targets"]:
            holds("target", target)


def test_decisions_are_counted_by_the_policy_chosen(make: Any) -> None:
    page = make()
    counted = page.source.decisions_by_policy()
    exposed = {
        sample.labels["policy"]: sample.value
        for sample in _exposed(page)["hpctwin_policy_decisions"].samples
        if sample.name.endswith("_total")
    }
    assert counted == exposed
    journal = page.setting.journal
    chosen = [journal.read_decision(i)["policy"] for i in journal.decision_ids(1000)]
    assert counted == {policy: chosen.count(policy) for policy in set(chosen)}


def test_power_is_what_computing_and_idle_nodes_draw_by_the_machines_description(
    make: Any,
) -> None:
    page = make()
    assert page.source.head().energy is None
    mirror = page.source.core.mirror
    group = mirror.machine.nodes[0].model_dump() | {
        "modes": {"base": {"power_w": 200.0, "idle_w": 50.0}}
    }
    machine = type(mirror.machine).model_validate({"name": "m", "nodes": [group]})
    mirror.machine = machine
    page.source.version += 1
    busy = len({name for job in mirror.jobs.values() for name in job.node_names})
    assert busy
    energy = page.source.head().energy
    assert energy.power_w == 200 * busy + 50 * (len(mirror.nodes) - busy)


def test_the_terminal_shows_what_the_page_does(make: Any) -> None:
    page = make()
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(seen(page.source), None, 120)[0])
    text = console.export_text()
    head = page.source.head()
    assert f"{head.running} running, {head.waiting} pending" in text
    for job in page.source.job_views():
        assert job.state == "running" or re.search(rf"^ *{job.id} ", text, re.MULTILINE)
    assert "decisions by policy" in text


def test_twin_top_shows_a_journal_once_where_there_is_no_terminal(
    make: Any, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    page = make()
    for journal, code in ((page.source.path, 0), (tmp_path / "none.sqlite", 2)):
        with pytest.raises(SystemExit) as end:
            main(["twin", "top", "--journal", str(journal)])
        assert end.value.code == code
    told = capsys.readouterr()
    assert "3 pending jobs by predicted start" in told.out
    assert "none.sqlite" in told.err
    assert "Traceback" not in told.err


def test_a_terminal_says_would_start_where_the_page_does(make: Any) -> None:
    page = make(running=False, act={"mode": "observe"})
    twin, file = page.setting.twin, io.StringIO()
    with live_view(twin, Console(file=file, force_terminal=True, width=100, height=40)):
        twin.watch(twin.decision)
    assert "It would start" in file.getvalue()
    page.look()
    assert any(line.startswith("It would start") for line in seen(page.source).lines)
