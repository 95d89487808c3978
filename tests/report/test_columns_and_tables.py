from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from rich.console import Console
from rich.table import Table

from hpctwin.cli.data import import_site
from hpctwin.cli.learning import predictor
from hpctwin.cli.live import facility_live
from hpctwin.cli.output import plain_table
from hpctwin.metrics import Summary, breakdown
from hpctwin.report import compare_table, summary_table
from hpctwin.report.accessor import breakdown_table
from hpctwin.report.columns import COLUMNS, best_labels, format_metric, metric_name
from hpctwin.report.tables import answer_table
from tests.report.report_runs import entries

WAIT = COLUMNS[0]
UTILIZATION = next(column for column in COLUMNS if column.key == "utilization")


def printed(table: Table, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("mean_wait_s", 12240.0, "3.4 h"),
        ("mean_wait_s", None, "–"),
        ("utilization", 0.8421, "84.2 %"),
        ("utilization_while_queued", 1.0, "100.0 %"),
        ("idle_while_queued_fraction", 0.05, "5.0 %"),
        ("share_unfairly_delayed", 0.5, "50.0 %"),
        ("wasted_node_s", 7200.0, "2.0 node-hours"),
        ("total_energy_j", 13_200.0, "13,200 J"),
        ("total_energy_j", 3.6e5, "0.1 kWh"),
        ("total_energy_j", 0.0, "0.0 kWh"),
        ("jobs", 24123, "24,123"),
        ("max_slowdown", 12345.6, "12,346"),
        ("mean_bounded_slowdown", 5.678, "5.68"),
        ("jain_fairness_user", 0.98765, "0.988"),
    ],
)
def test_values_have_units_for_people(key: str, value: float | None, text: str) -> None:
    assert format_metric(key, value) == text


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("mean_wait_s", "mean wait"),
        ("p95_pp_bounded_slowdown", "p95 per-processor bounded slowdown"),
        ("jobs_node_failure", "jobs node failure"),
        ("makespan_s", "makespan"),
    ],
)
def test_metrics_have_names_in_words(key: str, name: str) -> None:
    assert metric_name(key) == name


def test_the_best_is_the_lowest_wait_and_the_highest_utilization() -> None:
    summaries: dict[str, Summary] = {
        "a": {"mean_wait_s": 5.0, "utilization": 0.9},
        "b": {"mean_wait_s": 3.0, "utilization": 0.8},
        "c": {"mean_wait_s": None},
    }
    assert best_labels(WAIT, summaries) == {"b"}
    assert best_labels(UTILIZATION, summaries) == {"a"}


def test_values_that_look_the_same_share_the_mark_or_have_none() -> None:
    summaries: dict[str, Summary] = {
        "a": {"utilization": 0.90001},
        "b": {"utilization": 0.90002},
        "c": {"utilization": 0.5},
    }
    assert best_labels(UTILIZATION, summaries) == {"a", "b"}
    del summaries["c"]
    assert best_labels(UTILIZATION, summaries) == set()


def test_policies_are_rows_and_the_best_is_marked_without_colours() -> None:
    text = printed(compare_table({e.label: e.summary for e in entries()}, title="Two policies"))
    assert "Two policies" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "*" in rows["easy"]
    assert "*" not in rows["fcfs"]
    assert "* best of its column" in text


def test_the_comparison_fits_80_columns() -> None:
    summary = {**entries()[0].summary, "engine_ms": 123.0}
    text = printed(compare_table({"conservative": summary, "easy": entries()[1].summary}))
    assert "…" not in text
    assert "conservati" in text
    assert "engine" in text


def test_with_energy_a_comparison_in_80_columns_still_names_the_policies() -> None:
    summary = {
        "mean_wait_s": 97_200.0, "median_wait_s": 23_000.0, "p95_wait_s": 600_000.0,
        "mean_bounded_slowdown": 590.0, "utilization": 0.936, "makespan_s": 101 * 86_400.0,
        "total_energy_j": 4.3e11, "engine_ms": 1436.0,
    }  # fmt: skip
    other = {key: 0.9 * value for key, value in summary.items()}
    text = printed(compare_table({"fcfs+easy": summary, "sjf+pack~psas-auto:20m": other}))
    assert "fcfs+easy" in text
    assert "sjf+pack" in text
    assert "119.4 MWh" in text
    assert "…" not in text


def test_engine_time_is_a_column_only_where_it_is_known() -> None:
    assert "engine" not in printed(compare_table({"easy": entries()[0].summary}))


@pytest.mark.parametrize("name", ["[red]x", "log[old]", "m[/x]", "a\\[b]"])
def test_labels_are_no_markup(name: str) -> None:
    summary = entries()[0].summary
    named = summary | {"workload": name, "cluster": name, "policy": name, "nodes": 1}
    by_user = breakdown(entries()[0].jobs.with_columns(user=pl.lit(name)), "user")
    run = f"{name} on {name} (1 node) under {name}"
    assert name in printed(compare_table({name: summary}))
    assert run in printed(answer_table(named))
    assert printed(summary_table(named)).count(name) == 3
    assert printed(breakdown_table(by_user, "user", name), 200).count(name) == 2
    assert name in printed(plain_table((name,), [("x",)]))
    assert name in printed(plain_table(("x",), [(name,)]))


@pytest.mark.parametrize("name", ["[red]x", "log[old]", "m[/x]"])
def test_names_in_tables_of_the_twin_and_of_learning_are_no_markup(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = SimpleNamespace(key=name, nodes=1, walltime_s=60.0)
    job = SimpleNamespace(request=request, stage=name, cluster=name, job_id=name, reason=name)
    queue = SimpleNamespace(entries=lambda *_: [job])
    monkeypatch.setattr(facility_live, "_queue", lambda _: nullcontext(queue))
    facility_live.queue_command(Path("none.yaml"))
    assert capsys.readouterr().out.count(name) == 5
    monkeypatch.setattr(import_site, "fidelity_tables", lambda _: {"": (("job",), [(name,)])})
    import_site.print_fidelity(cast(Any, SimpleNamespace(refused=())))
    assert name in capsys.readouterr().out
    seconds = dict.fromkeys(("width_s", "median_error_s", "walltime_error_s", "queue_error_s"), 1.0)
    shares = dict.fromkeys(("covered", "within_1min", "width_ratio"), 1.0)
    rows = pl.DataFrame({"bin": [name], "forecasts": [1], **seconds, **shares})
    assert name in printed(predictor._forecasts(rows, name), 200)


def test_nothing_to_compare_is_an_empty_table() -> None:
    assert "policy" in printed(compare_table({}))


def test_a_summary_has_a_row_for_each_metric() -> None:
    summary = entries()[0].summary
    table = summary_table(summary, title="fcfs")
    assert table.row_count == len(summary)
    assert "utilization with pending jobs" in printed(table)
