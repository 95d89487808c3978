"""``hpctwin report`` of a twin's journal: which policy ruled when, and the scores of all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.cli.app import main
from hpctwin.report.pages.decisions import Decided, plot_policies


def report(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as end:
        main(["report", *map(str, arguments)])
    return int(end.value.code)


def decided(chosen: list[str], step_s: float = 10.0) -> Decided:
    at = [1000.0 + step_s * i for i in range(len(chosen))]
    scores = [
        (t, policy, 1.0 + (policy != one))
        for t, one in zip(at, chosen, strict=True)
        for policy in "ab"
    ]
    return Decided(
        "x",
        pl.DataFrame({"time_s": at, "policy": chosen, "waiting": 1, "took_ms": 1.0}),
        pl.DataFrame(
            scores, {"time_s": pl.Float64, "policy": pl.String, "score": pl.Float64}, orient="row"
        ),
        1000.0 + step_s * len(chosen),
    )


@given(chosen=st.lists(st.sampled_from("ab"), min_size=1, max_size=30))
@settings(max_examples=30)
def test_each_moment_belongs_to_the_policy_that_was_chosen_last(chosen: list[str]) -> None:
    one = decided(chosen)
    ruled = one.ruled
    assert ruled["start_s"].to_list()[1:] == ruled["end_s"].to_list()[:-1]
    for i, policy in enumerate(chosen):
        at = 1005.0 + 10 * i
        (here,) = ruled.filter((pl.col("start_s") <= at) & (at < pl.col("end_s")))["policy"]
        assert here == policy
    assert ruled["decisions"].sum() == len(chosen)
    assert (ruled["policy"] != ruled["policy"].shift()).fill_null(value=True).all()


def test_the_figure_has_a_line_for_each_candidate_and_a_bar_for_each_stretch() -> None:
    figure = plot_policies(decided(["a", "a", "b", "a"]))
    top, below = figure.axes
    assert [line.get_label() for line in top.lines] == ["a", "b"]
    assert np.asarray(top.lines[1].get_ydata()).tolist() == [2.0, 2.0, 1.0, 2.0]
    assert len(below.patches) == 3
    assert [label.get_text() for label in below.get_yticklabels()] == ["a", "b"]


def test_a_journal_is_reported_with_policies_forecasts_and_how_it_was_made(
    make: Any, tmp_path: Path
) -> None:
    page = make()
    path, out = page.source.path, tmp_path / "report.html"
    assert report(path, "--html", out, "--figures", tmp_path / "f", "--figure-format", "svg") == 0
    assert [one.name for one in (tmp_path / "f").iterdir()] == ["policies.svg"]
    text = out.read_text()
    assert text.count("<img") == 1
    counted = page.source.decisions_by_policy()
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    cells = [re.findall(r'<td class="text">(.*?)</td>', row) for row in rows]
    told = {
        row[0]: int(row[3]) for row in cells if len(row) == 6 and row[0] in page.source.head().pool
    }
    assert {policy: count for policy, count in told.items() if count} == counted
    assert '<td class="text">command</td>' in text
    assert "wait forecast" in text or not any(row.forecasts for row in page.source.accuracy())
    assert not re.search(r"https?://|<script", re.sub(r'src="data:[^"]*"', "", text))


def test_a_file_that_is_no_journal_is_rejected_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.csv").write_text("job,wait\n")
    assert report(tmp_path / "run.csv", "--html", tmp_path / "x.html") in (1, 2)
    told = capsys.readouterr().err
    assert "run.csv" in told
    assert "Traceback" not in told
    assert not (tmp_path / "x.html").exists()
