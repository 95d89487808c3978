"""Tables whose rows change all the time, in a real browser."""

from __future__ import annotations

import csv
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.web.browser import Watched, chromium
from tests.web.crowd import STAYS, Crowd
from tests.web.test_page import ACTS, LOOKS

pytestmark = pytest.mark.browser

FOCUSED = "document.activeElement.textContent"
SELECTED = "getSelection().toString()"
ROW = f"#queue tbody tr:has(button:text-is('{STAYS}'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    return Crowd(2_000, every_s=0.25)


@pytest.fixture(scope="module")
def address(crowd: Crowd) -> Iterator[str]:
    with crowd.served() as one:
        yield one


def opened(browser: Any, address: str, query: str = "", token: str = LOOKS, **options: Any) -> Any:
    options.setdefault("viewport", {"width": 1280, "height": 900})
    one = Watched(browser, address, **options)
    one.page.goto(f"{address}{query}#token={token}")
    one.page.wait_for_selector("#queue tbody tr")
    return one


def closed(one: Watched) -> None:
    assert one.errors == []
    assert one.outside == []
    one.context.close()


def column(page: Any, name: str, table: str = "queue") -> list[str]:
    """Texts of a column, from the top row in view to the last."""
    found: list[str] = page.evaluate(
        """([table, name]) => [...document.querySelectorAll(`#${table} tbody tr`)]
            .sort((a, b) => a.offsetTop - b.offsetTop)
            .map((row) => row.querySelector(`[data-column="${name}"]`).textContent)""",
        [table, name],
    )
    return found


def count(page: Any) -> int:
    """Number of rows that the queue says it has."""
    return int(page.get_attribute("#queue table", "aria-rowcount")) - 1


def _stays(browser: Any, address: str, crowd: Crowd, seconds: float) -> None:
    """The focus is on one job, then its reason is selected, while all others change."""
    one = opened(browser, address, "?sort=job")
    page = one.page
    page.focus(f"{ROW} button")
    begin, before = crowd.version, column(page, "start")
    for _ in range(int(seconds * 4)):
        page.wait_for_timeout(125)
        assert page.evaluate(FOCUSED) == STAYS
    page.dblclick(f"{ROW} [data-column=reason]", position={"x": 20, "y": 12})
    selected = page.evaluate(SELECTED)
    assert selected.strip() in ("nodes", "held")
    for _ in range(int(seconds * 4)):
        page.wait_for_timeout(125)
        assert page.evaluate(SELECTED) == selected
    page.mouse.move(5, 5)
    page.evaluate("getSelection().removeAllRanges()")
    page.evaluate("document.activeElement.blur()")
    page.evaluate("document.querySelector('#queue .view').scrollTop = 7000")
    page.wait_for_timeout(int(seconds * 250))
    assert page.evaluate("document.querySelector('#queue .view').scrollTop") == 7000
    assert crowd.version - begin >= seconds / crowd.every_s * 0.3
    assert column(page, "start") != before
    closed(one)


def test_focus_selected_text_and_scroll_position_stay_while_all_rows_change(
    browser: Any, address: str, crowd: Crowd
) -> None:
    _stays(browser, f"{address}", crowd, 3)


@pytest.mark.slow
def test_focus_and_selected_text_stay_for_a_minute(browser: Any) -> None:
    crowd = Crowd(2_000, every_s=1.0)
    with crowd.served() as address:
        _stays(browser, address, crowd, 60)


def test_the_focus_follows_a_job_that_changes_its_place_and_stays_in_the_table_when_it_ends(
    browser: Any,
) -> None:
    crowd = Crowd(300, every_s=0.3)
    with crowd.served() as address:
        one = opened(browser, address, "?sort=start")
        page = one.page
        page.focus("#queue tbody tr button")
        page.keyboard.press("Control+End")
        page.keyboard.press("Home")
        places: dict[str, set[str]] = {}

        def has_moved() -> bool:
            job, row = page.evaluate(
                f"[{FOCUSED}, document.activeElement.closest('tr')?.ariaRowIndex]"
            )
            assert row is not None
            places.setdefault(job, set()).add(row)
            return any(len(rows) > 1 for rows in places.values())

        for _ in range(40):
            page.wait_for_timeout(50)
            has_moved()
        one.wait(has_moved)
        gone = page.evaluate(FOCUSED)
        crowd.pending = [job for job in crowd.pending if job["id"] != gone]
        one.wait(lambda: page.evaluate(FOCUSED) != gone)
        assert page.evaluate("document.activeElement.closest('#queue tbody') !== null")
        closed(one)


