"""What a browser is sent to draw jobs on nodes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.web.views import timeline
from hpctwin.web.views.timeline import COLOURS, RAN, Timeline, Window, colours_of
from tests.examples import examples

BOXES = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 90), st.integers(0, 11), st.integers(1, 6)),
    min_size=1,
    max_size=25,
)


def made(boxes: list[tuple[int, int, int, int]]) -> Timeline:
    start, length, first, count = np.array(boxes, np.int64).T
    return Timeline(
        job=np.arange(len(boxes)),
        start_s=start / 7,
        end_s=(start + length) / 7,
        first=first,
        count=np.minimum(count, 12 - first),
        kind=np.full(len(boxes), RAN, np.uint8),
        lanes=12,
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
def test_each_pixel_shows_the_share_covered_by_jobs_and_the_largest_job(
    boxes: list[tuple[int, int, int, int]], window: Window
) -> None:
    line = made(boxes)
    rows = line._within(window)
    cells = line._cells(rows, window).reshape(window.height, window.width)
    colour = colours_of(line.job)
    x = np.linspace(window.from_s, window.to_s, window.width + 1)
    y = np.linspace(window.top, window.bottom, window.height + 1)
    by_colour = np.zeros((COLOURS, window.height, window.width))
    for i in range(len(boxes)):
        ends = line.first[i] + line.count[i]
        across = np.clip(
            np.minimum(x[1:], line.end_s[i]) - np.maximum(x[:-1], line.start_s[i]), 0, None
        )
        down = np.clip(np.minimum(y[1:], ends) - np.maximum(y[:-1], line.first[i]), 0, None)
        by_colour[colour[i]] += np.outer(down / (y[1] - y[0]), across / (x[1] - x[0]))
    share = np.minimum(by_colour.sum(axis=0), 1)
    assert np.abs((cells >> 3) / 31 - share).max() <= 1 / 31 + 1e-6
    told = np.take_along_axis(by_colour, (cells & 7)[None].astype(int), axis=0)[0]
    assert (told >= by_colour.max(axis=0) - 1e-6).all()


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


def test_a_jobs_colour_is_that_of_the_page() -> None:
    """By hand, as static/words.js: FNV-1a of the id's characters, modulo eight."""
    for job in ("7", "1234567", "n-12.head", "a"):
        known = 2166136261
        for letter in job.encode():
            known = (known ^ letter) * 16777619 % 2**32
        assert colours_of(np.array([job]))[0] == known % 8
    assert colours_of(np.array([7])) == colours_of(np.array(["7"]))
