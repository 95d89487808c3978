"""Lists of nodes beside data sets, read as machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin import read_cluster
from hpctwin.errors import ConfigError

HEAD = "sn,cpu_milli,memory_mib,gpu,model\n"
NODES = """node-0,96000,393216,8,G2
node-1,104000,524288,2,T4
node-2,96000,393216,8,G2
node-3,32500,262144,0,
"""


def test_equal_nodes_of_alibaba_form_a_group(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list.csv").write_text(HEAD + NODES)
    cluster = read_cluster(tmp_path / "openb_node_list.csv")
    assert cluster.name == "openb_node_list"
    assert [
        (g.name, g.count, g.cores, g.memory_gb, g.gpus, g.features) for g in cluster.nodes
    ] == [
        ("G2-0", 2, 96, 384, 8, ("G2",)), ("T4-1", 1, 104, 512, 2, ("T4",)),
        ("cpu-2", 1, 32.5, 256, 0, ()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "",
            "line 1: no column sn, cpu_milli, memory_mib, gpu, model; the only supported node list in CSV",
        ),
        ("sn,cpu_milli,memory_mib,gpu\n", "line 1: no column model; the only supported node list"),
        (HEAD, "contains no nodes"),
        (HEAD + "n,1000,1024,two,T4\n", "line 2, column gpu: 'two' must be a whole number"),
        (HEAD + "n,1000,1024,1,T4\nm,1000\n", "line 3, column memory_mib: None must be a whole"),
        (HEAD + "n,-1,1024,1,T4\n", "line 2, column cpu_milli: '-1' must be a whole number"),
    ],
)
def test_an_invalid_list_is_rejected(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "nodes.csv").write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_cluster(tmp_path / "nodes.csv")