def test_tab_reaches_everything_and_a_table_is_one_stop(browser: Any, address: str) -> None:
    one = opened(browser, address)
    page = one.page
    page.wait_for_selector("#candidates tbody tr")
    within = []
    for _ in range(90):
        page.keyboard.press("Tab")
        within.append(
            page.evaluate(
                "document.activeElement.closest('#queue .view') ? 'queue'"
                " : document.activeElement.closest('#running .view') ? 'running'"
                " : document.activeElement.name ?? document.activeElement.id"
            )
        )
        if within[-1] == "reserve_nodes":
            break
    assert within.count("queue") == 1
    assert within.count("running") == 1
    assert within[-1] == "reserve_nodes"
    closed(one)


def test_arrows_walk_a_table_and_enter_sorts_and_opens(browser: Any, address: str) -> None:
    one = opened(browser, address, "?sort=job")
    page = one.page
    page.focus("#queue thead button")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == STAYS
    page.keyboard.press("Control+End")
    page.wait_for_function(
        "() => document.activeElement.closest('tr').ariaRowIndex"
        " === document.querySelector('#queue table').getAttribute('aria-rowcount')"
    )
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowUp")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "Nodes"
    page.keyboard.press("Enter")
    assert page.get_attribute("#queue th[data-column=nodes]", "aria-sort") == "ascending"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    job = page.evaluate(FOCUSED)
    page.keyboard.press("Enter")
    page.wait_for_selector("#job p")
    assert f"Job {job} waits." in page.inner_text("#job")
    closed(one)


def test_rows_stay_under_a_moving_pointer_until_it_leaves(browser: Any, address: str) -> None:
    one = opened(browser, address, "?sort=start")
    page = one.page
    box = page.locator("#queue tbody tr").nth(4).bounding_box()
    # The page's time stands still between the moves, however long a busy machine takes for them.
    page.clock.install()
    page.clock.pause_at(time.time() + 60)
    steps = itertools.count()

    def moved() -> list[str]:
        page.mouse.move(box["x"] + 60 + next(steps) % 16, box["y"] + 10)
        page.clock.run_for(125)
        return column(page, "job")

    begin = moved()

    def held() -> bool:
        assert moved()[: len(begin)] == begin
        return page.locator("#queue .held").is_visible()

    one.wait(held)
    for _ in range(16):
        assert held()
    page.clock.resume()
    page.mouse.move(5, 5)
    one.wait(lambda: column(page, "job") != begin)
    assert page.locator("#queue .held").is_hidden()
    page.mouse.move(box["x"] + 60, box["y"] + 10)
    still = column(page, "job")
    one.wait(lambda: column(page, "job") != still)
    closed(one)


def test_sort_filters_and_columns_are_in_the_address(browser: Any, crowd: Crowd) -> None:
    crowd = Crowd(2_000)
    with crowd.served() as address:
        one = opened(browser, address, "?user=ann&sort=-wait&columns=job,user,wait,nodes")
        page = one.page
        mine = sorted(
            (job for job in crowd.pending if job["user"] == "ann"), key=lambda job: job["submit_s"]
        )
        assert count(page) == len(mine)
        assert column(page, "job")[:10] == [job["id"] for job in mine[:10]]
        assert page.locator("#queue thead th").all_inner_texts() == [
            "Job",
            "User",
            "Nodes",
            "Waiting",
        ]
        assert page.get_attribute("#queue th[data-column=wait]", "aria-sort") == "descending"
        assert set(column(page, "user", "running")) == {"ann"}
        page.fill("input[name=nodes]", "64-128")
        page.fill("input[name=wait]", ">1h")
        page.select_option("select[name=state]", "hold")
        page.click("#queue thead th[data-column=nodes] button")
        few = [
            job for job in mine
            if job["nodes"] >= 64 and job["reason"] == "hold" and crowd.time_s - job["submit_s"] > 3600
        ]  # fmt: skip
        assert count(page) == len(few)
        assert f"{len(few)} of 2,000 pending jobs" in page.inner_text("#found")
        page.wait_for_function("() => location.search.includes('sort=nodes')")
        linked = page.url
        assert "user=ann" in linked
        assert LOOKS not in linked
        page.goto("about:blank")
        page.goto(linked)
        page.wait_for_selector("#queue tbody tr")
        one.wait(lambda: count(page) == len(few))
        assert sorted(column(page, "nodes"), key=int) == column(page, "nodes")
        page.fill("input[name=nodes]", "many")
        assert "nodes: write 8, 4-16" in page.inner_text("#filters-said")
        assert page.get_attribute("input[name=nodes]", "aria-invalid") == "true"
        page.click("#filters button[type=reset]")
        one.wait(lambda: count(page) == 2_000)
        page.wait_for_function("() => !location.search.includes('user=')")
        closed(one)


