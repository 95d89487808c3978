"""A figure or a comparison on the last line of a cell is shown, in a real notebook's kernel."""

from __future__ import annotations

import base64
from typing import Any

import pytest

RUN = """
from hpctwin import compare, generate
results = compare(generate("poisson", jobs=40, nodes=16, seed=1), 16, ["fcfs+easy", "sjf+easy"])
"""


@pytest.fixture(scope="module")
def shown() -> dict[str, list[dict[str, Any]]]:
    """What cells show, by their code, in order and in one kernel."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=300)
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for code in (
            RUN, "results['fcfs+easy'].plot.queue()", "results.plot.wait_cdf()", "results",
            "chart = results.plot.bars()", "%matplotlib inline", "results.plot.queue()",
        ):  # fmt: skip
            messages: list[dict[str, Any]] = []
            client.execute_interactive(code, timeout=500, output_hook=messages.append)
            errors = [m["content"] for m in messages if m["msg_type"] == "error"]
            assert not errors, errors
            kinds = ("execute_result", "display_data")
            found[code] = [m["content"]["data"] for m in messages if m["msg_type"] in kinds]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found


@pytest.mark.parametrize(
    "code",
    ["results['fcfs+easy'].plot.queue()", "results.plot.wait_cdf()", "results.plot.queue()"],
)
def test_a_figure_is_shown_once_with_and_without_the_inline_backend(
    shown: dict[str, list[dict[str, Any]]], code: str
) -> None:
    (data,) = shown[code]
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert "axes" in data["text/plain"].lower()


def test_a_figure_that_is_not_the_last_expression_is_not_shown(
    shown: dict[str, list[dict[str, Any]]],
) -> None:
    assert shown["chart = results.plot.bars()"] == []


def test_a_comparison_is_shown_as_a_table(shown: dict[str, list[dict[str, Any]]]) -> None:
    (data,) = shown["results"]
    assert data["text/html"].count("<tr>") == 3
    assert "mean wait" in data["text/html"]
    assert data["text/plain"] == "<Comparison poisson: fcfs+easy, sjf+easy>"
