from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hpctwin.report import write_report
from hpctwin.report.pages.html import write_page
from tests.report.report_runs import NODES, entries, no_entry
from tests.report.test_plots import workload

VOID = {"meta", "img", "br", "hr", "link"}


class Outline(HTMLParser):
    """Which tags there are, and whether each that opens is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("report") / "report.html")


def written(path: Path) -> str:
    """A report of two runs."""
    write_report(
        path,
        title="A & <B>",
        intro="First.\n\nSecond <script>alert(1)</script>.",
        entries=[entries()[0], dataclasses.replace(entries()[1], label="easy <2>")],
        workload_name="small & co",
        workload=workload(),
        nodes=NODES,
        start_epoch_s=1.7e9,
    )
    return path.read_text(encoding="utf-8")


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    return parser


def test_every_tag_is_closed(page: str) -> None:
    assert outline(page).open == []


def test_the_file_needs_nothing_else(page: str) -> None:
    images = outline(page).images
    assert len(images) == 10
    assert all((image["src"] or "").startswith("data:image/") for image in images)
    assert all(image["alt"] for image in images)
    rest = re.sub(r'src="data:[^"]*"', "", page)
    assert not re.search(r"https?://|@import|<link|<script|url\(", rest)


def test_all_text_is_escaped(page: str) -> None:
    assert "<h1>A &amp; &lt;B&gt;</h1>" in page
    assert "&lt;script&gt;" in page
    assert "easy &lt;2&gt;" in page
    assert "small &amp; co · 40 jobs · 8 nodes" in page


def test_the_page_suits_phones_and_dark_screens(page: str) -> None:
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_the_best_of_a_column_is_marked(page: str) -> None:
    assert '<td class="best">★' in page


def test_every_metric_of_every_run_is_in_the_page(page: str) -> None:
    assert page.count("<details>") == 2
    assert page.count('<th scope="row">utilization with pending jobs') == 2


def test_one_run_alone_is_not_compared(tmp_path: Path) -> None:
    path = write_report(tmp_path / "one.html", title="One", entries=entries()[:1])
    text = path.read_text(encoding="utf-8")
    assert "★" not in re.sub(r'src="[^"]*"', "", text)
    assert len(outline(text).images) == 6


def test_a_run_without_jobs_can_be_reported(tmp_path: Path) -> None:
    path = write_report(tmp_path / "none.html", title="None", entries=[no_entry()])
    assert "0 jobs" in path.read_text(encoding="utf-8")


def test_the_same_runs_give_the_same_file(page: str, tmp_path: Path) -> None:
    assert written(tmp_path / "again.html") == page


def test_a_report_replaces_the_previous_one_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    write_page(str(path), "new", ["<p>all of it</p>"])
    assert "<title>new</title>" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_moved_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "report.html"
    taken.mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        write_page(taken, "x", [])
    assert list(tmp_path.iterdir()) == [taken]
