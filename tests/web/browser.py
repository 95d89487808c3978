"""A headless Chromium, Debian's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.conftest import lacking


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test fails or is skipped where there is none."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        lacking("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and what went wrong on it: errors of its console, and requests to anywhere else."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._request)

    def wait(self, reached: Callable[[], bool]) -> None:
        """Until something is so."""
        until = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < until, self.page.inner_text("body")
            self.page.wait_for_timeout(20)

    def says(self, selector: str, text: str) -> bool:
        """Whether a part of the page has a text in it."""
        return text in self.page.inner_text(selector)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.outside.append(request.url)
