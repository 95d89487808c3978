"""Host lists: names in a few characters, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model.text import compact, expand


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("n1 n2 n3 n10", "n[1-3,10]"),
        ("n08 n09 n10 login", "n[08-10],login"),
        ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
        ("n n1", "n1,n"),
        ("cn1-ib cn2-ib", "cn[1-2]-ib"),
        ("n9 n10", "n[9-10]"),
        ("", ""),
    ],
)
def test_names_become_a_short_list(names: str, text: str) -> None:
    assert compact(names.split()) == text


@given(st.lists(st.from_regex(r"[a-z]{1,2}[0-9]{0,3}(-[a-z]|n[0-9]{1,2})?", fullmatch=True)))
def test_a_list_names_each_node_once(names: list[str]) -> None:
    found = expand(compact(names))
    assert sorted(found) == sorted(set(names))