def test_columns_are_chosen_and_what_is_filtered_is_saved_as_csv(
    browser: Any, tmp_path: Path
) -> None:
    crowd = Crowd(500)
    with crowd.served() as address:
        one = opened(browser, address, "?sort=job")
        page = one.page
        page.click("#queue summary")
        page.check("#queue input[name=qos]")
        page.uncheck("#queue input[name=within]")
        assert "QOS" in page.locator("#queue thead th").all_inner_texts()
        page.select_option("select[name=user]", "=cmd()")
        with page.expect_download() as download:
            page.click("#queue .bar > button")
        download.value.save_as(tmp_path / "jobs.csv")
        with (tmp_path / "jobs.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        wanted = [job for job in crowd.pending if job["user"] == "=cmd()"]
        assert [row["job"] for row in rows] == [job["id"] for job in wanted]
        assert [float(row["limit"]) for row in rows] == [job["walltime_s"] for job in wanted]
        assert {row["user"] for row in rows} == {"'=cmd()"}
        assert {row["qos"] for row in rows} == {"normal", "high"}
        assert "within" not in rows[0]
        closed(one)


def test_columns_without_a_value_are_hidden_until_a_row_has_one(browser: Any) -> None:
    crowd = Crowd(20, every_s=0.2)
    for job in crowd.pending:
        job.update(partition="", user="")
    crowd.submit = lambda: None  # type: ignore[method-assign]
    with crowd.served() as address:
        one = opened(browser, address)
        heads = one.page.locator("#queue thead th")
        assert not {"User", "Partition"} & set(heads.all_inner_texts())
        one.page.click("#queue summary")
        one.page.check("#queue input[name=user]")
        assert "User" in heads.all_inner_texts()
        one.page.uncheck("#queue input[name=user]")
        crowd.pending[0]["partition"] = "gpu"
        one.wait(lambda: "Partition" in heads.all_inner_texts())
        assert "User" not in heads.all_inner_texts()
        one.page.wait_for_function("() => !location.search.includes('columns=')")
        closed(one)


def test_all_sections_and_pages_are_named_in_the_header_and_nothing_is_sent_twice(
    browser: Any, address: str
) -> None:
    one = opened(browser, address, viewport={"width": 1440, "height": 900})
    page = one.page
    answers: list[int] = []
    page.on("response", lambda answer: answers.append(answer.status))
    page.wait_for_selector("header nav.pages a")
    assert page.evaluate(
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.ways'))"
    )
    linked = page.locator("header nav[aria-label=Sections] a").evaluate_all(
        "(all) => all.map((one) => one.hash)"
    )
    sections = page.locator("main section[id]").evaluate_all(
        "(all) => all.map((one) => `#${one.id}`)"
    )
    assert ["#s-overview", *linked] == sections
    # The explanation of the decision does not change with the queue.
    one.wait(lambda: 304 in answers)
    closed(one)


def test_running_jobs_have_hostlists_and_ten_thousand_nodes_a_table(browser: Any) -> None:
    crowd = Crowd(20, nodes=10_000)
    with crowd.served() as address:
        one = opened(browser, address, "?nodes.sort=-node")
        page = one.page
        assert column(page, "where", "running")[0] == "n[00000-00001]"
        page.click("#s-nodes summary")
        page.wait_for_selector("#nodes-table tbody tr")
        assert column(page, "node", "nodes-table")[0] == "n09999"
        assert page.locator("#nodes-table tbody tr").count() < 100
        page.fill("#find-nodes", "rack 312")
        assert page.get_attribute("#nodes-table table", "aria-rowcount") == "17"
        closed(one)


@pytest.mark.slow
def test_a_queue_of_a_hundred_thousand_has_few_rows_in_the_page(browser: Any) -> None:
    with Crowd(100_000, nodes=10_000).served() as address:
        one = opened(browser, address)
        page = one.page
        page.fill("input[name=find]", "12")
        page.click("#queue thead th[data-column=job] button")
        page.fill("input[name=find]", "")
        one.wait(lambda: count(page) == 100_000)
        page.focus("#queue tbody tr button")
        page.keyboard.press("Control+End")
        page.wait_for_function(
            "() => document.activeElement.closest('tr').ariaRowIndex === '100001'"
        )
        assert page.locator("#queue tbody tr").count() < 60
        closed(one)


def test_roles_see_what_they_may_do(browser: Any, tmp_path: Path) -> None:
    crowd, switch = Crowd(20, every_s=0.2, mode="approve", awaiting=(41, 40)), tmp_path / "stop"
    with crowd.served(switch) as address:
        one = opened(browser, address)
        page = one.page
        page.wait_for_selector("#approval p")
        assert "2 decisions await approval by an operator." in page.inner_text("#approval")
        assert page.locator("#approval button").count() == 0
        assert page.locator("#kill").is_hidden()
        closed(one)
        one = opened(browser, address, token=ACTS)
        page = one.page
        page.wait_for_selector("#approval button")
        page.click("#kill")
        assert "your name, ana" in page.inner_text("#confirm")
        page.click("#confirm >> text=Cancel")
        assert not switch.exists()
        assert page.locator("#kill").inner_text() == "Stop the twin"
        closed(one)


def test_what_was_read_is_approved_or_nothing(browser: Any) -> None:
    """While a decision is read, another takes its place: the question stays, and cannot be answered."""
    crowd = Crowd(20, every_s=0.1, mode="approve", awaiting=(41,))
    with crowd.served() as address:
        one = opened(browser, address, token=ACTS)
        page = one.page
        page.click("#approval button")
        page.wait_for_selector("#confirm[open]")
        assert "Starts 1 of 20 pending jobs" in page.inner_text("#confirm")
        assert STAYS in page.inner_text("#confirm table")
        text = page.inner_text("#confirm table")
        crowd.extra["awaiting"] = (42,)
        one.wait(
            lambda: one.says("#confirm", "Decision 41 no longer awaits approval; decision 42 does.")
        )
        assert page.inner_text("#confirm h2") == "Decision 41"
        assert page.inner_text("#confirm table") == text
        assert page.locator("#confirm button[value=approved]").is_disabled()
        page.keyboard.press("Escape")
        page.wait_for_function("() => !document.getElementById('confirm').open")
        assert page.inner_text("#approval button") == "Review decision 42"
        closed(one)


@pytest.mark.parametrize(
    "options",
    [
        {"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"},
        {"viewport": {"width": 390, "height": 844}},
        {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    ],
)  # fmt: skip
def test_the_page_is_accessible_in_all_its_looks(browser: Any, options: dict[str, Any]) -> None:
    with Crowd(50, mode="approve", awaiting=(41,), trouble=("a warning",)).served() as address:
        one = opened(browser, address, "?user=ann", token=ACTS, **options)
        page = one.page
        page.wait_for_selector("#candidates tbody tr")
        page.click("#s-nodes summary")
        page.wait_for_selector("#nodes-table tbody tr")
        assert (found := Axe().run(page)).violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.click("#approval button")
        page.wait_for_selector("#confirm[open]")
        assert (found := Axe().run(page)).violations_count == 0, found.generate_report()
        closed(one)


def test_a_phone_shows_start_interval_and_reason(browser: Any, address: str) -> None:
    one = opened(browser, address, viewport={"width": 390, "height": 844})
    page = one.page
    for name in ("job", "user", "start", "within", "reason"):
        cell = page.locator(f"#queue tbody tr [data-column={name}]").first
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        fits = "(all) => all.every((one) => one.scrollWidth <= one.clientWidth + 1)"
        assert page.locator(f"#queue tbody tr [data-column={name}]").evaluate_all(fits), name
    closed(one)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_candidates_scroll_within_their_box(browser: Any, width: int) -> None:
    """The names of policies stay in view, and leave room for each other column in turn."""
    crowd = Crowd(20)
    plain = crowd.decision(1)
    metrics = {"mean_wait_s": 1234.5, "p95_wait_s": 9999.0, "mean_bounded_slowdown": 3.2,
               "utilization": 0.93, "node_weighted_wait_s": 12345.0, "max_slowdown": 7.0}  # fmt: skip
    candidates = tuple(
        one.model_copy(update={"policy": f"{one.policy}, place contiguous", "metrics": metrics})
        for one in plain.candidates
    )
    new = {"candidates": candidates, "policy": candidates[0].policy}
    crowd.decision = lambda number: plain.model_copy(update=new)  # type: ignore[method-assign]
    with crowd.served() as address:
        one = opened(browser, address, viewport={"width": width, "height": 844})
        page = one.page
        page.wait_for_selector("#candidates tbody tr")
        view = page.locator("#candidates .view")
        for name in ("score", *metrics, "starts"):
            cells = page.locator(f"#candidates [data-column={name}]")
            cells.first.scroll_into_view_if_needed()
            box, around = cells.first.bounding_box(), view.bounding_box()
            assert box is not None
            assert around is not None
            assert box["x"] + box["width"] <= around["x"] + around["width"] + 1, name
            policy = page.locator("#candidates thead [data-column=policy]").bounding_box()
            assert policy is not None
            assert policy["x"] + policy["width"] <= around["x"] + 0.65 * around["width"]
            lefts = cells.evaluate_all(
                "(all) => all.map((one) => one.getBoundingClientRect().left)"
            )
            assert max(lefts) - min(lefts) < 1, name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        closed(one)


def test_a_record_is_not_taken_for_a_live_cluster_and_a_watcher_only_would_start(
    browser: Any,
) -> None:
    crowd = Crowd(20, every_s=0.2)
    with crowd.served() as address:
        one = opened(browser, address)
        page = one.page
        one.wait(lambda: one.says("#wants", "Would start 1 job"))
        assert "The twin observes" in page.inner_text("#standing")
        crowd.extra = {"mode": "act", "is_active": True}
        one.wait(lambda: one.says("#wants", "Starts 1 job"))
        crowd.extra = {"mode": "act", "killed": True, "trouble": ("the kill switch is activated",)}
        one.wait(lambda: one.says("#wants", "Would start 1 job"))
        assert one.says("#well", "does nothing until the kill switch is released")
        crowd.extra = {"alive": False, "trouble": ("the twin is not running",)}
        one.wait(lambda: one.says("#standing", "Recorded, as of"))
        one.wait(lambda: one.says("#wants", "Would have started 1 job"))
        assert one.says("#health", "No")
        assert one.says("#figures", "recorded at")
        closed(one)


def test_a_page_whose_server_is_silent_or_gone_does_not_say_that_all_is_well(browser: Any) -> None:
    crowd = Crowd(20)
    with crowd.served() as address:
        one = Watched(browser, address)
        page = one.page
        page.clock.install()
        page.goto(f"{address}#token={LOOKS}")
        one.wait(lambda: one.says("#health", "Yes"))
        assert one.errors == []
        page.clock.fast_forward(60_000)
        one.wait(lambda: one.says("#health", "Unknown: no answer from the server"))
        assert one.says("#well", "This page shows the state of 2023-11-14")
        page.clock.fast_forward(1_000)
        one.wait(lambda: one.says("#health", "Yes"))
    one.wait(lambda: one.says("#health", "Unknown: no answer from the server"))
    assert one.says("#waits", "20 jobs pending")
    one.context.close()


def test_counts_have_the_same_form_whatever_the_language_of_the_browser(browser: Any) -> None:
    with Crowd(2_000, nodes=3_000).served() as address:
        one = opened(browser, address, locale="de-DE")
        page = one.page
        one.wait(lambda: one.says("#waits", "2,000 jobs pending"))
        one.wait(lambda: one.says("#waiting", "0 of 3,000 nodes are free."))
        assert one.says("#queue", "2,000 pending jobs")
        assert not re.search(r"\d\.\d{3}", page.inner_text("main"))
        closed(one)
