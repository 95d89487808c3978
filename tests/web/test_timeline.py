"""What a browser is sent to draw jobs on nodes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.web.views import timeline
from hpctwin.web.views.job_list import MOST_GROUPS, OTHERS, groups_of
from hpctwin.web.views.timeline import RAN, LaneNames, Timeline, Window
from tests.examples import examples

BOXES = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 90), st.integers(0, 11), st.integers(1, 6)),
    min_size=1,
    max_size=25,
)


def made(boxes: list[tuple[int, int, int, int]], **more: Any) -> Timeline:
    start, length, first, count = np.array(boxes, np.int64).T
    return Timeline(
        job=np.arange(len(boxes)),
        start_s=start / 7,
        end_s=(start + length) / 7,
        first=first,
        count=np.minimum(count, 12 - first),
        kind=np.full(len(boxes), RAN, np.uint8),
        lanes=12,
        **more,
    )


def read(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """As static/gantt.js does."""
    length = int.from_bytes(content[:4], "little")
    head = json.loads(content[4 : 4 + length])
    assert (4 + length) % 8 == 0
    body = content[4 + length :]
    columns = {
        one["name"]: np.frombuffer(body, f"<{one['type']}", one["length"], one["at"])
        for one in head["columns"]
    }
    return head, columns


WINDOWS = (
    Window(0.0, 90.0, 0.0, 12.0, 30, 12),
    Window(3.3, 41.0, 2.0, 9.0, 13, 5),
    Window(10.0, 10.5, 0.5, 3.25, 4, 3),
)


@given(boxes=BOXES, window=st.sampled_from(WINDOWS))
@settings(max_examples=examples(60))
def test_each_pixel_shows_the_share_covered_by_jobs(
    boxes: list[tuple[int, int, int, int]], window: Window
) -> None:
    line = made(boxes)
    rows = line._within(window)
    cells = line._cells(rows, window).reshape(window.height, window.width)
    x = np.linspace(window.from_s, window.to_s, window.width + 1)
    y = np.linspace(window.top, window.bottom, window.height + 1)
    covered = np.zeros((window.height, window.width))
    for i in range(len(boxes)):
        ends = line.first[i] + line.count[i]
        across = np.clip(
            np.minimum(x[1:], line.end_s[i]) - np.maximum(x[:-1], line.start_s[i]), 0, None
        )
        down = np.clip(np.minimum(y[1:], ends) - np.maximum(y[:-1], line.first[i]), 0, None)
        covered += np.outer(down / (y[1] - y[0]), across / (x[1] - x[0]))
    assert np.abs(cells / 255 - np.minimum(covered, 1)).max() <= 1 / 255 + 1e-6


@given(boxes=BOXES, window=st.sampled_from(WINDOWS))
@settings(max_examples=examples(30))
def test_boxes_that_touch_the_window_are_sent_as_they_are(
    boxes: list[tuple[int, int, int, int]], window: Window
) -> None:
    line = made(boxes)
    head, columns = read(line.picture(window))
    touch = (
        (line.start_s < window.to_s)
        & (line.end_s >= window.from_s)
        & (line.first < window.bottom)
        & (line.first + line.count > window.top)
    )
    assert head["boxes"]
    assert head["jobs"] == [str(job) for job in line.job[touch]]
    assert columns["start"] + window.from_s == pytest.approx(line.start_s[touch])
    assert (columns["first"] == line.first[touch]).all()
    assert (columns["count"] == line.count[touch]).all()


def test_the_data_sent_for_a_million_jobs_depends_on_the_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "MOST_BOXES", 100)
    draw = np.random.default_rng(1)
    line = made([(int(a), 20, int(b), 1) for a, b in draw.integers(0, [500, 12], (2000, 2))])
    head, columns = read(line.picture(Window(0, 80, 0, 12, 640, 12)))
    assert not head["boxes"]
    assert len(columns["cells"]) == 640 * 12
    head, _ = read(line.picture(Window(10, 10.1, 0, 2, 640, 12)))
    assert head["boxes"]


def test_the_first_requested_picture_is_made_once_if_it_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(1)
    line = made([(int(a), 20, int(b), 1) for a, b in draw.integers(0, [500, 12], (2000, 2))])
    whole = Window(0, 80, 0, 12, 64, 12)
    assert not line.prepare(whole)
    monkeypatch.setattr(timeline, "MOST_BOXES", 100)
    fresh = line.picture(whole)
    assert line.prepare(whole)
    monkeypatch.delattr(Timeline, "_cells")
    assert line.picture(whole) == fresh


@given(boxes=BOXES, at=st.floats(0, 90), lane=st.integers(0, 11))
def test_a_click_finds_the_job_at_that_place(
    boxes: list[tuple[int, int, int, int]], at: float, lane: int
) -> None:
    line = made(boxes)
    there = [
        i
        for i in range(len(boxes))
        if line.start_s[i] <= at < line.end_s[i] and 0 <= lane - line.first[i] < line.count[i]
    ]
    found = line.at(at, lane)
    assert (found and found.job) == (str(line.job[there[-1]]) if there else None)


def test_the_most_frequent_names_have_a_group_each_and_all_others_one() -> None:
    values = ["ann", "bob", "", None, "bob", *"abcdefg", *"abcdefg", "ann", "zoe"]
    found = groups_of("user", pl.Series(values))
    assert found.names == ("a", "ann", "b", "bob", "c", "d", "e")
    told = [*found.names, "others"]
    shown = [told[number] for number in found.number]
    assert shown == [one if one in found.names else "others" for one in values]


@pytest.mark.parametrize(
    ("by", "values", "names"),
    [
        ("wait", [0, 60, 61, 3600, 8 * 86400], ["up to 1 min"] * 2
         + ["up to 10 min", "up to 1 h", "above 7 d"]),
        ("size", [1, 2, 4, 5, 1024, 1025], ["1 node", *["2 to 4"] * 2, "5 to 16",
         "257 to 1,024", "above 1,024"]),
    ],
)  # fmt: skip
def test_waits_and_sizes_have_fixed_steps(by: Any, values: list[int], names: list[str]) -> None:
    found = groups_of(by, pl.Series([*values, None]))
    assert found.ordered
    assert len(found.names) == MOST_GROUPS
    assert [found.names[number] for number in found.number[:-1]] == names
    assert found.number[-1] == OTHERS


def test_a_window_has_the_groups_of_its_boxes_and_the_legend_of_all() -> None:
    draw = np.random.default_rng(1)
    users = pl.Series(draw.choice(["ann", "bob", "eve"], 25, p=[0.5, 0.3, 0.2]))
    boxes = [(int(a), 20, 0, 1) for a in draw.integers(0, 500, 25)]
    line = made(boxes, about=lambda _: users)
    head, columns = read(line.picture(Window(10, 40, 0, 12, 64, 12), "user"))
    assert sorted(head["legend"]) == ["ann", "bob", "eve"]
    assert not head["ordered"]
    told = [head["legend"][number] for number in columns["group"]]
    assert told == [users[int(job)] for job in head["jobs"]]


def test_forecast_starts_have_their_intervals() -> None:
    within = np.array([[9.0, np.nan], [12.0, np.nan]])
    line = made([(70, 20, 1, 1), (0, 20, 0, 1)], within_s=within)
    head, columns = read(line.picture(Window(5, 40, 0, 12, 64, 12)))
    assert head["jobs"] == ["0"]
    assert (columns["low"][0], columns["high"][0]) == (4.0, 7.0)


def test_lanes_are_named_by_nodes_or_by_places() -> None:
    names = [f"n{i}" for i in range(200)]
    lanes = LaneNames(names, [f"rack {i // 20}" for i in range(200)], np.full(200, 2))
    assert [lanes.at(lane) for lane in (0, 1, 2, 399, 400)] == ["n0", "n0", "n1", "n199", ""]
    whole = lanes.labels(0, 400)
    assert whole["nodes"][:2] == [(0, 2, "n0"), (6, 2, "n3")]
    assert whole["places"][1] == (40, 40, "rack 1")
    near = lanes.labels(39.5, 42)
    assert near["nodes"] == [(38, 2, "n19"), (40, 2, "n20"), (42, 2, "n21")]
    assert [name for _, _, name in near["places"]] == ["rack 0", "rack 1"]
    assert LaneNames(names, ["all"] * 200, np.full(200, 2)).labels(0, 400)["places"] == []
