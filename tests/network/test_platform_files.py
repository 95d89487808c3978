"""Platforms of SimGrid and Batsim: hosts, links and routes as SimGrid has them."""

from __future__ import annotations

import csv
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.cli.app import main
from hpctwin.errors import ConfigError
from hpctwin.formats.clusters import read_cluster
from hpctwin.formats.simgrid_platform import read_platform
from hpctwin.network import units
from hpctwin.network.platform import Platform

OLD = """
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "http://simgrid.gforge.inria.fr/simgrid.dtd">
<platform version="4">
 <config><prop id="network/TCP_gamma" value="1000"/><prop id="maxmin/precision" value="1"/></config>
 <AS id="all" routing="Full">
  <cluster id="A" prefix="a" suffix=".x" radical="0-2,10" speed="2Gf" bw="1Gbps" lat="50us"
   bb_bw="2GBps" bb_lat="1ms"/>
  <AS id="B" routing="Full">
   <prop id="memory" value="64"/>
   <host id="master_host" speed="1f"/><host id="disk" speed="0f"><prop id="role" value="storage"/></host>
   <link id="l" bandwidth="10MBps" latency="1ms" sharing_policy="FULLDUPLEX"/>
   <link id="m" bandwidth="1e6"/>
   <route src="master_host" dst="disk"><link_ctn id="l" direction="UP"/><link_ctn id="m"/></route>
  </AS>
  <link id="wan" bandwidth="1MBps" latency="20ms"/>
  <ASroute src="A" dst="B" gw_src="aA_router.x" gw_dst="disk"><link_ctn id="wan"/></ASroute>
 </AS>
</platform>
"""


def read(text: str, counts: dict[str, int] | None = None) -> Platform:
    return read_platform(Path("p.xml"), text, {} if counts is None else counts)


def names(platform: Platform, src: str, dst: str) -> list[str]:
    links, _ = platform.route(platform.host(src), platform.host(dst))
    return [platform.link_names[link] for link in links]


def test_a_platform_of_the_old_names_is_read_with_routes_across_zones() -> None:
    counts: dict[str, int] = {}
    platform = read(OLD, counts)
    assert platform.host_names == ("a0.x", "a1.x", "a2.x", "a10.x", "master_host", "disk")
    assert platform.host_speed.tolist() == [2e9] * 4 + [1, 0]
    assert platform.host_roles[4:] == ("master", "storage")
    assert platform.host_properties[4] == {"memory": "64"}
    assert platform.gamma == 1000
    assert names(platform, "a1.x", "disk") == ["A_link_1_UP", "A_backbone", "wan"]
    assert names(platform, "master_host", "a10.x") == [
        "l_UP", "m", "wan", "A_backbone", "A_link_10_DOWN",
    ]  # fmt: skip
    assert names(platform, "disk", "master_host") == ["m", "l_DOWN"]
    assert names(platform, "a0.x", "a0.x") == ["A_link_0_UP", "A_backbone", "A_link_0_DOWN"]
    links, latency = platform.route(0, 5)
    assert platform.link_bandwidth[links].tolist() == [1.25e8, 2e9, 1e6]
    assert links.dtype == np.int32
    assert latency == pytest.approx(50e-6 + 1e-3 + 20e-3)
    (note,) = counts
    assert note == "option of SimGrid for other models, ignored: maxmin/precision"


@pytest.mark.traces
def test_hosts_and_routes_equal_simgrids_link_for_link(golden: Path) -> None:
    routes = golden / "simgrid" / "routes"
    paths = golden.glob("simgrid/platforms/*.xml")
    compared = [count_equal_routes(routes, f"my_{path.stem}", path) for path in paths]
    assert sum(compared) > 3_600


@pytest.mark.traces
def test_hosts_and_routes_of_batsims_platforms_equal_simgrids(golden: Path, batsim: Path) -> None:
    routes = golden / "simgrid" / "routes"
    paths = batsim.glob("platforms/**/*.xml")
    compared = [count_equal_routes(routes, path.stem, path) for path in paths]
    assert sum(compared) > 5_300


def count_equal_routes(folder: Path, name: str, path: Path) -> int:
    """Return how many routes of a platform SimGrid has listed, all equal to those that are read."""
    if not (folder / f"{name}_routes.csv").exists():
        return 0
    platform = read_platform(path, path.read_text(), {})
    with (folder / f"{name}_hosts.csv").open() as hosts:
        for row in csv.DictReader(hosts):
            check_host(platform, row)
    with (folder / f"{name}_routes.csv").open() as routes:
        rows = list(csv.DictReader(routes))
    for row in rows:
        assert route_text(platform, row) == row["links(name:bandwidth:policy)"], row
    return len(rows)


