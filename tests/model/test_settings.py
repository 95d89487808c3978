"""What is made in Python is refused in the same words as what is written in files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpctwin import Cluster
from hpctwin.errors import ConfigError
from hpctwin.model import NodeGroup, Partition
from hpctwin.twin.settings.config import CoreSettings, TwinConfig

NODES = [{"name": "a", "count": 3}]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: NodeGroup(name="a", count=0), ["NodeGroup, count: it must be 1 or more, not 0"]),
        (
            lambda: NodeGroup(name="a", count="x", gpus=-1),
            [
                "NodeGroup, count: it must be a whole number, not 'x'",
                "NodeGroup, gpus: it must be 0 or more, not -1",
            ],
        ),
        (
            lambda: Cluster(nodes=[{"name": "a", "cuont": 3}]),
            [
                "Cluster, nodes.0.count: it is missing (of 'a')",
                "Cluster, nodes.0.cuont: unknown field. Did you mean 'count'?",
            ],
        ),
        (lambda: Cluster(), ["Cluster, nodes: it is missing"]),
        (
            lambda: Cluster.model_validate({"nodes": NODES, "qoss": 3}),
            ["Cluster, qoss: unknown field. Did you mean 'qos'?"],
        ),
        (
            lambda: Cluster(
                nodes=[NodeGroup(name="a", count=3)], partitions=[Partition(name="x", groups=["b"])]
            ),
            ["Cluster: partition 'x': unknown node group 'b'; known: a"],
        ),
        (
            lambda: CoreSettings(pool=("fcfs+easy@spread",)),
            ["CoreSettings, pool: policy fcfs+easy@spread: placement 'spread' is not supported"],
        ),
        (
            lambda: CoreSettings(site_policy="fcfs~orders"),
            [
                "CoreSettings, site_policy: policy fcfs+easy~orders: "
                "power control functions are not supported"
            ],
        ),
        (lambda: TwinConfig(corr={}), ["unknown field. Did you mean 'core'?"]),
    ],
)
def test_each_error_is_one_line_in_hpctwins_words(make: Callable[[], Any], told: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        make()
    text = str(raised.value)
    assert "pydantic" not in text
    for line in told:
        assert any(line in one for one in text.splitlines()), text


def test_valid_settings_are_made_as_before() -> None:
    group = NodeGroup(name="a", count=3)
    assert Cluster(nodes=(group,)) == Cluster.model_validate({"nodes": NODES})
    assert Cluster(nodes=(group,)).model_copy(update={"name": "b"}).name == "b"
