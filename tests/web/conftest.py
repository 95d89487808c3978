"""Pages for tests of the web."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.page import Page


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Makes a page; its twin ends with the test."""
    made: list[Page] = []

    def one(**config: Any) -> Page:
        made.append(Page(tmp_path, **config))
        return made[-1]

    yield one
    for page in made:
        page.close()
