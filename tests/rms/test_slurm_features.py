"""What Slurm's jobs ask of nodes that is no amount."""

from __future__ import annotations

from typing import Any

import pytest

from hpctwin.rms.slurm.listing.resources import features_asked, features_of, lying_of, names_asked

LYING = {"sockets": {1, 2, 4}, "cores_per_socket": {8}, "threads_per_core": {1, 2}}


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ({}, ""),
        ({"features": "a100"}, "a100"),
        ({"features": "(a|b)&ib"}, "(a|b)&ib"),
        ({"features": "[a|b]", "node_count": 1}, "a|b"),
        ({"features": "[a|b]&ib", "node_count": 1}, "(a|b)&ib"),
        ({"features": "[a|b]", "node_count": 2}, None),
        ({"features": "a*2&b*1", "node_count": 3}, None),
        ({"features": "a&b|c"}, "(a|c)&(b|c)"),
        ({"features": "a*2", "node_count": 2}, "a"),
        ({"features": "!gpu,ib", "node_count": 2}, "!gpu&ib"),
        ({"features": "a b"}, None),
        ({"features": "a", "prefer": "a"}, ""),
        ({"sockets_per_node": 2}, "sockets=2|sockets=4"),
        ({"sockets_per_node": 1}, ""),
        ({"sockets_per_node": 8}, "sockets=8"),
        ({"cores_per_socket": 8}, ""),
        ({"threads_per_core": {"set": True, "number": 2}}, "threads_per_core=2"),
        ({"features": "a|b", "sockets_per_node": 2}, "(a|b)&(sockets=2|sockets=4)"),
        ({"features": "a&b", "sockets_per_node": 4}, "a&b&sockets=4"),
    ],
)
def test_requests_of_a_job_are_reported_in_hpctwins_words_or_not_at_all(
    row: dict[str, Any], asked: str | None
) -> None:
    assert features_asked([row], LYING) == asked


def test_parts_of_a_job_that_ask_for_different_features_are_not_modelled() -> None:
    assert features_asked([{"features": "a"}, {"features": "b"}], LYING) is None
    assert features_asked([{"features": "a"}, {"features": "a"}], LYING) == "a"


def test_nodes_have_those_features_that_jobs_ask_for() -> None:
    asked = names_asked([{"features": "(a|b)&ib"}, {"features": "x*2", "node_count": 3}])
    assert asked == {"a", "b", "ib"}
    assert names_asked([{"features": "!gpu&ib"}]) == {"gpu", "ib"}
    assert features_of({"features": "a,ib,c", "active_features": "a,c"}, asked) == ("a",)
    assert features_of({"active_features": ["ib", "a"]}, asked) == ("a", "ib")
    assert features_of({}, asked) == ()


def test_sockets_that_cannot_have_the_cores_are_not_imported() -> None:
    row = {"sockets": 2, "cores": 4, "threads": 2}
    assert lying_of(row, 16) == (2, 4, 2)
    assert lying_of(row, 17) == (None, None, None)
    assert lying_of({"sockets": 2}, 4) == (None, None, None)
