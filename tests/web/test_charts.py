"""Charts in a real browser: times in one zone, one schedule, colors with a meaning, and how one moves."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hpctwin import Simulation, Workload, generate
from hpctwin.model import format_duration
from hpctwin.report.pages.run import write_run
from hpctwin.web.views.views import site_zone
from tests.web.browser import Watched, chromium
from tests.web.test_page import LOOKS, served

pytestmark = pytest.mark.browser

BEGIN_S = 1_790_000_000
BROWSER = "America/Los_Angeles"
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
# What is written on canvases: the text, where it begins and ends, and how far down it is.
WRITTEN = """() => {
  window.written = [];
  const own = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const { a, e, f, d } = this.getTransform();
    const left = (a * x + e) / a;
    window.written.push([this.canvas.id, text, left, left + this.measureText(text).width, y + f / d]);
    own.call(this, text, x, y);
  };
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page of a cluster whose clock has dates."""
    dates = ("--dates", "--start", str(BEGIN_S))
    with served(tmp_path_factory.mktemp("live"), "observe", *dates) as one:
        yield one


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page of three runs: two of the same users, and one of years without a date."""
    folder = tmp_path_factory.mktemp("runs")
    for name, jobs in (("short", 150), ("other", 400), ("large", 9000)):
        workload = generate("poisson", jobs=jobs, nodes=64, seed=5)
        write_run(Simulation(workload, 64, "fcfs+easy@contiguous").run(), folder / name, {})
    years = Workload.build(
        submit_s=[0, 110_000_000], runtime_s=[50_000_000, 9000], walltime_s=[50_000_000, 9000], nodes=[1, 2]
    )  # fmt: skip
    write_run(Simulation(years, 4, "fcfs+easy").run(), folder / "years", {})
    command = ["serve", str(folder), "--port", "0", "--no-token"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hpctwin", *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=300)


def opened(browser: Any, address: str, **options: Any) -> Watched:
    about = {"viewport": {"width": 1280, "height": 900}, "timezone_id": BROWSER, **options}
    one = Watched(browser, address.split("#")[0], **about)
    one.page.add_init_script(f"({WRITTEN})()")
    one.page.goto(address)
    one.page.wait_for_selector("#figures div")
    one.wait(lambda: one.page.evaluate("performance.getEntriesByName('timeline').length > 0"))
    return one


@pytest.fixture
def watched(browser: Any, live: str) -> Iterator[Watched]:
    one = opened(browser, f"{live}#token={LOOKS}")
    yield one
    assert one.errors == []
    one.context.close()


@pytest.fixture
def page_of(browser: Any, runs: str) -> Iterator[Any]:
    made = []

    def one(name: str, **options: Any) -> Watched:
        made.append(opened(browser, f"{runs}{name}/", **options))
        return made[-1]

    yield one
    for watched in made:
        assert watched.errors == []
        watched.context.close()


# --- times ----------------------------------------------------------------------------------------


def test_durations_are_the_same_in_python_and_on_the_page(page_of: Any) -> None:
    draw = np.random.default_rng(1)
    seconds = [
        0, 1e-6, 0.0004, 0.0005, 0.5, 0.9996, 1, 59.94, 59.95, 60, 3599, 3600, 7650, 86399, 86400,
        4.52e3 * 86400, 999.5 * 86400, -0.2, -75, 1e12, *(86400 * k / 8 for k in range(1, 40)),
        *(10 ** draw.uniform(-4, 9, 500)), *draw.integers(0, 10**6, 500),
    ]  # fmt: skip
    values = [float(one) for one in seconds]
    told = page_of("short").page.evaluate(
        """async (values) => {
            const { span } = await import("/static/words.js");
            return values.map(span);
        }""",
        values,
    )
    assert told == [format_duration(one) for one in values]


def test_all_times_are_in_the_zone_that_the_page_names(watched: Watched) -> None:
    page = watched.page

    def shown() -> list[str]:
        """A date of the head, and one of a sentence of the server."""
        head = DATE.search(page.inner_text("#figures"))
        said = DATE.search(page.inner_text("#explained"))
        assert head
        assert said
        return [head[0], said[0]]

    page.wait_for_selector("#candidates tbody tr.chosen")
    zones = {"site": site_zone(), "browser": BROWSER, "UTC": "UTC"}
    for choice in ("browser", "UTC", "site", "browser"):
        page.select_option("#zone", choice)
        zone = ZoneInfo(zones[choice])

        def near(zone: ZoneInfo = zone) -> bool:
            began = datetime.fromtimestamp(BEGIN_S, UTC)
            spans = [datetime.fromisoformat(text).replace(tzinfo=zone) - began for text in shown()]
            return all(0 <= span.total_seconds() < 3600 for span in spans)

        watched.wait(near)
    named = page.locator("#zone option:checked").inner_text()
    assert named == f"{BROWSER} (this browser)"
    page.reload()
    page.wait_for_selector("#figures div")
    watched.wait(lambda: page.input_value("#zone") == "browser")
    page.click("#queue tbody tr button")
    page.wait_for_selector("#job p")
    hour = datetime.fromtimestamp(BEGIN_S, ZoneInfo(BROWSER)).hour
    said = DATE.findall(page.inner_text("#job"))
    assert said
    assert all(int(text[11:13]) - hour in (0, 1) for text in said)


def test_times_of_years_without_a_date_are_never_dates(page_of: Any) -> None:
    """The number 110,000,000 is 1,273 days, not a day of 1973."""
    one = page_of("years")
    page = one.page
    page.wait_for_selector("#jobs tbody tr")
    submitted = page.locator("#jobs tbody tr [data-column=submit]").all_inner_texts()
    assert submitted == ["0 s", "1,273 d"]
    assert page.locator("#zone option:checked").inner_text() == "since clock start"
    axis = {text for canvas, text, *_ in page.evaluate("written") if canvas == "gantt"}
    assert {"200 d", "1,000 d"} <= axis
    assert not any("19" in text and "d" not in text for text in axis)


def test_values_of_a_chart_are_round_and_apart(page_of: Any) -> None:
    page = page_of("short").page
    cases = [(0, 4000, 160, ""), (0, 1, 92, "%"), (0, 7200, 92, "s"), (0, 12 * 86400, 92, "s"),
             (0, 0.004, 92, "s"), (0.29, 0.41, 160, "€"), (5, 5 + 1e-9, 160, ""), (0, 1e-9, 9, ""),
             (0, 3.2e6, 160, "W"), (-2, 3, 160, "")]  # fmt: skip
    found = page.evaluate(
        """async (cases) => {
            const { levels } = await import("/static/boxes.js");
            return cases.map((one) => levels(...one));
        }""",
        cases,
    )
    assert found[0] == [0, 1000, 2000, 3000, 4000]
    assert found[1] == [0, 0.5, 1]
    assert found[2] == [0, 3600, 7200]
    assert found[3] == [0, 10 * 86400]
    assert found[6] == [5]
    for (least, high, _, _), values in zip(cases, found, strict=True):
        assert 1 <= len(values) <= 6
        assert all(least - 1e-9 <= one <= high + 1e-9 for one in values)


TICKS = ("0 nodes", "20 nodes", "40 nodes", "60 nodes")


def test_the_chart_over_time_has_an_axis_of_values(page_of: Any) -> None:
    page = page_of("short").page
    page.wait_for_function("() => written.some(([, text]) => text.startsWith('nodes in use'))")
    deep = page.evaluate("document.querySelector('canvas.line').clientHeight - 22")
    written = [(text, y) for canvas, text, *_, y in page.evaluate("written") if canvas == ""]
    heights = {text: y for text, y in written if text in TICKS}
    assert set(heights) == set(TICKS)
    assert deep - 6 < heights[TICKS[0]] <= deep
    steps = [heights[a] - heights[b] for a, b in pairwise(TICKS)]
    assert max(steps) - min(steps) <= 1.5


@pytest.mark.parametrize("name", ["short", "years"])
def test_texts_of_an_axis_do_not_touch_on_a_phone(page_of: Any, name: str) -> None:
    page = page_of(name, viewport={"width": 390, "height": 800}).page
    for _ in range(12):
        page.evaluate("window.written = []")
        page.focus("#gantt")
        page.keyboard.press("+")
        page.wait_for_function("() => written.some(([canvas]) => canvas === 'gantt')")
        low = page.evaluate("document.getElementById('gantt').clientHeight - 10")
        last = [
            (left, right)
            for canvas, _, left, right, y in page.evaluate("written")
            if canvas == "gantt" and y > low
        ]
        assert last
        assert all(a[1] <= b[0] for a, b in pairwise(last) if b[0] > a[0])


# --- colors and names ----------------------------------------------------------------------------


def colours(page: Any) -> dict[str, str]:
    rows = """(items) => items.filter((one) => one.querySelector(".swatch"))
        .map((one) => [one.textContent, one.querySelector(".swatch").style.backgroundColor])"""
    return dict(page.locator("#legend li").evaluate_all(rows))


def test_a_user_has_the_same_color_after_a_reload_and_on_other_pages(page_of: Any) -> None:
    one = page_of("short")
    page = one.page
    one.wait(lambda: len(colours(page)) > 3)
    first = colours(page)
    users = set(first) - {"others"}
    assert len({first[user] for user in users}) == len(users) <= 7
    page.reload()
    one.wait(lambda: colours(page) == first)
    page.goto(page.url.replace("/short/", "/other/"))
    page.focus("#gantt")
    one.wait(lambda: len(colours(page)) > 3)
    both = set(colours(page)) & users
    assert len(both) >= 3
    assert {user: colours(page)[user] for user in both} == {user: first[user] for user in both}


@pytest.mark.parametrize("by", ["account", "partition", "wait", "state", "size"])
def test_colors_have_a_meaning_that_is_explained(page_of: Any, by: str) -> None:
    one = page_of("short")
    one.page.select_option("#colour-by", by)
    title = one.page.locator("#colour-by option:checked").inner_text()
    one.wait(lambda: one.page.inner_text("#legend").startswith(f"{title}:"))
    known = {"state": "completed", "wait": "up to 1 min", "size": "2 to 4"}
    assert known.get(by, "") in one.page.inner_text("#legend")


def test_colors_are_waits_where_no_user_is_known(page_of: Any) -> None:
    one = page_of("years")
    one.wait(lambda: one.page.inner_text("#legend").startswith("wait:"))
    one.page.select_option("#colour-by", "user")
    one.wait(lambda: one.page.inner_text("#legend").startswith("user:"))


def test_many_jobs_are_drawn_as_the_share_in_use(page_of: Any) -> None:
    one = page_of("large")
    one.wait(lambda: one.says("#legend", "share in use"))


def test_swatches_keep_their_colors_where_the_reader_forces_colors(page_of: Any) -> None:
    one = page_of("short", forced_colors="active")
    one.wait(lambda: len(colours(one.page)) > 3)
    seen = one.page.locator("#legend .swatch").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert seen == list(colours(one.page).values())


def test_lanes_are_named_by_their_nodes(page_of: Any) -> None:
    one = page_of("short")

    def names() -> list[str]:
        left = one.page.evaluate(
            "written.filter(([canvas, , left]) => canvas === 'gantt' && left < 50).map((one) => one[1])"
        )
        return [text for text in left if text.startswith(("node", "…"))]

    one.wait(lambda: len(names()) > 5)


# --- moving ---------------------------------------------------------------------------------------


def test_the_wheel_scrolls_the_page_unless_ctrl_is_pressed(page_of: Any) -> None:
    one = page_of("short", viewport={"width": 1280, "height": 500})
    page = one.page
    page.click("text=Zoom and keys")
    assert "Ctrl" in page.inner_text(".controls .hint")
    page.locator("#gantt").scroll_into_view_if_needed()
    box = page.locator("#gantt").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.evaluate("window.written = []")
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 50)
    one.wait(lambda: page.evaluate("scrollY") > before)
    assert page.evaluate("written.length") == 0
    there = page.evaluate("scrollY")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -50)
    one.wait(lambda: page.evaluate("written.length") > 0)
    page.keyboard.up("Control")
    assert page.evaluate("scrollY") == there


