"""Durations and times as people read them."""

from __future__ import annotations

import pytest

from hpctwin.model import format_duration
from hpctwin.twin.words import clock_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0004, "0 s"), (0.25, "0.25 s"), (59.94, "59.9 s"), (59.96, "60 s"), (60, "1 min"),
        (3599, "1 h"), (7650, "2.13 h"), (34.5 * 3600, "1.44 d"), (4520 * 86400, "4,520 d"),
        (-90, "-1.5 min"),
    ],
)  # fmt: skip
def test_a_duration_has_three_digits_in_the_largest_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_the_clock_says_whether_a_time_is_a_date() -> None:
    assert clock_text(110_000_000, unix_time=False) == "1,273 d"
    assert clock_text(110_000_000, unix_time=True) == "1973-06-27 03:33:20 UTC"
    assert clock_text(60, unix_time=True) == "1970-01-01 00:01:00 UTC"
    assert clock_text(None, unix_time=True) == "never"
