"""Constraints of jobs as users write them for Slurm."""

from __future__ import annotations

import itertools

import pytest

from hpctwin.model.requests.features import check_features, has_features, read_constraint

COUNTED = "constraint on some of the nodes (a*2), ignored"
BRACKETS = "constraint that counts nodes in brackets ([a*2&b*4]), "
ONE_FOR_ALL = (
    "constraint to one feature for all nodes ([a|b]), treated as any of them for each node"
)


@pytest.mark.parametrize(
    ("text", "nodes", "features", "lost"),
    [
        ("", 1, "", ""),
        ("a,b", 1, "a&b", ""),
        ("a & b", 1, "a&b", ""),
        ("'a'&\"b\"", 1, "a&b", ""),
        ("a||b", None, "a|b", ""),
        ("gpu_cc:8.0&ib+opa", 1, "gpu_cc:8.0&ib+opa", ""),
        ("!(a|b)", 1, "!a&!b", ""),
        ("^a,~b", 1, "!a&!b", ""),
        ("a100*2", 2, "a100", ""),
        ("a100*2", 4, "", COUNTED),
        ("a100*2", None, "", COUNTED),
        ("a100*4&fast", 16, "fast", COUNTED),
        ("(a&b)*2", 2, "a&b", ""),
        ("[a|b]", 1, "a|b", ""),
        ("[a|b]", 2, "a|b", ONE_FOR_ALL),
        ("c&[a|b]", 3, "c&(a|b)", ONE_FOR_ALL),
        ("[a*2|b*3]", 4, "", COUNTED),
        ("[a*2&b*4]", 6, "a|b", BRACKETS + "treated as any of them for each node"),
        ("[a*2&b*4]", 8, "", BRACKETS + "ignored"),
        ("[(a|b)*1&(c)*2]", 3, "a|b|c", BRACKETS + "treated as any of them for each node"),
        ("[a&b]", 2, "a&b", ""),
    ],
)
def test_a_constraint_says_what_every_node_must_have_and_what_is_lost(
    text: str, nodes: int | None, features: str, lost: str
) -> None:
    assert read_constraint(text, nodes) == (features, lost)


@pytest.mark.parametrize(
    "text", ["a b", "(a", "a)", "a&", "|a", "*2", "a*0", "a*two", "[a|b&c]", "[a", "(" * 2000, "!"]
)
def test_a_constraint_that_cannot_be_read_is_left_open_and_counted(text: str) -> None:
    assert read_constraint(text, 1) == ("", "constraint that cannot be parsed, ignored")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a&b|c", "(a and b) or c"),
        ("a|b&c", "(a or b) and c"),
        ("a|b,c", "(a or b) and c"),
        ("a|(b&c)", "a or (b and c)"),
        ("!a|b&!c", "(not a or b) and not c"),
        ("!(a&(b|c))", "not (a and (b or c))"),
        ("(a&b)|(b&c)|(a&c)", "(a and b) or (b and c) or (a and c)"),
    ],
)
def test_operators_count_from_left_to_right_as_in_slurm(text: str, meaning: str) -> None:
    features = read_constraint(text, 1).features
    check_features([features])
    for has in itertools.product([False, True], repeat=3):
        node = [name for name, there in zip("abc", has, strict=True) if there]
        expected = eval(meaning, {}, dict(zip("abc", has, strict=True)))
        assert has_features(features, node) is expected
