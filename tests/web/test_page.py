"""The dashboard in a real browser, beside a real twin of an emulated cluster."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe

from hpctwin import Cluster, Simulation, generate, simulate
from hpctwin.report.accessor import report_results
from hpctwin.report.pages.run import write_run
from tests.twin.processes import Pair
from tests.web.browser import Watched, chromium
from tests.web.page import Page

pytestmark = pytest.mark.browser

LOOKS, ACTS = "b" * 24, "a" * 24


@contextmanager
def served(folder: Path, mode: str, *options: str) -> Iterator[str]:
    """The address of a page beside a twin of a cluster that goes on by itself."""
    pair = Pair(folder, act={"mode": mode})
    pair.begin_cluster("--nodes", "32", "--speed", "30", *options)
    pair.begin_twin()
    pair.wait(lambda: (pair.status().get("waiting") or 0) >= 5, 60)
    tokens = folder / "tokens"
    tokens.write_text(f"ben viewer {LOOKS}\nana operator {ACTS}\n")
    tokens.chmod(0o600)
    command = ["serve", "-c", str(pair.config), "--port", "0", "--tokens", str(tokens)]
    with (folder / "serve.log").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hpctwin", *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=300)
        pair.end()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a page beside a twin that only watches."""
    with served(tmp_path_factory.mktemp("page"), "observe") as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


@pytest.fixture
def watched(browser: Any, address: str) -> Iterator[Watched]:
    """A page that somebody with a token looks at; nothing may go wrong on it."""
    one = Watched(browser, address, viewport={"width": 1280, "height": 900})
    one.page.goto(f"{address}#token={LOOKS}")
    one.page.wait_for_selector("#queue tbody tr")
    yield one
    assert one.errors == []
    assert one.outside == []
    one.context.close()


def test_changes_on_the_cluster_appear_on_the_screen_by_themselves(watched: Watched) -> None:
    page = watched.page
    before = page.inner_text("#figures")
    page.wait_for_function(
        "(old) => document.getElementById('figures').innerText !== old", arg=before
    )
    page.wait_for_selector("#candidates tbody tr.chosen")
    assert "Decision" in page.inner_text("#explained")
    assert "32 nodes" in page.get_attribute("#nodes", "aria-label")


def test_the_token_does_not_stay_in_the_address(watched: Watched) -> None:
    assert LOOKS not in watched.page.url


def test_a_what_if_gives_two_futures_by_keyboard_alone(watched: Watched) -> None:
    page = watched.page
    page.focus("input[name=add_nodes]")
    page.keyboard.type("32")
    page.keyboard.press("Enter")
    page.wait_for_selector("#compared tbody tr")
    assert "32 nodes" in page.inner_text("#f-as-is")
    assert "64 nodes" in page.inner_text("#f-changed")
    assert "better" in page.inner_text("#compared")
    assert "Simulated in" in page.inner_text("#whatif-said")


def test_a_what_if_that_makes_no_sense_is_answered_in_words(watched: Watched) -> None:
    page = watched.page
    page.fill("input[name=drain]", "nowhere[1-2] n0")
    page.click("#whatif button[type=submit]")
    # A function: Playwright looks again at anything else by `eval`, which the page forbids.
    page.wait_for_function(
        "() => document.getElementById('whatif-said').textContent.includes('nowhere1')"
    )
    watched.wait(lambda: any("404" in one for one in watched.errors))
    watched.errors = [one for one in watched.errors if "404" not in one]


def test_the_charts_are_walked_by_keyboard(watched: Watched) -> None:
    page = watched.page

    def says(key: str, selector: str, text: str) -> bool:
        # Before its picture has come, a chart has nothing to say.
        page.keyboard.press(key)
        return watched.says(selector, text)

    page.focus("#nodes")
    page.keyboard.press("ArrowRight")
    watched.wait(lambda: says("ArrowRight", "#nodes-said", "."))
    page.focus("#gantt")
    for key in ("+", "ArrowLeft", "0"):
        page.keyboard.press(key)
    watched.wait(lambda: says("Enter", "#gantt-said", "Job "))


