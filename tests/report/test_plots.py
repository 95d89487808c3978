from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from hpctwin import simulate
from hpctwin.metrics import paired_differences, series
from hpctwin.model import Cluster, Workload
from hpctwin.report import (
    plot_compare_bars,
    plot_differences,
    plot_gantt,
    plot_power,
    plot_queue,
    plot_radar,
    plot_radars,
    plot_utilization,
    plot_wait_by_size,
    plot_wait_cdf,
    plot_wait_heat,
    plot_workload,
)
from hpctwin.report.energy import plot_node_states
from hpctwin.report.figures.style import FADED, MOST, PALETTE, node_ticks
from tests.report.report_runs import CAPACITY, LOST, NODES, entries, jobs, no_entry

SERIES = {e.label: e.series for e in entries()}
JOBS = {e.label: e.jobs for e in entries()}
SUMMARIES = {e.label: e.summary for e in entries()}


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def workload(size: int = 50) -> Workload:
    run = jobs(count=50)[:size]
    return Workload.build(
        submit_s=run["submit_s"], runtime_s=run["runtime_s"],
        walltime_s=run["walltime_s"], nodes=run["nodes"], name="small",
    )  # fmt: skip


def boxes(figure: Figure) -> int:
    return sum(
        len(item.get_paths())
        for item in figure.axes[0].collections
        if isinstance(item, PolyCollection)
    )