def check_host(platform: Platform, row: dict[str, str]) -> None:
    host = platform.host(row["host"])
    assert platform.host_cores[host] == int(row["cores"])
    speeds = [float(speed) for speed in row["speeds"].split(";")]
    assert platform.host_speeds[host] == pytest.approx(speeds, rel=1e-12)
    own = dict(pair.split("=", 1) for pair in row["properties"].split("|") if pair)
    # SimGrid has properties of zones apart.
    assert own.items() <= platform.host_properties[host].items()


def route_text(platform: Platform, row: dict[str, str]) -> str:
    pair = platform.host(row["src"]), platform.host(row["dst"])
    if row["latency"] == "NOROUTE":
        with pytest.raises(ConfigError, match="no route"):
            platform.route(*pair)
        return ""
    links, latency = platform.route(*pair)
    assert latency == pytest.approx(float(row["latency"]), rel=1e-9, abs=1e-15)
    policies = np.where(platform.link_fatpipe, "FATPIPE", "SHARED")
    return " ".join(
        f"{platform.link_names[link]}:{platform.link_bandwidth[link]:.15g}:{policies[link]}"
        for link in links
    )


@pytest.mark.traces
def test_every_platform_of_batsim_is_valid(
    batsim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(batsim.glob("platforms/**/*.xml"))
    assert len(paths) >= 21
    for path in paths:
        with pytest.raises(SystemExit) as ended:
            main(["cluster", "check", str(path)])
        assert ended.value.code == 0, path
        assert "network: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("platform", "plattform", ["line 4, plattform", "expected 'platform'"]),
        ('<link id="m"', '<lnk id="m"', ["line 13, lnk 'm'", "Did you mean 'link'"]),
        ('speed="2Gf"', 'speed="2GB"', ["line 7, cluster 'A'", "'2GB'", "100Mf"]),
        ('speed="2Gf"', "", ["line 7, cluster 'A'", "'speed' is missing"]),
        ('bandwidth="1e6"', 'bandwidth="-1"', ["line 13, link 'm'", "bandwidth is -1"]),
        ('bandwidth="1e6"', 'bandwidth="1e300GBps"', ["line 13, link 'm'", "too large"]),
        (
            '<link_ctn id="wan"/>',
            '<link_ctn id="van"/>',
            ["line 17", "'van'", "Did you mean 'wan'"],
        ),
        ('<link_ctn id="l" direction="UP"/>', '<link_ctn id="l"/>', ["line 14", "two directions"]),
        ('gw_dst="disk"', 'gw_dst="a1.x"', ["line 17", "gateway 'a1.x' is not in zone 'B'"]),
        ('gw_dst="disk"', 'gw_dst="dusk"', ["line 17", "unknown host or router 'dusk'"]),
        ('dst="disk">', 'dst="a1.x">', ["line 14", "'a1.x' is not in zone 'B'"]),
        ('radical="0-2,10"', 'radical="2-0"', ["line 7", "'2-0'", "0-15,20"]),
        ('radical="0-2,10"', 'radical="0-999999999"', ["line 7", "at most 1,000,000 hosts"]),
        ('radical="0-2,10"', 'radical="0-2,1"', ["line 7", "twice"]),
        ('routing="Full"', 'routing="Wifi"', ["line 6, zone 'all'", "'Wifi' is not supported"]),
        ('id="disk"', 'id="a1.x"', ["line 11", "'a1.x' is given twice"]),
        ('value="storage"', 'value="storrage"', ["line 11, host 'disk'", "Did you mean 'storage'"]),
        ('suffix=".x"', 'topology="TORUS" topo_parameters="3,3" suffix=".x"', ["line 7", "need 9"]),
        ('suffix=".x"', 'topology="TORUS" topo_parameters="x" suffix=".x"', ["such as 4,4,2"]),
        ('suffix=".x"', 'topology="RING" suffix=".x"', ["'RING' is unknown"]),
        ('value="1000"', 'value="many"', ["line 5", "'many'"]),
        ("</platform>", "", ["line 20", "not XML"]),
        ("SYSTEM", '[<!ENTITY a "b">] SYSTEM', ["line 3", "entity 'a'"]),
    ],
)
def test_a_wrong_platform_is_reported_by_line_and_tag(old: str, new: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(OLD.replace(old, new, -1 if old == "platform" else 1))
    assert len(str(caught.value).splitlines()) == 1
    for part in ("p.xml", *says):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "definition",
    [
        '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % a SYSTEM "http://localhost/x.dtd"> %a;',
    ],
)
def test_entities_are_rejected_and_nothing_is_fetched(definition: str) -> None:
    text = f"<!DOCTYPE platform [{definition}]><platform><zone id='&a;' routing='Full'/></platform>"
    with pytest.raises(ConfigError, match="declares the entity 'a'"):
        read(text)


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    with pytest.raises(ConfigError, match="nested more than 100 levels"):
        read("<platform>" + "<zone id='z' routing='None'>" * 100_000)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.speed, "100.0Mf", 1e8),
        (units.speed, "16.673E9flops", 16.673e9),
        (units.speed, " 1e-9Mf", 1e-3),
        (units.speed, "2gigaflops", 2e9),
        (units.speed, "0.05", 0.05),
        (units.bandwidth, "1.25E8Bps", 1.25e8),
        (units.bandwidth, "10Gbps", 1.25e9),
        (units.bandwidth, "2KiBps", 2048),
        (units.latency, "2.4E-5s", 2.4e-5),
        (units.latency, "1.5ms", 1.5e-3),
        (units.latency, "2h", 7200),
    ],
)
def test_amounts_have_simgrids_units(parse: Any, text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value, rel=1e-15)