GRID = """async ([count, racks]) => {
    const { Nodes } = await import("/static/nodes.js");
    const made = (id, name) => document.body.appendChild(Object.assign(document.createElement(name), { id }));
    const canvas = made("many", "canvas"), said = made("many-said", "p");
    canvas.tabIndex = 0;
    const grid = new Nodes(canvas, said, document.getElementById("by"));
    const node = (i) => ({ name: `n${i}`, place: `rack ${i % racks}`, state: "up", jobs: [], load: {} });
    grid.set(Array.from({ length: count }, (_, i) => node(i)));
    const { clientWidth: wide, clientHeight: high } = canvas;
    return { size: grid.size, cells: grid.cells.map(({ x, y }) => [x, y]), wide, high };
}"""


@pytest.mark.parametrize("racks", [1, 100])
def test_ten_thousand_nodes_are_distinguishable_and_browsed_by_keyboard(
    watched: Watched, racks: int
) -> None:
    page = watched.page
    grid = page.evaluate(GRID, [10_000, racks])
    assert grid["size"] >= 5
    assert len(grid["cells"]) == 10_000
    corners = sorted(grid["cells"], key=lambda one: (one[1], one[0]))
    assert len({(x, y) for x, y in corners}) == 10_000
    assert all(
        left[1] != right[1] or right[0] - left[0] >= grid["size"]
        for left, right in pairwise(corners)
    )
    assert all(0 <= x <= grid["wide"] - grid["size"] for x, _ in corners)
    assert all(0 <= y <= grid["high"] - grid["size"] for _, y in corners)
    page.focus("#many")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "n2 (rack" in page.inner_text("#many-said")


