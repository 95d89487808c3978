"""Addresses of the web."""

from __future__ import annotations

import pytest

from hpctwin.errors import ConfigError
from hpctwin.model.web import http_address


@pytest.mark.parametrize("url", ["http://h", "https://u@h:9090/a?b=c", "http://[::1]:9"])
def test_an_address_is_given_back_as_it_is(url: str) -> None:
    assert http_address(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:9",
        "ftp://h",
        "file:///etc/passwd",
        "http://",
        "http://a b",
        "http://h:x",
        "http://[h",
    ],
)
def test_an_invalid_address_is_rejected_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="must start with http:// or https:// and name a host"):
        http_address(url)