def test_two_fingers_zoom_and_one_finger_scrolls(browser: Any, runs: str) -> None:
    about = {"viewport": {"width": 390, "height": 700}, "has_touch": True, "is_mobile": True}
    one = opened(browser, f"{runs}short/", **about)
    page = one.page
    page.locator("#gantt").scroll_into_view_if_needed()
    box = page.locator("#gantt").bounding_box()
    touch = one.context.new_cdp_session(page)

    def fingers(kind: str, *places: tuple[float, float]) -> None:
        points = [
            {"x": box["x"] + x, "y": box["y"] + y, "id": i} for i, (x, y) in enumerate(places)
        ]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def axis() -> list[str]:
        page.evaluate("window.written = []")
        page.focus("#gantt")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("() => written.length > 3")
        return sorted({text for _, text, *_ in page.evaluate("written") if re.match(r"\d", text)})

    before = axis()
    fingers("touchStart", (150, 90), (200, 90))
    for apart in (60, 90, 120):
        fingers("touchMove", (175 - apart, 90), (175 + apart, 90))
    fingers("touchEnd")
    assert axis() != before
    assert (
        page.evaluate("getComputedStyle(document.getElementById('gantt')).touchAction") == "pan-y"
    )
    assert one.errors == []
    one.context.close()


def test_nobody_gets_lost_far_from_all_jobs(watched: Watched) -> None:
    page = watched.page
    page.focus("#gantt")
    for key in ("-", "ArrowRight", "+", "ArrowLeft"):
        for _ in range(120):
            page.keyboard.press(key)
    page.keyboard.press("0")
    page.evaluate("window.written = []")
    page.keyboard.press("-")
    watched.wait(lambda: page.evaluate("written.some(([canvas]) => canvas === 'gantt')"))