def test_a_job_is_asked_about_and_text_of_users_is_never_markup(watched: Watched) -> None:
    page = watched.page
    page.click("#queue tbody tr button")
    page.wait_for_selector("#job p")
    assert "Job " in page.inner_text("#job")
    page.evaluate(
        """async () => {
            const { element } = await import("/static/words.js");
            document.getElementById("job").replaceChildren(element("p", "<img src=x onerror=alert(1)>"));
        }"""
    )
    assert page.query_selector("#job img") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_accessible_and_fits_its_width(
    browser: Any, address: str, scheme: str, width: int
) -> None:
    one = Watched(browser, address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    one.page.goto(f"{address}#token={LOOKS}")
    one.page.wait_for_selector("#candidates tbody tr.chosen")
    one.page.click("#whatif button[type=submit]")
    one.page.wait_for_selector("#compared tbody tr")
    found = Axe().run(one.page)
    assert found.violations_count == 0, found.generate_report()
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    assert one.errors == []
    one.context.close()


def test_without_a_token_the_page_asks_for_one_and_takes_it(browser: Any, address: str) -> None:
    one = Watched(browser, address)
    one.page.goto(address)
    one.page.wait_for_selector("#ask-token[open]")
    one.page.fill("#token", "wrong" * 8)
    one.page.keyboard.press("Enter")
    one.page.wait_for_selector("#ask-token[open]")
    one.page.fill("#token", LOOKS)
    one.page.keyboard.press("Enter")
    one.page.wait_for_selector("#queue tbody tr")
    assert all("401" in error for error in one.errors)
    one.context.close()


def test_a_viewer_may_not_confirm_and_an_operator_may(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path, "approve") as address:
        looks, acts = (
            Watched(browser, address, viewport={"width": 1280, "height": 900}) for _ in range(2)
        )
        for one, token in ((looks, LOOKS), (acts, ACTS)):
            one.page.goto(f"{address}#token={token}")
        looks.wait(lambda: looks.says("#approval", "by an operator"))
        assert looks.page.locator("#approval button").count() == 0
        refused = looks.page.evaluate(
            """async () => (await import("/static/api.js")).send("POST", "decisions/1/approval",
                { approved: true }).catch((error) => [error.status, error.message])"""
        )
        assert refused == [403, "the role operator is required"]
        looks.wait(lambda: any("403" in error for error in looks.errors))

        def answered() -> bool:
            # A decision that no longer goes with the cluster cannot be approved any more.
            page = acts.page
            page.locator("#approval button").first.click()
            page.wait_for_selector("#confirm[open]")
            number = page.inner_text("#confirm h2").removeprefix("Decision ")
            page.locator("#confirm button", has_text="Cancel").wait_for()
            approve = page.locator("#confirm button[value=approved]")
            if approve.is_enabled():
                approve.click()
            else:
                page.keyboard.press("Escape")
            page.wait_for_timeout(300)
            return acts.says("#approval-said", f"Approved: decision {number}.")

        acts.page.wait_for_selector("#approval button")
        acts.wait(answered)
        for one in (looks, acts):
            one.context.close()


def test_an_operator_stops_the_twin_and_all_see_it(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path, "act") as address:
        looks, acts = (
            Watched(browser, address, viewport={"width": 1280, "height": 900}) for _ in range(2)
        )
        for one, token in ((looks, LOOKS), (acts, ACTS)):
            one.page.goto(f"{address}#token={token}")
            one.page.wait_for_selector("#queue tbody tr")
        page = acts.page
        page.click("#kill")
        page.keyboard.press("Escape")
        assert not (tmp_path / "stop").exists()
        page.click("#kill")
        page.click("#confirm button[value=yes]")
        acts.wait(lambda: acts.says("#kill-said", "The kill switch is activated."))
        assert (tmp_path / "stop").exists()
        assert page.inner_text("#kill") == "Release the kill switch"
        looks.wait(lambda: looks.says("#trouble", "the kill switch is activated"))
        assert looks.page.locator("#kill").is_hidden()
        page.click("#kill")
        page.click("#confirm button[value=yes]")
        acts.wait(lambda: acts.says("#kill-said", "The kill switch is released."))
        assert not (tmp_path / "stop").exists()
        for one in (looks, acts):
            assert one.errors == []
            one.context.close()


def test_dark_and_light_are_kept(watched: Watched) -> None:
    page = watched.page
    page.click("#theme")
    chosen = page.evaluate("document.documentElement.dataset.theme")
    page.reload()
    page.wait_for_selector("#queue tbody tr")
    assert page.evaluate("document.documentElement.dataset.theme") == chosen


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A run's folder, and the address of its page; beside it lies a large one."""
    folder = tmp_path_factory.mktemp("run") / "run"
    many = Simulation(generate("poisson", jobs=9000, nodes=64, seed=5), 64, "fcfs+easy@contiguous")
    write_run(many.run(), folder.parent / "large", {})
    simulation = Simulation(
        generate("poisson", jobs=400, nodes=64, seed=5), 64, "fcfs+easy@contiguous"
    )
    simulation.advance(simulation.workload.span_s / 2)
    write_run(simulation.result(), folder, {}, now_s=simulation.now_s)
    command = ["serve", str(folder.parent), "--port", "0", "--no-token"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hpctwin", *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield folder, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=300)


def test_a_large_run_first_shows_the_picture_that_is_ready(
    browser: Any, run: tuple[Path, str]
) -> None:
    one = Watched(browser, run[1], viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    one.page.on("request", lambda request: asked.append(request.url))
    one.page.goto(f"{run[1]}large/")
    one.page.wait_for_selector("#jobs tbody tr")
    facts = one.page.evaluate("async () => (await fetch('api/v1/timeline')).json()")
    pictures = [parse_qs(urlsplit(url).query) for url in asked if "/picture?" in url]
    assert [(int(q["width"][0]), int(q["height"][0])) for q in pictures] == [tuple(facts["made"])]
    assert one.page.evaluate("performance.getEntriesByName('timeline').length") == 1
    assert one.errors == []
    one.context.close()


def test_the_server_sorts_and_finds_among_all_jobs_of_a_run(
    browser: Any, run: tuple[Path, str]
) -> None:
    waits = pl.read_parquet(run[0].parent / "large" / "jobs.parquet").sort(
        "wait_s", "job_id", descending=[True, False]
    )
    one = Watched(browser, run[1], viewport={"width": 1440, "height": 900})
    page = one.page
    page.goto(f"{run[1]}large/")
    page.wait_for_selector("#jobs tbody tr")
    assert page.locator("#jobs thead th[data-column=partition]").count() == 0
    page.click("#jobs thead th[data-column=wait] button")
    page.click("#jobs thead th[data-column=wait] button")
    one.wait(lambda: one.says("#jobs .count", "9,000 jobs; the first 1,000 by Waited ▼"))
    longest = str(waits["job_id"][0])
    one.wait(lambda: page.inner_text("#jobs tbody tr [data-column=job] >> nth=0") == longest)
    assert page.locator("#jobs tbody tr").count() < 100
    page.fill("#find", longest)
    one.wait(lambda: one.says("#found", "1 job"))
    page.wait_for_function("() => location.search.includes('find=')")
    page.reload()
    one.wait(lambda: page.locator("#jobs tbody tr").count() == 1)
    assert one.errors == []
    one.context.close()


def test_a_run_in_progress_is_drawn_browsed_and_followed(
    browser: Any, run: tuple[Path, str]
) -> None:
    folder, address = run
    one = Watched(browser, address, viewport={"width": 400, "height": 900}, color_scheme="dark")
    page = one.page
    page.goto(f"{address}run/")
    page.wait_for_selector("#jobs tbody tr")
    assert "in progress" in page.inner_text("#standing")
    drawn = """() => {
        const canvas = document.getElementById("gantt"), { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        return new Set(new Uint32Array(data.buffer)).size;
    }"""
    one.wait(lambda: page.evaluate(drawn) > 8)
    page.focus("#gantt")
    for key in ("+", "PageUp", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_function("() => document.getElementById('gantt-said').textContent !== ''")
    page.focus("canvas.line")
    page.keyboard.press("ArrowRight")
    one.wait(lambda: one.says("#lines-said", "nodes in use"))
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    simulation = Simulation(
        generate("poisson", jobs=400, nodes=64, seed=5), 64, "fcfs+easy@contiguous"
    )
    write_run(simulation.run(), folder, {})
    page.wait_for_function(
        "() => document.getElementById('standing').textContent === 'Simulated run'"
    )
    assert one.errors == []
    assert one.outside == []
    one.context.close()


def test_no_column_of_a_report_is_truncated_on_paper(browser: Any, tmp_path: Path) -> None:
    modes = {"base": {"power_w": 200.0, "idle_w": 50.0}}
    machine = Cluster.model_validate({"nodes": [{"name": "a", "count": 64, "modes": modes}]})
    jobs = generate("poisson", jobs=200, nodes=64, load=2.0, seed=5)
    runs = {name: simulate(jobs, machine, policy=name) for name in ("fcfs+easy", "sjf+easy:4/sjf")}
    report_results(tmp_path / "r.html", runs)
    one = Watched(browser, "file:", viewport={"width": 700, "height": 1000})
    one.page.emulate_media(media="print")
    one.page.goto((tmp_path / "r.html").as_uri())
    assert "energy" in one.page.inner_text("table")
    assert one.page.evaluate(
        "Math.max(...[...document.querySelectorAll('table')].map((one) => one.scrollWidth)) <= 700"
    )
    one.context.close()


def test_assets_are_shipped_with_the_package() -> None:
    import hpctwin.web

    folder = Path(hpctwin.web.__file__).parent / "static"
    page = (folder / "index.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    for script in folder.glob("*.js"):
        assert "://" not in script.read_text(), script.name


def test_a_page_names_all_its_modules_so_that_none_waits_for_another() -> None:
    import hpctwin.web

    folder = Path(hpctwin.web.__file__).parent / "static"

    def imported(script: str) -> set[str]:
        named = re.findall(r'from "\./(\w+\.js)"', (folder / script).read_text())
        return {script}.union(*map(imported, named))

    for page in folder.glob("*.html"):
        text = page.read_text()
        (main,) = re.findall(r'<script type="module" src="/static/([^"]+)"', text)
        ahead = re.findall(r'<link rel="modulepreload" href="/static/([^"]+)"', text)
        assert sorted([main, *ahead]) == sorted(imported(main)), page.name


def test_the_server_ends_in_order_with_connected_viewers(tmp_path: Path) -> None:
    page = Page(tmp_path)
    try:
        command = [
            sys.executable,
            "-m",
            "hpctwin",
            "serve",
            "--port",
            "0",
            "--journal",
            page.source.path,
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        where = urlsplit(process.stdout.readline().strip())
        token = where.fragment.removeprefix("token=")
        with socket.create_connection((where.hostname, where.port)) as one:
            ask = f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            one.sendall(ask.encode())
            assert b"200 OK" in one.recv(65_536)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
        assert errors == ""
    finally:
        page.close()
