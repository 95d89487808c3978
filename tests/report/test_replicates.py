"""Runs that differ only in the trace or the seed: means with their spread; scales that are honest."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpctwin import generate, simulate
from hpctwin.metrics.comparison import shares_of_best
from hpctwin.report.figures.comparison import plot_compare_bars, plot_radar
from hpctwin.report.pages.all_figures import Drawn, report_figures
from hpctwin.report.pages.run import ReportedRun, read_run, write_run

POLICIES = ("fcfs+easy", "sjf+easy")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[ReportedRun]:
    """Seven runs of each policy, each on another trace."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(7):
        trace = generate("poisson", jobs=60, nodes=16, load=0.9, seed=seed)
        file = folder / f"{seed}.swf"
        file.write_text(f"{seed}\n")
        for policy in POLICIES:
            write_run(
                simulate(trace, 16, policy), folder / f"{policy}-{seed}", {"seed": 0},
                inputs=[file],
            )  # fmt: skip
    return [read_run(one) for one in sorted(folder.glob("*-*"))]


def drawn(entries: list[ReportedRun]) -> dict[str, Drawn]:
    import dataclasses

    named = [dataclasses.replace(e, label=f"{e.label} {i}") for i, e in enumerate(entries)]
    return {one.name: one for one in report_figures(named)}


def test_replicates_are_drawn_as_means_with_points_and_error_bars(runs: list[ReportedRun]) -> None:
    found = drawn(runs)
    ax = found["bars"].figure.axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == list(POLICIES)
    waits = [
        [e.summary["mean_wait_s"] for e in runs if e.manifest["policy"] == p] for p in POLICIES
    ]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([np.mean(w) for w in waits])
    assert len(ax.containers) == 3, "the bars, and an error bar for each"
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert sorted(points[0].get_xdata()) == pytest.approx(sorted(waits[0]))
    assert "95 % interval" in found["bars"].caption
    names = [name for name in found if name.startswith("gantt")]
    assert len(names) == len(POLICIES), "charts over time of the first run of each policy"
    legend = [text.get_text() for text in found["wait-cdf"].figure.legends[0].get_texts()]
    assert legend == list(POLICIES)


def test_few_replicates_are_points_without_an_error_bar(runs: list[ReportedRun]) -> None:
    few = [e for e in runs if e.manifest["inputs"] and json.dumps(e.manifest["inputs"])]
    few = few[:3] + few[7:10]
    ax = drawn(few)["bars"].figure.axes[0]
    assert len(ax.containers) == 1
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 3]


def test_other_clusters_options_or_the_same_trace_again_are_no_replicates(
    runs: list[ReportedRun],
) -> None:
    import dataclasses

    first, second = runs[:2]
    assert first.manifest["policy"] == second.manifest["policy"]
    again = dataclasses.replace(first)
    options = {"seed": 0, "overrun": "extend"}
    changed = dataclasses.replace(second, manifest={**second.manifest, "options": options})
    larger = dataclasses.replace(second, manifest={**second.manifest, "cluster": {"name": "x"}})
    for other in (again, changed, larger):
        ax = drawn([first, other])["bars"].figure.axes[0]
        assert len(ax.get_yticklabels()) == 2
        assert not ax.lines


def test_a_small_difference_is_small_in_a_kiviat_diagram() -> None:
    better = np.array([False, True])
    shares = shares_of_best(np.array([[100.0, 0.92], [200.0, 0.86], [100.0, 0.46]]), better)
    np.testing.assert_allclose(shares, [[1, 1], [0.5, 0.86 / 0.92], [1, 0.5]])
    np.testing.assert_allclose(shares_of_best(np.array([[0.0], [5.0]]), better[:1]), [[1], [0]])
    np.testing.assert_allclose(shares_of_best(np.zeros((2, 2)), better), np.ones((2, 2)))
    summaries = {
        name: {"max_wait_s": 10.0, "mean_wait_s": wait, "max_slowdown": 2.0, "utilization": use}
        for name, wait, use in (("a", 5.0, 0.92), ("b", 5.5, 0.86))
    }
    best = plot_radar(summaries).axes[0]
    assert min(best.lines[1].get_ydata()) > 0.9
    assert [text.get_text() for text in best.get_yticklabels()][-1] == "100 %"
    assert min(plot_radar(summaries, scale="range").axes[0].lines[1].get_ydata()) == 0


def test_no_label_of_a_kiviat_diagram_is_cut() -> None:
    summaries = {
        f"policy-with-a-long-name-{i}": {
            "max_wait_s": 10.0 + i, "mean_wait_s": 5.0, "max_slowdown": 2.0,
            "mean_slowdown": 2.0, "utilization": 0.9,
        }
        for i in range(6)
    }  # fmt: skip
    figure = plot_radar(summaries)
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0) > -0.05
    assert box.x1 < width + 0.05
    assert box.y1 < height + 0.05


def test_bars_without_replicates_have_no_spread() -> None:
    ax = plot_compare_bars({"a": {"mean_wait_s": 3.0}, "b": {"mean_wait_s": 5.0}}).axes[0]
    assert not ax.lines
