"""Networks and storage in a cluster's YAML."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import ConfigError
from hpctwin.formats.clusters import read_cluster
from hpctwin.formats.simgrid_platform import read_platform
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import HomogeneousTask

YAML = """name: small
nodes:
  - {{name: cpu, count: 6, cores: 64}}
  - {{name: gpu, count: 2, cores: 32, speed: 1.5}}
network:
  core_speed: 20 Gflop/s
  {network}
storage:
  - {{name: scratch, bandwidth: 500 GB/s, latency: 10 us}}
  - {{name: nvme, place: node, read_bandwidth: 5 GB/s, write_bandwidth: 2 GB/s}}
"""
FAT_TREE = (
    "{topology: fat-tree, children: [4, 2], parents: [1, 2], bandwidth: 25 GB/s, latency: 1 us}"
)


def platform_of(folder: Path, network: str, text: str = YAML) -> Platform:
    fields = network.strip("{}").replace(", ", "\n  ") if "[" not in network else network
    if fields == network:
        (folder / "c.yaml").write_text(
            text.format(network="NETWORK").replace("network:\n  core_speed: 20 Gflop/s\n  NETWORK",
                                                   f"network: {{core_speed: 20 Gflop/s, {network[1:]}")
        )  # fmt: skip
    else:
        (folder / "c.yaml").write_text(text.format(network=fields))
    found = read_cluster(folder / "c.yaml").platform
    assert found is not None
    return found


def names(platform: Platform, src: str, dst: str) -> list[str]:
    links, _ = platform.route(platform.host(src), platform.host(dst))
    return [platform.link_names[link] for link in links]


def test_nodes_have_the_cores_and_speed_of_their_group(tmp_path: Path) -> None:
    platform = platform_of(tmp_path, FAT_TREE)
    nodes = platform.hosts_of("compute_node")
    assert [platform.host_names[host] for host in nodes] == [f"n{i}" for i in range(8)]
    assert platform.host_speed[nodes].tolist() == [20e9] * 6 + [30e9] * 2
    assert platform.host_cores[nodes].tolist() == [64] * 6 + [32] * 2


def test_a_topology_has_the_routes_of_the_same_one_in_xml(tmp_path: Path) -> None:
    ours = platform_of(tmp_path, FAT_TREE)
    theirs = read_platform(
        Path("p.xml"),
        """<platform version="4.1"><zone id="W" routing="Full"><cluster id="small" prefix="n" suffix=""
        radical="0-7" speed="1f" bw="25GBps" lat="1us" topology="FAT_TREE" topo_parameters="2;4,2;1,2;1,1"/>
        </zone></platform>""",
        {},
    )
    for a in range(8):
        for b in range(8):
            assert names(ours, f"n{a}", f"n{b}") == names(theirs, f"n{a}", f"n{b}")
            assert ours.route(a, b)[1] == theirs.route(a, b)[1]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ("topology: star", ""),
        ("topology: torus, sizes: [4, 2]", 'topology="TORUS" topo_parameters="4,2"'),
        (FAT_TREE[1:].split(", bandwidth")[0],
         'topology="FAT_TREE" topo_parameters="2;4,2;1,2;1,1"'),
        ("topology: dragonfly, sizes: [1, 2, 2, 2]",
         'topology="DRAGONFLY" topo_parameters="1,1;2,1;2,1;2"'),
    ],
)  # fmt: skip
def test_a_loopback_is_that_of_the_same_cluster_in_xml(
    tmp_path: Path, fields: str, kind: str
) -> None:
    links = "bandwidth: 25 GB/s, latency: 1 us, loopback: 100 GB/s, loopback_latency: 50 ns"
    ours = platform_of(tmp_path, f"{{{fields}, {links}}}")
    theirs = read_platform(
        Path("p.xml"),
        f"""<platform version="4.1"><zone id="W" routing="Full"><cluster id="small" prefix="n" suffix=""
        radical="0-7" speed="1f" bw="25GBps" lat="1us" loopback_bw="100GBps" loopback_lat="50ns"
        {kind}/></zone></platform>""",
        {},
    )
    assert names(ours, "n3", "n3") == ["small_link_3_loopback"]
    for a in range(8):
        for b in range(8):
            assert names(ours, f"n{a}", f"n{b}") == names(theirs, f"n{a}", f"n{b}")
            assert ours.route(a, b)[1] == theirs.route(a, b)[1]
    (link,) = ours.route(3, 3)[0]
    assert ours.link_fatpipe[link]
    assert ours.link_bandwidth[link] == 100e9


def test_ranks_of_a_node_send_to_each_other_over_its_loopback() -> None:
    star = {"topology": "star", "bandwidth": "1 GB/s", "core_speed": "1 Gflop/s"}
    ends = {}
    for loopback in (None, "4 GB/s"):
        network = star | ({"loopback": loopback} if loopback else {})
        nodes = [{"name": "node", "count": 1, "cores": 2}]
        jobs = Workload.build(
            submit_s=[0], nodes=[1], walltime_s=[60], runtime_s=[60],
            profiles=[HomogeneousTask(cpu=0.0, com=4e9)],
            chunks={"tasks": [2], "cores_per_task": [1], "tasks_per_node": [2]},
        )  # fmt: skip
        result = simulate(jobs, Cluster(name="c", nodes=nodes, network=network), sharing="fair")
        ends[loopback] = result.jobs["end_s"].to_list()
    assert ends == {None: [8.0], "4 GB/s": [1.0]}


def test_a_topology_of_too_many_links_is_rejected_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2,000,000,000,000 links; at most 10,000,000"):
        platform_of(tmp_path, "{topology: torus, sizes: [1000000, 1000000], bandwidth: 1 GB/s}")


def test_reads_and_writes_pass_the_links_of_a_storage(tmp_path: Path) -> None:
    platform = platform_of(tmp_path, FAT_TREE)
    own = "link_from_3_15_3"
    assert names(platform, "n3", "scratch") == [f"{own}_UP", "scratch_link"]
    assert names(platform, "scratch", "n3") == ["scratch_link", f"{own}_DOWN"]
    assert names(platform, "n3", "nvme-3") == ["nvme_link_3_write"]
    assert names(platform, "nvme-3", "n3") == ["nvme_link_3_read"]
    assert names(platform, "nvme-3", "n2") == [
        "nvme_link_3_read",
        f"{own}_UP",
        "link_from_2_15_2_DOWN",
    ]
    assert names(platform, "nvme-3", "scratch") == ["nvme_link_3_read", f"{own}_UP", "scratch_link"]
    assert names(platform, "nvme-3", "nvme-3") == []
    assert platform.route(platform.host("n3"), platform.host("scratch"))[1] == pytest.approx(11e-6)
    hosts = [platform.host("n5"), platform.host("n0")]
    assert [platform.host_names[h] for h in platform.storage("nvme", hosts)] == ["nvme-5", "nvme-0"]
    assert [platform.host_names[h] for h in platform.storage("scratch", hosts)] == ["scratch"] * 2
    with pytest.raises(LookupError, match="storage 'tape'"):
        platform.storage("tape", hosts)


@pytest.mark.parametrize(
    ("network", "route"),
    [
        ("{topology: star, bandwidth: 200 Gbit/s}", ["small_link_0_UP", "small_link_7_DOWN"]),
        (
            "{topology: star, bandwidth: 25 GB/s, backbone: 1 TB/s}",
            ["small_link_0_UP", "small_backbone", "small_link_7_DOWN"],
        ),
        (
            "{topology: torus, sizes: [2, 2, 2], bandwidth: 25 GB/s}",
            [
                "small_link_from_0_to_1_UP", "small_link_from_1_to_3_UP", "small_link_from_3_to_7_UP",
            ],
        ),
        (
            "{topology: dragonfly, sizes: [2, 1, 2, 2], bandwidth: 25 GB/s, cables: [3, 1, 1]}",
            [
                "local_link_from_router_0_to_node_0_0_UP",
                "green_link_in_chassis_0_between_routers_0_and_1_8_UP",
                "blue_link_between_group_0_and_1_routers_1_and_2_10_UP",
                "green_link_in_chassis_0_between_routers_0_and_1_9_UP",
                "local_link_from_router_3_to_node_1_7_DOWN",
            ],
        ),
    ],
)  # fmt: skip
def test_each_topology_in_one_line(tmp_path: Path, network: str, route: list[str]) -> None:
    platform = platform_of(tmp_path, network)
    assert names(platform, "n0", "n7") == route
    blue = [i for i, name in enumerate(platform.link_names) if name.startswith("blue")]
    assert platform.link_bandwidth[blue].tolist() == [75e9] * len(blue)


NO_EAST = """nodes: [{name: a, count: 2}, {name: b, count: 2}, {name: c, count: 1}]
network:
  core_speed: 1 Gflop/s
  parts:
    - {name: west, groups: [a, c], topology: star, bandwidth: 1 GB/s}
    - {name: mid, groups: [b], topology: torus, sizes: [2], bandwidth: 1 GB/s}
    - {name: east, groups: [], topology: star, bandwidth: 1 GB/s}
  links:
    - {between: [west, mid], bandwidth: 10 Gbit/s, latency: 5 ms}
    - {between: [east, mid], bandwidth: 10 Gbit/s, latency: 20 ms}