def test_one_chart_shows_the_metric_that_is_chosen(page_of: Any) -> None:
    one = page_of("short")
    page = one.page
    page.wait_for_selector("#lines input")
    assert page.locator("#lines canvas").count() == 1
    page.locator("#lines label", has_text="waiting jobs").click()
    one.wait(lambda: "waiting jobs" in (page.get_attribute("#lines canvas", "aria-label") or ""))
    page.keyboard.press("ArrowLeft")
    one.wait(lambda: "nodes in use" in (page.get_attribute("#lines canvas", "aria-label") or ""))


# --- one schedule ---------------------------------------------------------------------------------


def test_the_timeline_says_which_schedule_it_shows(watched: Watched) -> None:
    watched.wait(lambda: watched.says("#schedule", "one simulated schedule"))
    assert watched.says("#schedule", "their walltimes")


def test_a_what_if_lists_jobs_that_move_and_marks_the_pretended_one(watched: Watched) -> None:
    page = watched.page
    page.fill("input[name=job_nodes]", "32")
    page.fill("input[name=job_hours]", "0.02")
    page.click("#whatif button[type=submit]")
    page.wait_for_selector("#moved tbody tr")
    assert "later:" in page.inner_text("#moved-said")
    assert re.search(r"\d (s|min|h) later", page.inner_text("#moved"))
    watched.wait(
        lambda: page.evaluate("written.some(([canvas, text]) => canvas === 'changed' && text === 'your job')")
    )  # fmt: skip
    assert not page.evaluate(
        "written.some(([canvas, text]) => canvas === 'as-is' && text === 'your job')"
    )
    assert watched.says("#moved-legend", "running")
    grey = """() => {
        const canvas = document.getElementById("as-is"), { width, height } = canvas;
        const pixels = canvas.getContext("2d").getImageData(0, 20, width / 8, height - 60).data;
        for (let i = 0; i < pixels.length; i += 4) {
            const [r, g, b, a] = pixels.slice(i, i + 4);
            if (a > 200 && Math.abs(r - g) < 8 && Math.abs(g - b) < 8 && r > 60 && r < 170) return true;
        }
        return false;
    }"""
    assert page.evaluate(grey)