NOTHING = no_entry()
STATES = pl.DataFrame(
    {"node": [0], "start_s": [0.0], "end_s": [9.0], "state": ["idle"], "energy_j": [9.0]}
)
NO_STATES = STATES.clear()
NO_POWER = pl.DataFrame(schema={"time_s": pl.Float64, "total_w": pl.Float64})
EVERY: dict[str, Callable[[], Figure]] = {
    "utilization": lambda: plot_utilization(SERIES),
    "queue": lambda: plot_queue(SERIES),
    "gantt": lambda: plot_gantt(JOBS["fcfs"], lost=LOST),
    "gantt by wait": lambda: plot_gantt(JOBS["fcfs"], color_by="wait"),
    "cdf": lambda: plot_wait_cdf(JOBS),
    "bars": lambda: plot_compare_bars(SUMMARIES),
    "radar": lambda: plot_radar(SUMMARIES),
    "radars": lambda: plot_radars({"here": SUMMARIES, "there": SUMMARIES}),
    "by size": lambda: plot_wait_by_size(JOBS),
    "workload": lambda: plot_workload(workload()),
}
EMPTY: dict[str, Callable[[], Figure]] = {
    "utilization": lambda: plot_utilization({"none": NOTHING.series}),
    "queue": lambda: plot_queue({"none": NOTHING.series}),
    "gantt": lambda: plot_gantt(NOTHING.jobs, nodes=4),
    "cdf": lambda: plot_wait_cdf({"none": NOTHING.jobs}),
    "bars": lambda: plot_compare_bars({"none": NOTHING.summary}),
    "radar": lambda: plot_radar({"none": NOTHING.summary}),
    "radars": lambda: plot_radars({"here": {"none": NOTHING.summary}}),
    "by size": lambda: plot_wait_by_size({"none": NOTHING.jobs}),
    "workload": lambda: plot_workload(workload(0)),
    "wait heat": lambda: plot_wait_heat({"none": NOTHING.jobs}),
    "node states": lambda: plot_node_states(NO_STATES),
    "power": lambda: plot_power({"none": NO_POWER}),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_can_be_drawn(name: str) -> None:
    assert len(png(EVERY[name]())) > 5000


@pytest.mark.parametrize("name", EMPTY)
def test_a_run_without_jobs_makes_a_figure_too(name: str) -> None:
    figure = EMPTY[name]()
    assert len(png(figure)) > 1000
    if not name.startswith(("bars", "radar")):
        assert [text for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize("name", ["gantt", "node states", "queue", "utilization", "workload"])
def test_axes_of_counts_have_whole_numbers_from_0_to_1_or_more(name: str) -> None:
    one = jobs(count=2)[:1].with_columns(start_s="submit_s", nodes=1)
    alone = Workload.build(submit_s=[0, 5], runtime_s=[9, 99], nodes=[1, 2])
    steps = {"x": series(one, LOST.clear(), CAPACITY.with_columns(nodes=1))}
    figure = {
        "gantt": lambda: plot_gantt(one, nodes=1),
        "node states": lambda: plot_node_states(STATES),
        "queue": lambda: plot_queue(steps),
        "utilization": lambda: plot_utilization(steps),
        "workload": lambda: plot_workload(alone),
    }[name]()
    for ax in figure.axes:
        if "per hour" not in ax.get_ylabel():
            low, high = ax.get_ylim()
            assert low == 0, ax.get_ylabel()
            assert high >= 1, ax.get_ylabel()
            assert all(at % 1 == 0 for at in ax.get_yticks()), ax.get_ylabel()


def test_utilization_has_a_panel_for_each_label_and_one_time_axis() -> None:
    figure = plot_utilization(SERIES)
    assert len(figure.axes) == 2
    assert figure.axes[0].get_title(loc="left").startswith("fcfs: ")
    assert figure.axes[-1].get_xlabel() == "time (hours)"


def test_the_heading_gives_the_utilization_of_the_window() -> None:
    run = jobs(count=2).with_columns(
        submit_s=0.0, eligible_s=0.0, start_s=0.0, end_s=pl.Series([10.0, 20.0]), nodes=4
    )
    steps = series(run, LOST.clear(), CAPACITY)
    titles = [
        plot_utilization({"x": steps}, **window).axes[0].get_title(loc="left")
        for window in ({}, {"start_s": 5, "end_s": 15})
    ]
    assert titles == ["x: 75.0% used", "x: 75.0% used"]
    late = plot_utilization({"x": steps}, start_s=12, end_s=18)
    assert late.axes[0].get_title(loc="left") == "x: 50.0% used"


def test_dates_are_shown_where_time_zero_is_known() -> None:
    figure = plot_queue(SERIES, start_epoch_s=1_700_000_000)
    assert figure.axes[-1].get_xlabel() == "date (UTC)"
    left, _ = figure.axes[-1].get_xlim()
    first = SERIES["fcfs"]["time_s"][0]
    assert left == pytest.approx((1_700_000_000 + first) / 86400)


def test_the_queue_has_jobs_above_nodes_and_a_line_for_each_label() -> None:
    figure = plot_queue(SERIES)
    assert [ax.get_ylabel() for ax in figure.axes] == ["waiting jobs", "nodes requested"]
    assert [len(ax.patches) for ax in figure.axes] == [2, 2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fcfs", "easy"]


def test_a_long_series_is_drawn_as_means_and_the_axis_says_so() -> None:
    time = np.arange(5000, dtype=float) * 60
    steps = SERIES["fcfs"][[0] * 5000].with_columns(time_s=pl.Series(time))
    figure = plot_queue({"long": steps})
    assert figure.axes[-1].get_xlabel() == "time (hours), means over 1 h"
    assert len(figure.axes[0].patches[0].get_data().values) < 150  # type: ignore[attr-defined]


def test_a_short_series_is_drawn_exactly() -> None:
    stairs = plot_queue(SERIES).axes[0].patches[0].get_data()  # type: ignore[attr-defined]
    assert stairs.values.tolist() == SERIES["fcfs"]["queue_length"][:-1].to_list()


def test_a_window_outside_the_series_shows_nothing() -> None:
    figure = plot_utilization(SERIES, start_s=1e7, end_s=2e7)
    assert "no data" in [text.get_text() for text in figure.axes[0].texts]


def test_names_of_nodes_are_apart_on_an_axis_for_any_number_of_cores() -> None:
    groups = [{"name": "thin", "count": 100, "cores": 1}, {"name": "fat", "count": 30, "cores": 64}]
    cluster = Cluster.model_validate({"nodes": groups})
    ticks = node_ticks(cluster, by_core=True)
    assert ticks.names[0] == "thin, node 0"
    assert 10 <= len(ticks.at) <= MOST
    # They are at the middles of nodes, and so nearer by a node at most than what they are chosen by.
    assert min(np.diff(ticks.at)) >= (100 + 30 * 64) / MOST - 64
    few = Cluster.model_validate({"nodes": [{"name": "a", "count": 3, "cores": 8}]})
    assert node_ticks(few, by_core=True) == ([4, 12, 20], ["a 0", "a 1", "a 2"])


def test_the_gantt_chart_has_a_box_for_each_job() -> None:
    figure = plot_gantt(JOBS["fcfs"], nodes=NODES, end_s=1e6)
    assert boxes(figure) == 40
    ax = figure.axes[0]
    assert ax.get_ylabel() == "nodes in use (stacked)"
    assert ax.get_ylim() == (0, NODES)


def test_the_gantt_chart_shows_lost_attempts_hatched() -> None:
    figure = plot_gantt(JOBS["fcfs"], lost=LOST)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["lost attempts"]
    assert any(item.get_hatch() for item in figure.axes[0].collections)


def test_the_gantt_chart_takes_true_nodes() -> None:
    run = JOBS["fcfs"]
    where = pl.DataFrame(
        {
            "job_id": [1, 1],
            "start_s": [run["start_s"][0]] * 2,
            "end_s": [run["end_s"][0]] * 2,
            "first_node": [0, 5],
            "count": [2, 1],
        }
    )
    figure = plot_gantt(run, where, nodes=NODES)
    assert boxes(figure) == 2
    assert figure.axes[0].get_ylabel() == "node number"


def test_nodes_are_called_by_their_group_and_number() -> None:
    cluster = Cluster.model_validate(
        {
            "nodes": [
                {"name": "cpu", "count": 2, "cores": 8, "memory_gb": 4},
                {"name": "gpu", "count": 1, "cores": 4, "memory_gb": 4},
            ]
        }
    )
    several = Workload.build(
        submit_s=[0, 1], runtime_s=[9, 9], nodes=[1, 1], chunks={"tasks": [3, 1]}
    )
    plots = simulate(several, cluster, "fcfs").plot
    gantt, heat = plots.gantt().axes[0], plots.heatmap().axes[0]
    assert [text.get_text() for text in gantt.get_yticklabels()] == [
        "cpu, node 0",
        "cpu, node 1",
        "gpu, node 2",
    ]
    assert gantt.get_yticks().tolist() == [4, 12, 18]
    assert [text.get_text() for text in heat.get_yticklabels()] == ["cpu, node 0", "gpu, node 2"]
    assert heat.get_yticks().tolist() == [0.5, 2.5]
    whole = simulate(workload(), Cluster.uniform(nodes=NODES), "fcfs", track_nodes=True)
    names = [text.get_text() for text in whole.plot.gantt().axes[0].get_yticklabels()]
    assert len(names) <= 16
    assert names[0].endswith(" 0")


def test_the_gantt_window_leaves_out_other_jobs() -> None:
    run = JOBS["fcfs"]
    start, end = run["start_s"][10], run["end_s"][12]
    figure = plot_gantt(run, start_s=start, end_s=end)
    assert boxes(figure) == 3
    assert "no job ran in this window" in [
        text.get_text() for text in plot_gantt(run, start_s=-200, end_s=-100).axes[0].texts
    ]


def test_a_job_that_still_runs_reaches_to_the_end_of_the_window() -> None:
    figure = plot_gantt(JOBS["fcfs"], start_s=9e5, end_s=1e6)
    (box,) = figure.axes[0].collections[0].get_paths()
    assert box.vertices[:, 0].max() == pytest.approx(1e6 / 3600)


def test_waits_have_a_scale_next_to_the_gantt_chart() -> None:
    figure = plot_gantt(JOBS["fcfs"], color_by="wait")
    assert figure.axes[1].get_ylabel().startswith("wait")


def test_a_gantt_chart_of_many_jobs_is_pixels() -> None:
    figure = plot_gantt(jobs(count=4000), end_s=1e8)
    boxes_drawn = figure.axes[0].collections[0]
    assert boxes_drawn.get_rasterized()
    assert boxes(figure) == 4000


def test_the_cdf_rises_to_all_jobs() -> None:
    ax = plot_wait_cdf(JOBS).axes[0]
    assert len(ax.lines) == 2
    share = np.asarray(ax.lines[0].get_ydata())
    assert share[-1] == 1
    assert (np.diff(share) >= 0).all()
    assert "wait" in ax.get_xlabel()


def test_the_cdf_gives_the_share_of_jobs_that_waited_no_longer() -> None:
    waits = [0.0, 100.0, 100.0, 1000.0]
    run = jobs(count=4).with_columns(
        submit_s=0.0, start_s=pl.Series(waits), end_s=pl.Series(waits) + 5
    )
    line = plot_wait_cdf({"x": run}).axes[0].lines[0]
    at, share = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    for instant, expected in ((50, 0.25), (100, 0.75), (999, 0.75), (1000, 1.0)):
        assert share[at <= instant].max() == expected


def test_bars_have_a_panel_for_each_metric_with_the_values_next_to_them() -> None:
    figure = plot_compare_bars(SUMMARIES)
    assert [len(ax.patches) for ax in figure.axes] == [2, 2, 2, 2]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert sum("(best)" in text for text in texts) == 1


def test_the_best_is_on_the_rim_and_the_worst_in_the_center_or_at_its_share() -> None:
    worse = {"max_wait_s": 8, "mean_wait_s": 4, "max_slowdown": 5, "mean_slowdown": 2}
    better = {"max_wait_s": 4, "mean_wait_s": 1, "max_slowdown": 4, "mean_slowdown": 1}
    summaries = {
        "worse": {**worse, "utilization": 0.7},
        "middle": {**better, "mean_wait_s": 2.5, "utilization": 0.7},
        "better": {**better, "utilization": 0.7},
    }
    by_range, by_best = (
        [
            np.asarray(line.get_ydata()).tolist()
            for line in plot_radar(summaries, scale=scale).axes[0].lines
        ]
        for scale in ("range", "best")
    )
    assert by_range == [[0, 0, 0, 0, 1, 0], [1, 0.5, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]
    assert by_best == [[0.5, 0.25, 0.8, 0.5, 1, 0.5], [1, 0.4, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]


def test_a_radar_of_too_few_metrics_says_so() -> None:
    texts = plot_radar({"a": {"mean_wait_s": 1}}).axes[0].texts
    assert "fewer than three" in texts[0].get_text()


def test_waits_by_size_have_the_classes_on_the_axis_in_order() -> None:
    ax = plot_wait_by_size(JOBS).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3–4", "5–8"]
    assert ax.get_xlabel() == "nodes requested"


def test_no_text_of_the_lowest_heat_map_is_cut() -> None:
    figure = plot_wait_heat({"a": jobs(count=2)})
    figure.draw_without_rendering()
    box, height = figure.get_tightbbox(), figure.get_size_inches()[1]
    assert -0.05 < box.y0 < box.y1 < height + 0.05


def test_no_change_is_neither_better_nor_worse() -> None:
    columns = {"mean_wait_s": [5.0, 4.0, 6.0], "utilization": [0.5, 0.5, 0.4]}
    policies = dict(zip("abc", zip(*columns.values(), strict=True), strict=True))
    runs = [{name: dict(zip(columns, of, strict=True)) for name, of in policies.items()}]
    wait, use = plot_differences(paired_differences(runs)).axes[:2]
    points = [[one for one in ax.lines if one.get_marker() == "o"] for ax in (wait, use)]
    shades = [[one.get_color() for one in of] for of in points]
    assert shades == [[PALETTE[2], PALETTE[5]], [FADED, PALETTE[5]]]


def test_the_power_of_a_long_run_is_said_to_be_means() -> None:
    time = np.arange(400.0) * 300
    drawn = pl.DataFrame({"time_s": time, "total_w": time})
    assert plot_power({"x": drawn}).axes[0].get_xlabel().endswith("(hours), means over 6.65 min")
    assert plot_power({"x": drawn[:9]}).axes[0].get_xlabel() == "time (minutes)"


def test_the_workload_figure_has_six_labelled_panels() -> None:
    figure = plot_workload(workload())
    assert len(figure.axes) == 6
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)
    counted = [sum(p.get_height() for p in figure.axes[n].patches) for n in (0, 1, 2, 3)]  # type: ignore[attr-defined]
    assert counted == [50, 50, 50, 50]
    assert figure.get_suptitle() == "small: 50 jobs"


def test_drawing_leaves_matplotlib_settings_alone() -> None:
    import matplotlib

    before = matplotlib.rcParams["axes.grid"]
    plot_queue(SERIES)
    assert matplotlib.rcParams["axes.grid"] == before


def test_the_package_does_not_import_matplotlib_or_pyplot_by_itself() -> None:
    code = (
        "import sys, hpctwin, hpctwin.metrics, hpctwin.report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "hpctwin.report.plot_gantt\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_door_names_what_it_has() -> None:
    import hpctwin.report as door

    assert set(door.__all__) <= set(dir(door))
    assert all(callable(getattr(door, name)) for name in door.__all__)
    with pytest.raises(AttributeError, match="plot_pie"):
        door.plot_pie  # noqa: B018
