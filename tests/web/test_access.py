"""Where a page may be served, and by which tokens."""

from __future__ import annotations

import pathlib

import pytest

from hpctwin.errors import HpctwinError
from hpctwin.web.server.gate import ENVIRONMENT, read_tokens
from hpctwin.web.server.serve import Listening, access_of

SECRET = "s" * 24


@pytest.fixture(autouse=True)
def _no_tokens_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


def tokens(tmp_path: pathlib.Path, text: str, mode: int = 0o600) -> pathlib.Path:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_on_loopback_a_token_is_made_up_that_differs_each_time() -> None:
    first, second = (access_of(Listening()).tokens for _ in range(2))
    assert len(first) == 1
    assert first[0].role == "viewer"
    assert len(first[0].secret) >= 24
    assert first[0].secret != second[0].secret


def test_tokens_are_read_from_a_file_or_the_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"# who may\n\nana operator {SECRET}\nprometheus viewer {SECRET[::-1]}x\n"
    found = read_tokens(tokens(tmp_path, text))
    assert [(one.name, one.role) for one in found] == [
        ("ana", "operator"),
        ("prometheus", "viewer"),
    ]
    monkeypatch.setenv(ENVIRONMENT, text)
    assert read_tokens(None) == found


@pytest.mark.parametrize(
    ("listening", "says"),
    [
        (Listening(host="0.0.0.0"), "access from other hosts requires a token"),
        (Listening(host="192.0.2.1"), "access from other hosts requires a token"),
        (Listening(certificate=pathlib.Path("c.pem")), "are required together"),
        (Listening(key=pathlib.Path("k.pem")), "are required together"),
    ],
)
def test_an_unsafe_place_is_rejected(listening: Listening, says: str) -> None:
    with pytest.raises(HpctwinError, match=says):
        access_of(listening)


def test_beyond_this_host_tokens_do_not_travel_in_the_clear(tmp_path: pathlib.Path) -> None:
    path = tokens(tmp_path, f"ana operator {SECRET}\n")
    with pytest.raises(HpctwinError, match="unencrypted"):
        access_of(Listening(host="192.0.2.1", tokens=path))
    assert access_of(Listening(host="192.0.2.1", tokens=path, behind_proxy=True)).tokens
    with pytest.raises(HpctwinError, match="does not work with --tokens"):
        access_of(Listening(tokens=path, no_token=True))


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (f"ana operator {SECRET}\n", 0o644, "other users may read"),
        (f"ana operator {SECRET}\n", 0o660, "other users may"),
        ("ana operator short\n", 0o600, "line 1: secret of ana has 5 characters"),
        (f"ana operatr {SECRET}\n", 0o600, "operatr"),
        (f"ana {SECRET}\n", 0o600, "line 1: found 2 words"),
        (f"a operator {SECRET}\na viewer {SECRET}\n", 0o600, "line 2: a is listed twice"),
        ("# nothing\n", 0o600, "file contains no token"),
    ],
)
def test_a_file_of_tokens_that_will_not_do_is_rejected_without_showing_them(
    tmp_path: pathlib.Path, text: str, mode: int, says: str
) -> None:
    with pytest.raises(HpctwinError, match=says) as error:
        read_tokens(tokens(tmp_path, text, mode))
    assert SECRET not in str(error.value)


def test_a_file_that_is_not_there_is_reported_by_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(HpctwinError, match="nowhere"):
        read_tokens(tmp_path / "nowhere")
