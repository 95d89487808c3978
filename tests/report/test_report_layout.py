"""The HTML report on a phone, on a large screen and on paper, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctwin import generate, simulate
from hpctwin.report.accessor import report_results
from tests.web.browser import chromium

pytestmark = pytest.mark.browser

PAPER_PX = (680, 1009)
"""A4 without margins of 1.5 cm, at 96 pixels to the inch."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = generate("poisson", jobs=300, nodes=64, load=0.9, seed=1)
    policies = ("fcfs+easy@contiguous", "sjf+easy@contiguous", "fcfs+conservative@contiguous")
    path = tmp_path_factory.mktemp("page") / "report.html"
    report_results(path, {name: simulate(trace, 64, name) for name in policies}, title="Layout")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def opened(browser: Any, page: Path, width: int, height: int = 900) -> Any:
    shown = browser.new_page(viewport={"width": width, "height": height})
    shown.set_default_timeout(120_000)
    shown.goto(page.as_uri())
    return shown


@pytest.mark.parametrize("width", [390, 1440])
def test_whole_figures_are_seen_and_the_page_does_not_scroll_sideways(
    browser: Any, page: Path, width: int
) -> None:
    shown = opened(browser, page, width)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    cut = "figures => figures.filter(f => f.scrollWidth > f.clientWidth).length"
    assert shown.eval_on_selector_all("figure", cut) == 0
    assert shown.locator("figure").count() > 5


def test_a_tap_enlarges_a_figure_on_a_phone_and_another_tap_elsewhere_undoes_it(
    browser: Any, page: Path
) -> None:
    shown = opened(browser, page, 390)
    image = shown.locator("figure img").first
    before = image.bounding_box()["width"]
    assert before <= 390
    image.click()
    assert image.bounding_box()["width"] > 1.5 * before
    assert shown.evaluate("document.documentElement.scrollWidth") == 390
    shown.locator("h1").click()
    assert image.bounding_box()["width"] == before


def test_names_of_policies_stay_in_sight_while_a_table_scrolls(browser: Any, page: Path) -> None:
    shown = opened(browser, page, 390)
    name = shown.locator("tbody th").first
    assert name.bounding_box()["width"] < 200
    shown.evaluate("document.querySelector('.scroll').scrollLeft = 300")
    assert name.bounding_box()["x"] >= 0


def test_on_paper_no_figure_is_cut_and_details_are_open(browser: Any, page: Path) -> None:
    shown = opened(browser, page, *PAPER_PX)
    shown.emulate_media(media="print", color_scheme="dark")
    boxes = shown.eval_on_selector_all(
        "figure, figure img", "all => all.map(one => one.getBoundingClientRect().toJSON())"
    )
    for box in boxes:
        assert box["left"] >= 0
        assert box["right"] <= PAPER_PX[0] + 1
        assert box["height"] <= PAPER_PX[1]
    styles = "all => all.map(one => getComputedStyle(one).breakInside)"
    assert set(shown.eval_on_selector_all("figure", styles)) == {"avoid"}
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    wide = "all => all.filter(one => one.getBoundingClientRect().right > 681).length"
    assert shown.eval_on_selector_all("table", wide) == 0
    assert len(shown.pdf(format="A4")) > 50_000
