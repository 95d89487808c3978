"""Tables fit a terminal of 80 columns without losing a word or a digit, and pipes fold nothing."""

from __future__ import annotations

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hpctwin.metrics import paired_differences
from hpctwin.report import (
    answer_table,
    compare_table,
    difference_table,
    paired_table,
    saved_table,
)

PARTS = (
    "fcfs",
    "-(wait/walltime)**3*nodes",
    "+easy:4/sjf",
    "+conservative",
    "@contiguous",
    "~psus:20m",
)


def summary(factor: float) -> dict[str, object]:
    return {
        "workload": "w", "cluster": "c", "nodes": 4360, "policy": "p", "jobs": 34547,
        "jobs_completed": 28262, "jobs_walltime": 6285, "jobs_rejected": 0,
        "mean_wait_s": 31_000 * factor, "median_wait_s": 1500 * factor, "p95_wait_s": 172_800 * factor,
        "max_wait_s": 828_000.0, "mean_bounded_slowdown": 2100.5 * factor, "utilization": 0.934,
        "makespan_s": 1.06e7, "total_energy_j": 3.6e12 * factor, "cost_eur": 250_000.0,
    }  # fmt: skip


def printed(table: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue().splitlines()


@given(
    labels=st.lists(
        st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join),
        min_size=2, max_size=5, unique=True,
    ),
    factors=st.lists(st.floats(0.01, 5), min_size=5, max_size=5),
)  # fmt: skip
def test_comparisons_fit_80_columns_and_lose_nothing(
    labels: list[str], factors: list[float]
) -> None:
    rows = {label: summary(factor) for label, factor in zip(labels, factors, strict=False)}
    for table in (compare_table(rows, width=80), difference_table(rows, width=80)):
        lines = printed(table, 80)
        assert not any("…" in line for line in lines)
        names = "".join(re.split(r" {2}", line.strip())[0].strip() for line in lines)
        assert all(label in names.replace(" ", "") for label in labels[1:])
    wide = "\n".join(printed(compare_table(rows), 100_000))
    assert all(re.search(rf"^ ?{re.escape(label)} ", wide, re.MULTILINE) for label in labels)


def test_differences_have_signs_and_shares_are_in_points() -> None:
    better = {**summary(0.5), "utilization": 0.944}
    text = "\n".join(printed(difference_table({"a": summary(1), "b": better}), 80))
    assert "−50.0 %" in text
    assert "+1.0 pts" in text
    assert "same" in text  # the makespan


def test_a_change_from_zero_is_printed_as_a_difference() -> None:
    base = {**summary(1), "median_wait_s": 0.0}
    text = "\n".join(printed(difference_table({"a": base, "b": summary(1)}), 80))
    assert "+25 min" in text


def test_an_answer_has_some_ten_lines_with_jobs_waits_use_energy_and_money() -> None:
    lines = printed(answer_table(summary(1)), 100_000)
    assert len(lines) <= 12
    text = "\n".join(lines)
    assert "34,547: 28,262 completed, 6,285 walltime" in text
    assert "mean 8.61 h, median 25 min, p95 2 d, max 9.58 d" in text
    assert "1,000.0 MWh" in text
    assert "250,000" in text
    assert "rejected" not in text


def test_columns_that_do_not_fit_go_into_a_table_below_and_lose_nothing() -> None:
    rows = {"fcfs+easy": summary(1), "wfp+easy~psus:20m": summary(0.5)}
    text = "\n".join(printed(compare_table(rows, width=76), 76))
    assert text.count("wfp+easy") == 2
    assert "1,000.0 MWh" in text
    assert "500.0 MWh*" in text
    assert "energy" in text
    assert "energy" in "\n".join(printed(compare_table(rows, width=60), 60))


def test_savings_of_policies_are_reported_in_joules_and_money() -> None:
    cheaper = summary(0.9) | {"cost_eur": 225_000.0}
    table = saved_table({"a": summary(1), "b": cheaper, "c": summary(1.1)}, width=80)
    text = "\n".join(printed(table, 80))
    assert "100.0 MWh, 10.0 %" in text
    assert "−100.0 MWh, −10.0 %" in text
    assert "25,000 EUR, 10.0 %" in text
    nothing = {"mean_wait_s": 1.0}
    assert saved_table({"a": nothing, "b": nothing}) is None


@given(labels=st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join),
                       min_size=2, max_size=4, unique=True))  # fmt: skip
def test_paired_differences_fit_80_columns_and_lose_nothing(labels: list[str]) -> None:
    runs = [
        {label: summary(1 + at * (0.1 + seed / 40)) for at, label in enumerate(labels)}
        for seed in range(6)
    ]
    lines = printed(paired_table(paired_differences(runs), width=80), 80)
    assert max(map(len, lines)) <= 80
    figures = next(line.index("metric") for line in lines if "metric" in line)
    names = "".join(line[:figures].strip() for line in lines[2:-1])
    assert not any("…" in line[: figures + 20] for line in lines)
    assert "significant" in lines[-1]
    assert all(label in names for label in labels[1:])