CLUSTER = """<platform version="4.1"><zone id="W" routing="Full">
 <cluster id="C" prefix="n" suffix="" radical="0-{last}" speed="1Gf" bw="1GBps" lat="1us"
  topology="{kind}" topo_parameters="{parameters}" sharing_policy="{policy}"/></zone></platform>"""


def ends_meet(platform: Platform, source: int, target: int) -> bool:
    """Return whether the links of a route, by their names, lead from one host to the other."""
    here = source
    for link in platform.route(source, target)[0]:
        a, b = map(int, re.findall(r"from_(-?\d+)(?:_to)?_(-?\d+)", platform.link_names[link])[0])
        if here not in (a, b):
            return False
        here = a + b - here
    return here == target


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4).filter(lambda s: math.prod(s) > 1),
    policy=st.sampled_from(["SHARED", "SPLITDUPLEX"]),
    data=st.data(),
)
def test_routes_of_a_torus_are_shortest_and_lead_to_the_target(
    sizes: list[int], policy: str, data: st.DataObject
) -> None:
    hosts = math.prod(sizes)
    text = CLUSTER.format(
        last=hosts - 1, kind="TORUS", parameters=",".join(map(str, sizes)), policy=policy
    )
    platform = read(text)
    pair = data.draw(st.integers(0, hosts - 1)), data.draw(st.integers(0, hosts - 1))
    assert ends_meet(platform, *pair)
    steps, (a, b) = 0, pair
    for size in sizes:
        apart = abs(a % size - b % size)
        steps += min(apart, size - apart)
        a, b = a // size, b // size
    assert len(platform.route(*pair)[0]) == steps


@given(
    levels=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3
    ),
    policy=st.sampled_from(["SHARED", "SPLITDUPLEX"]),
    data=st.data(),
)
def test_routes_of_a_fat_tree_lead_to_the_target_over_the_lowest_common_switch(
    levels: list[tuple[int, int, int]], policy: str, data: st.DataObject
) -> None:
    hosts = math.prod(children for children, _, _ in levels)
    parts = (",".join(map(str, part)) for part in zip(*levels, strict=True))
    parameters = ";".join((str(len(levels)), *parts))
    platform = read(
        CLUSTER.format(last=hosts - 1, kind="FAT_TREE", parameters=parameters, policy=policy)
    )
    a, b = data.draw(st.integers(0, hosts - 1)), data.draw(st.integers(0, hosts - 1))
    assert ends_meet(platform, a, b)
    turn, below = 1, levels[0][0]
    while a // below != b // below:
        below *= levels[turn][0]
        turn += 1
    assert len(platform.route(a, b)[0]) == 2 * turn


@given(seed=st.integers(0, 2**32))
def test_the_order_of_tags_changes_no_route(seed: int) -> None:
    head, middle = OLD.split('routing="Full">\n  <cluster', 1)
    body = "  <cluster" + middle.split(" </AS>\n</platform>")[0]
    parts = re.findall(r"  <(?:link|ASroute).*|  <cluster[^>]*>|  <AS (?:.|\n)*?\n  </AS>", body)
    random.Random(seed).shuffle(parts)
    platform = read(head + 'routing="Full">\n' + "\n".join(parts) + "\n </AS>\n</platform>")
    first = read(OLD)
    for a in first.host_names:
        for b in first.host_names:
            assert names(platform, a, b) == names(first, a, b)


def test_many_pairs_give_what_each_gives_alone() -> None:
    platform = read(OLD)
    hosts = len(platform.host_names)
    src, dst = np.divmod(np.arange(hosts * hosts), hosts)
    found = platform.routes(src, dst)
    for pair, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        links, latency = platform.route(a, b)
        assert found.links[found.offsets[pair] : found.offsets[pair + 1]].tolist() == links.tolist()
        assert found.latency_s[pair] == latency


