from __future__ import annotations

import pytest

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.metrics import breakdown
from tests.metrics.metric_frames import frame, job


def test_sizes_form_classes_up_to_powers_of_two() -> None:
    jobs = frame(*(job(0, 0, 10, nodes) for nodes in (1, 2, 3, 4, 5, 8, 9)))
    table = breakdown(jobs, "size")
    assert table["bin"].to_list() == ["1", "2", "3–4", "5–8", "9–16"]
    assert table["jobs"].to_list() == [1, 1, 2, 2, 1]


def test_statistics_are_over_jobs_that_ran() -> None:
    jobs = frame(job(0, 10, 3610, 2), job(0, 30, 3630, 2), job(0, 90, None, 2), job(0, nodes=2))
    row = breakdown(jobs, "size").row(0, named=True)
    assert row == {
        "bin": "2",
        "jobs": 4,
        "ran_jobs": 2,
        "mean_wait_s": 20,
        "median_wait_s": 20,
        "p95_wait_s": pytest.approx(29),
        "mean_bounded_slowdown": pytest.approx(1 + 20 / 3600),
        "node_hours": 4,
    }


def test_a_walltime_at_a_limit_is_the_top_of_its_class() -> None:
    hours = (0.2, 0.5, 1, 1.01, 24, 200)
    jobs = frame(*(job(0, 0, 5, walltime_s=h * 3600) for h in hours))
    table = breakdown(jobs, "walltime")
    assert table.select("bin", "jobs").rows() == [
        ("≤ 30 min", 2),
        ("30 min – 1 h", 1),
        ("1 h – 2 h", 1),
        ("12 h – 1 d", 1),
        ("> 7 d", 1),
    ]


def test_edges_can_be_given() -> None:
    jobs = frame(*(job(0, 0, 5, nodes) for nodes in (1, 10, 11, 99)))
    assert breakdown(jobs, "size", [10, 50]).select("bin", "jobs").rows() == [
        ("1–10", 2),
        ("11–50", 1),
        ("> 50", 1),
    ]


def test_labels_come_by_falling_node_hours() -> None:
    jobs = frame(
        job(0, 0, 5, user="ada"), job(0, 0, 9, user="bob"), job(0, 0, 1), job(0, user="eve")
    )
    table = breakdown(jobs, "user")
    assert table["bin"].to_list() == ["bob", "ada", "unknown", "eve"]
    assert table["mean_wait_s"].to_list() == [0, 0, 0, None]


@pytest.mark.parametrize("by", ["size", "walltime", "user", "account", "partition", "state"])
def test_no_jobs_give_no_rows(by: str) -> None:
    assert breakdown(frame(), by).is_empty()  # type: ignore[arg-type]


def test_unknown_names_are_named() -> None:
    with pytest.raises(UnknownNameError, match="'user'"):
        breakdown(frame(), "usr")  # type: ignore[arg-type]


@pytest.mark.parametrize("edges", [[], [2, 1], [1, 1]])
def test_edges_must_rise(edges: list[float]) -> None:
    with pytest.raises(ConfigError, match="increasing"):
        breakdown(frame(), "size", edges)


def test_labels_have_no_edges() -> None:
    with pytest.raises(ConfigError, match="user"):
        breakdown(frame(), "user", [1, 2])
