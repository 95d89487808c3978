"""Pages with addresses in a real browser, for two roles, with hidden names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe

from hpctwin import Cluster, generate, simulate
from hpctwin.report.pages.run import write_run
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.journal.history import HOUR_S
from hpctwin.web.server.assembly import together
from hpctwin.web.server.gate import Access, Gate, Token
from hpctwin.web.server.serve import run_part, socket_at, twin_part
from hpctwin.web.server.sign_in import SignIn, SignInSettings
from tests.web.browser import Watched, chromium
from tests.web.page import ACTS, LOOKS, Page
from tests.web.provider import CLIENT, SECRET, provider

pytestmark = pytest.mark.browser

ANN = Token("ann", "user", b"u" * 24)
OTHER = "zoe"
HOSTS = frozenset({"127.0.0.1"})


@contextmanager
def served(access: Access, folder: Path) -> Iterator[str]:
    """The address of a server of a twin, with jobs of two users, and of two runs."""
    page = Page(folder)
    setting = page.setting
    jobs = ((70, "ann", 8), (71, OTHER, 8), (72, "evil\u202e\u200b", 8), (73, "a/b?c#d %", 4))
    for number, user, nodes in jobs:
        spec = JobSpec(
            id=str(number), submit_s=setting.cluster.now_s, nodes=nodes, walltime_s=60, user=user,
            account=f"{user}-account",
        )  # fmt: skip
        assert setting.cluster.submit(spec, 30).result == "done"
    setting.until(lambda: "73" in setting.twin.core.mirror.jobs)
    page.tell()
    with setting.journal.writing():
        setting.twin.follower.history.write(setting.journal, setting.twin.core)
    workload = generate("poisson", jobs=40, nodes=16, seed=3)
    parts = {"twin": twin_part(folder / "j.sqlite")}
    for name, policy in (("one", "fcfs+easy"), ("two", "sjf+easy")):
        write_run(simulate(workload, Cluster.uniform(nodes=16), policy=policy), folder / name, {})
        parts[name] = run_part(folder / name)
    listens = socket_at("127.0.0.1", 0)
    config = uvicorn.Config(Gate(together(parts), access), log_level="warning", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listens],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listens.getsockname()[1]}"
    finally:
        for part in parts.values():
            part.live.end()
        server.should_exit = True
        thread.join(10)
        page.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    access = Access((ACTS, LOOKS, ANN), HOSTS, hide_names=True)
    with served(access, tmp_path_factory.mktemp("pages")) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


@pytest.fixture
def watch(browser: Any, address: str) -> Iterator[Any]:
    made: list[Watched] = []

    def one(token: Token, path: str, **options: Any) -> Watched:
        made.append(Watched(browser, address, **options))
        show(made[-1], path, token)
        return made[-1]

    yield one
    for watched in made:
        # A missing item is a 404, which the browser writes into its console.
        assert [text for text in watched.errors if "404" not in text] == []
        assert watched.outside == []
        watched.context.close()


def show(watched: Watched, path: str, token: Token | None = None) -> None:
    secret = "" if token is None else f"#token={token.secret.decode()}"
    watched.page.set_default_timeout(30_000)
    watched.page.goto(watched.address + path + secret)
    watched.page.wait_for_selector("main section")


def text(watched: Watched) -> str:
    said: str = watched.page.inner_text("main")
    return said


PATHS = {
    "/twin/job/70": "Job 70", "/twin/node/n0001": "Node n0001", "/twin/user/ann": "User ann",
    "/twin/decision/1": "Decision 1", "/twin/history": "History", "/one/job/3": "Job 3",
    "/compare": "Comparison of runs",
}  # fmt: skip


def test_each_page_has_an_address_a_title_and_ways_back_and_survives_a_reload(watch: Any) -> None:
    watched = watch(ANN, "/twin/job/70")
    for path, title in PATHS.items():
        show(watched, path)
        before = text(watched)
        assert watched.page.title() == f"{title} – hpctwin"
        assert "Not found" not in before, path
        watched.page.reload()
        watched.page.wait_for_selector("main section")
        assert watched.page.url == watched.address + path
        assert watched.page.inner_text("main h2") == before.splitlines()[0]
        watched.page.click("text=All clusters and runs")
        watched.page.wait_for_selector("main section a")
        assert watched.page.url == watched.address + "/"


def test_unknown_things_are_named_in_words(watch: Any) -> None:
    watched = watch(ANN, "/twin/job/nothing")
    for path, says in (
        ("/twin/job/nothing", "unknown pending, running or recent job 'nothing'"),
        ("/twin/node/n01", "Did you mean 'n0001'"), ("/twin/user/nobody", "unknown user 'nobody'"),
        ("/twin/user/zoe", "Names of other users may be hidden"), ("/twin/decision/999", "999"),
        ("/twin/decision/x", "number"), ("/one/user/nobody", "unknown user"),
        ("/one/node/1", "A run has no page of a node"), ("/compare?runs=one,x", "no run x"),
    ):  # fmt: skip
        show(watched, path)
        assert says in text(watched), path
    # An invalid number is refused by 422.
    watched.errors = [one for one in watched.errors if "422" not in one]


def test_users_see_their_names_and_nobody_elses(watch: Any) -> None:
    own = watch(ANN, "/twin/job/70")
    assert "ann-account" in text(own)
    show(own, "/twin/job/71")
    assert "hidden" in text(own)
    assert OTHER not in own.page.content()
    own.page.goto(own.address + "/twin/")
    own.page.wait_for_selector("#queue tbody tr")
    assert OTHER not in own.page.content()
    assert "ann" in own.page.inner_text("#queue")
    operator = watch(ACTS, "/twin/job/71")
    assert f"{OTHER}-account" in text(operator)
    assert "ana (operator)" in operator.page.inner_text("header nav")
    viewer = watch(LOOKS, "/twin/job/70")
    assert "ann" not in text(viewer)


def test_names_of_any_letters_have_an_address_and_hide_no_letters(watch: Any) -> None:
    watched = watch(ACTS, "/twin/job/73")
    watched.page.click("text=a/b?c#d %")
    watched.page.wait_for_selector("text=Last week")
    assert watched.page.title() == "User a/b?c#d % – hpctwin"
    assert "Not found" not in text(watched)
    show(watched, "/twin/job/72")
    assert "evil⟨U+202E⟩⟨U+200B⟩" in text(watched)
    assert "\u202e" not in watched.page.content()


def test_decisions_lead_to_those_before_and_after(watch: Any) -> None:
    watched = watch(LOOKS, "/twin/decision/1")
    assert "Previous" not in text(watched)
    watched.page.click("text=Next (2)")
    watched.page.wait_for_selector("text=Previous (1)")
    assert "Decision 2 at" in text(watched)
    if watched.page.locator("text=Latest").count():
        watched.page.click("text=Latest")
    watched.page.wait_for_function("() => !document.body.innerText.includes('Next (')")


def test_the_history_switches_its_range_in_the_address(watch: Any) -> None:
    watched = watch(ANN, "/twin/history?range=day")
    assert watched.page.inner_text(".switch [aria-current]") == "1 day"
    assert "decisions" in text(watched)
    watched.page.click("text=26 weeks")
    watched.page.wait_for_selector("canvas.chart")
    assert watched.page.url.endswith("?range=all")
    chart = watched.page.locator("canvas.chart").first
    assert "Jobs: up to" in chart.get_attribute("aria-label")
    chart.press("ArrowRight")
    watched.wait(lambda: "mean" in watched.page.inner_text(".said"))


def test_a_new_tab_needs_no_token_while_another_is_open(watch: Any) -> None:
    first = watch(ANN, "/twin/job/70")
    other = first.context.new_page()
    other.goto(first.address + "/twin/user/ann")
    other.wait_for_selector("main section")
    assert "Now" in other.inner_text("main")
    # The first request of a new tab is refused, which the browser writes into its console.
    first.errors = [one for one in first.errors if "401" not in one]


def test_runs_have_different_titles_and_are_compared(watch: Any) -> None:
    watched = watch(LOOKS, "/")
    titles = watched.page.locator("main h2").all_inner_texts()
    assert len(set(titles)) == len(titles) == 3
    watched.page.add_init_script(
        "window.written = []; const fill = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {"
        " written.push(text); fill.call(this, text, ...at); }"
    )
    watched.page.click("text=Compare the runs")
    watched.page.wait_for_selector("main table")
    said = text(watched)
    assert "mean wait" in said
    assert "✓" in said
    axis = watched.page.evaluate("written")
    assert any(text.endswith((" h", " d")) for text in axis)
    assert not any("Jan" in text for text in axis)
    watched.page.click("thead >> text=two")
    watched.page.wait_for_selector("#jobs tbody tr")
    watched.page.click("text=All clusters and runs")
    watched.page.wait_for_selector("text=Compare the runs")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_are_accessible_and_fit(watch: Any, scheme: str, width: int) -> None:
    size = {"width": width, "height": 900}
    watched = watch(ACTS, "/twin/job/70", color_scheme=scheme, viewport=size)
    for path in PATHS:
        show(watched, path)
        wide = watched.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, path
        found = Axe().run(watched.page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path


def test_a_phone_shows_the_rows_of_tables_as_cards(watch: Any) -> None:
    watched = watch(ACTS, "/twin/user/ann", viewport={"width": 390, "height": 900})
    table = watched.page.locator("table.cards").first
    box = table.locator("tbody tr").first.bounding_box()
    for cell in table.locator("tbody tr").first.locator("td").all():
        one = cell.bounding_box()
        assert one["x"] + one["width"] <= box["x"] + box["width"] + 1
    titled = "(cell) => getComputedStyle(cell, '::before').content"
    assert "Job" in table.locator("tbody td").first.evaluate(titled)
    watched.page.set_viewport_size({"width": 1200, "height": 900})
    assert table.locator("tbody td").first.evaluate(titled) == "none"
    assert table.get_by_role("columnheader", name="Job").is_visible()


def test_a_user_signs_in_with_a_provider_and_comes_back_to_the_page(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    with provider() as oidc, closing(socket_at("127.0.0.1", 0)) as free:
        own = f"http://127.0.0.1:{free.getsockname()[1]}"
        about = {"issuer": oidc.address, "client_id": CLIENT, "client_secret_env": "OIDC_SECRET",
                 "address": own}  # fmt: skip
        sign_in = SignIn(SignInSettings(oidc=about))
        access = Access((), HOSTS, sign_in, hide_names=True)
        with served(access, tmp_path) as address:
            # The port is known only now; a real server is told its public address.
            object.__setattr__(sign_in.settings.oidc, "address", address)
            watched = Watched(browser, address)
            watched.page.goto(f"{address}/twin/job/70")
            watched.page.click("dialog >> text=Sign in")
            watched.page.wait_for_selector("text=ann-account")
            assert watched.page.url == f"{address}/twin/job/70"
            assert watched.page.evaluate("document.cookie") == ""
            show(watched, "/twin/job/71")
            assert OTHER not in watched.page.content()
            watched.page.click("text=Sign out")
            watched.page.wait_for_selector("dialog[open]")
            watched.context.close()


def test_a_week_of_hours_is_drawn_with_its_gap(watch: Any, address: str) -> None:
    watched = watch(ANN, "/twin/history?range=week")
    found = watched.page.evaluate(
        "fetch('/twin/api/v1/history?step=hour&limit=1',"
        f" {{headers: {{Authorization: 'Bearer {ANN.secret.decode()}'}}}}).then((r) => r.json())"
    )
    assert found["step_s"] == HOUR_S
    assert len(found["periods"]) == 1