def test_shortest_routes_and_bypasses() -> None:
    text = """<platform version="4.1"><zone id="W" routing="Dijkstra">
     <host id="a" speed="1f"/><host id="b" speed="1f"/><host id="c" speed="1f"/><router id="r"/>
     <link id="ar" bandwidth="1"/><link id="rb" bandwidth="1"/><link id="ac" bandwidth="1"/>
     <link id="x" bandwidth="1"/>
     <route src="a" dst="r"><link_ctn id="ar"/></route><route src="r" dst="b"><link_ctn id="rb"/></route>
     <route src="a" dst="c"><link_ctn id="ac"/></route>
     <bypassRoute src="c" dst="b"><link_ctn id="x"/></bypassRoute></zone></platform>"""
    platform = read(text)
    assert names(platform, "a", "b") == ["ar", "rb"]
    assert names(platform, "b", "c") == ["rb", "ar", "ac"]
    assert names(platform, "c", "b") == ["x"]
    with pytest.raises(ConfigError, match="network 'p' has no route from 'a' to 'b'"):
        read(text.replace('<route src="r" dst="b"><link_ctn id="rb"/></route>', "")).route(0, 1)


def test_coordinates_add_latency() -> None:
    text = """<platform version="4.1"><zone id="W" routing="Vivaldi">
     <peer id="a" speed="1f" bw_in="1MBps" bw_out="2MBps" coordinates="0 0 1"/>
     <host id="b" speed="1f" coordinates="3 4 2"/></zone></platform>"""
    platform = read(text)
    assert names(platform, "a", "b") == ["link_a_UP"]
    assert names(platform, "b", "a") == ["link_a_DOWN"]
    assert platform.route(0, 1)[1] == pytest.approx(8e-3)


ELASTISIM = """<platform version="4.1"><zone id="D" routing="Full">
 <zone id="B" routing="Full"><host id="batch" speed="0Gf"><prop id="batch_system" value="true"/></host></zone>
 <cluster id="C" prefix="n" radical="9-10" suffix="" speed="1000Gf" bw="100Gbps" lat="50us">
  <prop id="node_local_bb" value="true"/><prop id="bb_read_bw" value="4GBps"/>
  <prop id="bb_write_bw" value="2GBps"/><prop id="num_gpus" value="4"/></cluster>
 <zone id="P" routing="Full"><host id="PFS" speed="0Gf"><prop id="pfs_host" value="true"/></host></zone>
 <link id="r" bandwidth="80GBps" latency="50ms"/><link id="w" bandwidth="50GBps" latency="50ms"/>
 <zoneRoute src="P" dst="C" gw_src="PFS" gw_dst="nC_router" symmetrical="NO"><link_ctn id="r"/></zoneRoute>
 <zoneRoute src="C" dst="P" gw_src="nC_router" gw_dst="PFS" symmetrical="NO"><link_ctn id="w"/></zoneRoute>
</zone></platform>"""


def test_a_platform_of_elastisim_has_its_file_system_burst_buffers_and_gpus(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(ELASTISIM)
    cluster = read_cluster(tmp_path / "p.xml")
    platform = cluster.platform
    assert platform is not None
    assert (cluster.node_count, cluster.nodes[0].gpus, cluster.notes.counts) == (2, 4, {})
    assert [platform.host_names[host] for host in platform.hosts_of("master")] == ["batch"]
    assert names(platform, "n9", "PFS") == ["C_link_9_UP", "w"]
    assert names(platform, "PFS", "n9") == ["r", "C_link_9_DOWN"]
    assert names(platform, "n9", "bb-n9") == ["bb_write_bw_n9"]
    assert names(platform, "bb-n9", "n10") == ["bb_read_bw_n9", "C_link_9_UP", "C_link_10_DOWN"]
    hosts = [platform.host("n10"), platform.host("n9")]
    assert [platform.host_names[host] for host in platform.storage("bb", hosts)] == [
        "bb-n10",
        "bb-n9",
    ]
    with pytest.raises(ConfigError, match="host 'batch' has no storage 'bb'"):
        platform.storage("bb", [platform.host("batch")])
    with pytest.raises(ConfigError, match="bandwidth '4 GB'"):
        read(ELASTISIM.replace("4GBps", "4 GB"))


def test_nodes_are_hosts_that_compute_in_batsims_order(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(OLD.replace('radical="0-2,10"', 'radical="10,0-2"'))
    cluster = read_cluster(tmp_path / "p.xml")
    assert cluster.node_count == 4
    platform = cluster.platform
    assert platform is not None
    nodes = platform.hosts_of("compute_node")
    assert [platform.host_names[host] for host in nodes] == ["a0.x", "a1.x", "a2.x", "a10.x"]