"""
WAN = NO_EAST.replace("[a, c]", "[a]").replace("groups: []", "groups: [c]")


def test_parts_are_connected_over_as_few_links_as_possible(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(WAN)
    platform = read_cluster(tmp_path / "c.yaml").platform
    assert platform is not None
    assert names(platform, "n0", "n4") == [
        "west_link_0_UP",
        "west_mid_0",
        "east_mid_1",
        "east_link_4_DOWN",
    ]
    assert names(platform, "n4", "n2") == ["east_link_4_UP", "east_mid_1"]
    assert platform.route(0, 4)[1] == pytest.approx(25e-3)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("fat-tree", "fat_tree", ["network.topology", "fat-tree"]),
        ("children: [4, 2]", "children: [4, 1]", ["room for 4 nodes, not 8"]),
        ("children: [4, 2], ", "", ["topology fat-tree needs 'children'"]),
        ("parents: [1, 2]", "parents: [1]", ["parents has 1 numbers, but children has 2"]),
        ("bandwidth: 25 GB/s", "sizes: [8]", ["'bandwidth' of its links"]),
        ("latency: 1 us", "latency: soon", ["network.latency", "'soon'"]),
        ("latency: 1 us", "backbone: 1", ["topology fat-tree takes no 'backbone'"]),
        ("latency: 1 us", "loopback_latency: 1 us", ["'loopback_latency' needs 'loopback'"]),
        ("latency: 1 us", "loopback: 0", ["network.loopback"]),
        ("25 GB/s", "25 GB", ["network.bandwidth", "'25 GB'", "1Gbps (bits)"]),
        ("25 GB/s", "-3", ["network.bandwidth"]),
        ("core_speed: 20 Gflop/s", "core_speed: 20 GHz", ["network.core_speed", "'20 GHz'"]),
        ("topology: fat-tree, ", "", ["either 'topology' or 'parts'"]),
        ("name: nvme, ", "name: scratch, ", ["two storages have the same name"]),
        (", write_bandwidth: 2 GB/s", "", ["storage 'nvme' needs either"]),
        ("place: node", "place: rack", ["storage.1.place"]),
    ],
)
def test_a_wrong_network_is_reported_by_field(
    tmp_path: Path, old: str, new: str, says: list[str]
) -> None:
    platform_of(tmp_path, FAT_TREE)
    text = (tmp_path / "c.yaml").read_text()
    assert old in text
    (tmp_path / "d.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        read_cluster(tmp_path / "d.yaml")
    assert len(str(caught.value).splitlines()) == 1
    for part in ("d.yaml", *says):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: [{name: a, count: 2}]\nstorage: [{name: s, bandwidth: 1}]\n", "needs a 'network'"),
        (NO_EAST, "groups"),
        (WAN.replace("[a]", "[a, b]"), "each node group must be in one"),
        (WAN.replace("[east, mid]", "[west, mid]"), "no link connects part 'west' with 'east'"),
        (WAN.replace("[east, mid]", "[east, mit]"), "unknown part 'mit'"),
    ],
)  # fmt: skip
def test_parts_and_storage_that_nothing_reaches_are_reported(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_cluster(tmp_path / "c.yaml")


@given(sizes=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(4, 5), st.integers(1, 3)),
       missing=st.integers(0, 2))  # fmt: skip
def test_routes_in_a_partly_filled_dragonfly_take_at_most_seven_links(
    tmp_path_factory: pytest.TempPathFactory, sizes: tuple[int, int, int, int], missing: int
) -> None:
    nodes = max(int(np.prod(sizes)) - missing, 1)
    path = tmp_path_factory.mktemp("d") / "c.yaml"
    path.write_text(
        f"nodes: [{{name: n, count: {nodes}}}]\n"
        f"network: {{topology: dragonfly, sizes: {list(sizes)}, bandwidth: 1, core_speed: 1}}\n"
    )
    platform = read_cluster(path).platform
    assert platform is not None
    src, dst = np.divmod(np.arange(nodes * nodes), nodes)
    found = platform.routes(src, dst)
    lengths = np.diff(found.offsets)
    assert lengths.min() == 2
    assert lengths.max() <= 7
    for pair in range(0, nodes * nodes, 7):
        own = [
            platform.link_names[link]
            for link in found.links[found.offsets[pair] : found.offsets[pair + 1]]
        ]
        assert own[0].endswith(f"_{src[pair]}_UP")
        assert own[-1].endswith(f"_{dst[pair]}_DOWN")
