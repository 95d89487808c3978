"""Progress is seen in a terminal and in a real notebook's kernel, and nowhere else."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hpctwin import generate, simulate
from hpctwin.model.text import progress_bar

CELL = """
import time
from hpctwin import compare, generate, simulate
from hpctwin.model.text import progress_bar
jobs = generate("poisson", jobs=40, nodes=16, seed=1)
result = simulate(jobs, 16, "fcfs+easy", progress=True)
results = compare(jobs, 16, ["fcfs+easy", "sjf+easy"], progress=True)
with progress_bar("a <b>") as told:
    for step in range(5):
        time.sleep(0.15)
        told((step + 1) / 5)
"""


@pytest.fixture(scope="module")
def shown() -> list[dict[str, Any]]:
    """What a notebook's front end is told to show while a cell runs, in order."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=300)
    found: list[dict[str, Any]] = []
    try:
        client.execute_interactive(CELL, timeout=500, output_hook=found.append)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found


def pages(shown: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for message in shown:
        assert message["msg_type"] != "error", message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            content = message["content"]
            yield (
                message["msg_type"],
                content["transient"]["display_id"],
                content["data"]["text/html"],
            )


def test_a_notebook_shows_a_bar_for_each_running_task_until_it_is_done(
    shown: list[dict[str, Any]],
) -> None:
    told = list(pages(shown))
    begun = [page for kind, _, page in told if kind == "display_data"]
    assert [re.sub("<.*", "", page).strip() for page in begun] == [
        "poisson under fcfs+easy", "poisson, 2 policies", "a &lt;b&gt;",
    ]  # fmt: skip
    last = {place: page for _, place, page in told}
    assert len(last) == 3
    assert set(last.values()) == {""}
    bar = [page for _, place, page in told if place == told[-1][1]]
    shares = [float(found[1]) for page in bar if (found := re.search(r"value='([\d.]+)'", page))]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert len(shares) > 3
    assert "s left" in bar[2]


def test_a_notebook_gets_no_output_on_standard_error(shown: list[dict[str, Any]]) -> None:
    streams = [m["content"]["text"] for m in shown if m["msg_type"] == "stream"]
    assert [text for text in streams if "compiling the engine" not in text] == []


def test_a_terminal_shows_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar("much work") as told:
            told(0.5)
        terminal.flush()
        # What was written comes to the other side in parts.
        shown = b""
        while b"much work" not in shown:
            shown += os.read(ours, 1 << 16)
    os.close(ours)


@pytest.mark.parametrize("color", ["", "1"])
def test_nothing_is_printed_into_a_pipe(
    color: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", color)  # Jupyter sets it for the commands of a cell
    jobs = generate("poisson", jobs=20, nodes=16, seed=1)
    assert len(simulate(jobs, 16, "fcfs+easy", progress=True).jobs) == 20
    assert "poisson" not in capfd.readouterr().err
