"""What links carry, and how much contention slows jobs down."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from hpctwin import Cluster, Simulation, Workload, read_cluster
from hpctwin.cli.app import main
from hpctwin.contention.alone import EmptyNetwork, contention_slowdown
from hpctwin.contention.network import Network
from hpctwin.contention.phases import PhaseBuilder, Phases, Sharing
from hpctwin.engine.network.records import TASK
from hpctwin.errors import SimulationError
from hpctwin.network.profiles import Delay, HomogeneousTask, Profile, Sequence
from tests.contention.test_network import SHARINGS, cases, profile_of, send, star

TREE = {
    "topology": "fat-tree",
    "children": [4, 4],
    "parents": [1, 1],
    "bandwidth": "1 GB/s",
    "core_speed": "1 Gflop/s",
}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(name="tree", nodes=[{"name": "node", "count": 16}], network=TREE)


def jobs(*given: tuple[float, int, float, Profile | None]) -> Workload:
    """Jobs by submission, nodes, walltime and profile."""
    submit, nodes, walltime, profiles = zip(*given, strict=True)
    return Workload.build(
        submit_s=submit, nodes=nodes, walltime_s=walltime, runtime_s=walltime, profiles=profiles
    )


EXCHANGE = HomogeneousTask(cpu=1e9, com=1e9)


def sent(phases: Phases, resources: int) -> Any:
    """Return what the phases of a job put on each host and link."""
    found = np.zeros(resources)
    for step in phases.steps[phases.steps["kind"] == TASK]:
        load = phases.loads[step["row"]]
        rows = phases.uses[load["first"] : load["last"]]
        np.add.at(found, rows["resource"], rows["amount"])
    return found


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=60, deadline=None)
@given(cases())
def test_links_carry_the_bytes_of_the_phases(sharing: Sharing, case: Any) -> None:
    machine, given = case
    builder, network = PhaseBuilder(machine, sharing), Network(machine, sharing, metered=True)
    hosts, ended = len(machine.host_speed), []
    expected = np.zeros(hosts + len(machine.link_bandwidth))
    peak, end_s = np.zeros(len(expected)), 0.0
    for number, (start, own, phases) in sorted(enumerate(given), key=lambda one: one[1][0]):
        ended += network.advance(start)
        made = builder.build(profile_of(phases, len(own)), own)
        network.start(number, start, made)
        expected += sent(made, len(expected))
    ended += network.advance(end_s := 1.5)
    while network.next_s < math.inf:
        if network.next_s > end_s:
            peak = np.maximum(peak, network.used())
        ended += network.advance(end_s := network.next_s)
    if len(ended) < len(given):
        return  # a job never ends: its links carry only a part
    loads, shared = network.link_loads(end_s), ~machine.link_fatpipe
    assert loads.bytes[shared] == pytest.approx(expected[hosts:][shared], rel=1e-9)
    assert loads.over_time.sum(1) == pytest.approx(loads.bytes, rel=1e-9)
    assert not loads.bytes[~shared].any()
    assert (loads.peak <= machine.link_bandwidth * (1 + 1e-9)).all()
    assert (loads.peak >= peak[hosts:] * (1 - 1e-9))[shared].all()
    assert (loads.full_s <= end_s + 1e-9).all()
    assert (loads.full_s * machine.link_bandwidth <= loads.bytes * (1 + 1e-8) + 1e-3).all()


@settings(max_examples=60, deadline=None)
@given(cases())
def test_no_job_is_faster_than_alone(case: Any) -> None:
    machine, given = case
    builder, network = PhaseBuilder(machine, "fair"), Network(machine, "fair")
    empty, alone, ended = EmptyNetwork(machine, "fair"), {}, []
    for number, (start, own, phases) in sorted(enumerate(given), key=lambda one: one[1][0]):
        ended += network.advance(start)
        made = builder.build(profile_of(phases, len(own)), own)
        alone[number] = empty.run_s(made)
        network.start(number, start, made)
    for one in [*ended, *network.advance(math.inf)]:
        run_s = one.time_s - given[one.job][0]
        slowdown = contention_slowdown(run_s, alone[one.job], stopped=False)
        assert slowdown >= 1 - 1e-9


def test_bins_widen_and_keep_their_bytes() -> None:
    """A month of transfers, each of them long before the next."""
    machine = star()
    builder, network = PhaseBuilder(machine, "fair"), Network(machine, "fair", metered=True)
    for day in range(30):
        start = day * 86400.0
        network.advance(start)
        network.start(day, start, builder.build(send(1e12), [0, 1]))
    network.advance(math.inf)
    loads = network.link_loads(30 * 86400.0)
    assert loads.step_s == 7200.0
    assert loads.over_time.shape == (4, 360)
    # 1,000 s at 1 GB/s, at the beginning of each day
    assert np.flatnonzero(loads.over_time[0]).tolist() == list(range(0, 360, 12))
    assert loads.over_time[0, 12] == pytest.approx(1e12)
    assert loads.bytes.tolist() == pytest.approx([3e13, 3e13, 0, 0])
    assert loads.full_s.tolist() == pytest.approx([30000.0, 30000.0, 0, 0])


def test_how_much_contention_slows_jobs(cluster: Cluster) -> None:
    workload = jobs(*[(0.0, 4, 60.0, EXCHANGE)] * 4, (0.0, 1, 5.0, None))
    result = Simulation(workload, cluster, placement="first-fit", sharing="fair").run()
    found = result.jobs.sort("job_id")["contention_slowdown"].to_list()
    assert found == pytest.approx([1.0, 1.0, 1.0, 1.0, None])
    assert result.link_use is None
    spread = Simulation(workload, cluster, placement="random", sharing="fair").run()
    slow = spread.jobs.filter(pl.col("contention_slowdown") > 2)
    assert len(slow) == 4
    summary = spread.summary()
    values = slow["contention_slowdown"]
    assert summary["mean_contention_slowdown"] == pytest.approx(values.mean())
    assert summary["max_contention_slowdown"] == values.max()
    assert values.median() <= summary["p95_contention_slowdown"] <= values.max()


def test_stopped_jobs_would_also_be_stopped_alone(cluster: Cluster) -> None:
    """Alone, each would take 3 s; on half of the bandwidth, their walltime ends them at 4 s."""
    node_0_to_1 = send(3e9)
    network = {"topology": "star", "bandwidth": "1 GB/s", "backbone": "1 GB/s"}
    star = Cluster(nodes=[{"name": "n", "count": 4}], network=network)
    workload = jobs((0.0, 2, 4.0, node_0_to_1), (0.0, 2, 4.0, node_0_to_1))
    result = Simulation(workload, star, sharing="fair").run()
    assert result.jobs["state"].to_list() == ["walltime", "walltime"]
    assert result.jobs["contention_slowdown"].to_list() == pytest.approx([4 / 3, 4 / 3])
    short = Simulation(jobs((0.0, 2, 2.0, node_0_to_1)), star, sharing="fair").run()
    assert short.jobs["contention_slowdown"].to_list() == [1.0]


def test_a_job_without_any_length_is_not_slowed_down(cluster: Cluster) -> None:
    nothing = Sequence(parts=(Delay(duration_s=1e-9), HomogeneousTask(cpu=0.0, com=0.0)))
    result = Simulation(jobs((0.0, 2, 9.0, nothing)), cluster, sharing="fair").run()
    assert result.jobs["contention_slowdown"].to_list() == [1.0]


def test_running_jobs_have_no_slowdown_yet(cluster: Cluster) -> None:
    simulation = Simulation(jobs((0.0, 4, 60.0, EXCHANGE)), cluster, sharing="fair", log=True)
    simulation.advance(1.0)
    result = simulation.result()
    assert result.jobs["contention_slowdown"].to_list() == [None]
    assert result.summary()["mean_contention_slowdown"] is None


def test_tables_of_links(cluster: Cluster) -> None:
    workload = jobs(*[(5.0 + i, 4, 60.0, EXCHANGE) for i in range(4)])
    simulation = Simulation(workload, cluster, placement="random", sharing="fair", log=True)
    use = simulation.run().link_use
    assert use is not None
    assert len(use.table) == 40
    assert use.table["level"].unique().sort().to_list() == [
        "level 1 down", "level 1 up", "level 2 down", "level 2 up",
    ]  # fmt: skip
    assert (use.table["mean_utilization"] <= use.table["peak_utilization"] + 1e-9).all()
    for table in (use.over_time, use.by_level):
        assert table["bytes"].sum() == pytest.approx(use.table["bytes"].sum(), rel=1e-9)
        assert table["utilization"].max() <= 1 + 1e-9  # type: ignore[operator]
        assert table["time_s"].min() == 5.0
    busiest = use.over_time.group_by("time_s", "level").agg(pl.col("utilization").max())
    both = use.by_level.join(busiest, on=["time_s", "level"], suffix="_of_links")
    assert (both["max_utilization"] - both["utilization_of_links"]).abs().max() == 0.0


def test_a_switch_carries_the_bytes_of_its_links(cluster: Cluster) -> None:
    workload = jobs(*[(5.0 + i, 4, 60.0, EXCHANGE) for i in range(4)])
    simulation = Simulation(workload, cluster, placement="random", sharing="fair", log=True)
    use = simulation.run().link_use
    assert use is not None
    # link_from_31_27_16_UP leads from switch 31 to 27, and link_from_0_31_0_UP from node 0 to 31.
    ends = pl.col("link").str.extract_groups(r"from_(?<below>\d+)_(?<above>\d+)_")
    named = use.table.with_columns(ends.alias("ends")).unnest("ends")
    assert use.by_switch["links"].to_list() == [10, 10, 10, 10, 8]
    for row in use.by_switch.iter_rows(named=True):
        number = row["switch"].removeprefix("tree_switch_")
        own = named.filter(
            (pl.col("above") == number)
            | ((pl.col("below") == number) & pl.col("level").str.starts_with("level 2"))
        )
        assert len(own) == row["links"]
        assert row["bytes"] == pytest.approx(own["bytes"].sum())
        assert row["max_utilization"] == own["mean_utilization"].max()
        assert row["mean_utilization"] == pytest.approx(own["mean_utilization"].mean())
        assert row["full_s"] == own["full_s"].max()


def test_the_switch_of_a_star_has_the_links_of_all_nodes() -> None:
    star = {"topology": "star", "bandwidth": "1 GB/s", "core_speed": "1 Gflop/s", "backbone": 1e10}
    cluster = Cluster(name="star", nodes=[{"name": "node", "count": 4}], network=star)
    result = Simulation(jobs((0.0, 4, 60.0, EXCHANGE)), cluster, sharing="fair", log=True).run()
    assert result.link_use is not None
    (row,) = result.link_use.by_switch.iter_rows(named=True)
    nodes = result.link_use.table.filter(pl.col("level") != "backbone")
    assert (row["switch"], row["links"], row["bytes"]) == ("star_switch", 8, nodes["bytes"].sum())


def test_bins_cover_a_job_that_waits_after_its_transfers(cluster: Cluster) -> None:
    parts = (HomogeneousTask(cpu=0.0, com=1e9), Delay(duration_s=3600.0))
    workload = jobs((0.0, 4, 9000.0, Sequence(parts=parts)), (0.0, 1, 90000.0, None))
    result = Simulation(workload, cluster, sharing="fair", log=True).run()
    use = result.link_use
    assert use is not None
    assert (use.loads.begin_s, use.loads.end_s, use.loads.step_s) == (0.0, 3603.0, 10.0)
    assert use.by_level.filter(pl.col("level") == "level 1 up")["time_s"].max() == 3600.0
    assert use.table["mean_utilization"].max() == pytest.approx(3 / 3603)
    left, right = result.plot.congestion().axes[0].images[0].get_extent()[:2]
    assert (left, right) == pytest.approx((0.0, 3610 / 60))


def test_tables_are_the_same_after_interruptions(cluster: Cluster) -> None:
    workload = jobs(*[(0.7 * i, 1 + i % 5, 60.0, EXCHANGE) for i in range(30)])
    options = {"placement": "random", "sharing": "fair", "log": True}
    whole = Simulation(workload, cluster, **options).run()
    walked = Simulation(workload, cluster, **options)
    while walked.advance(instants=1) == "stepped":
        walked.fork().result()
    again = walked.result()
    assert whole.link_use is not None
    assert again.link_use is not None
    assert again.link_use.table.equals(whole.link_use.table)
    assert again.link_use.over_time.equals(whole.link_use.over_time)
    assert again.jobs["contention_slowdown"].equals(whole.jobs["contention_slowdown"])


FILE = """
name: tree
nodes:
  - {name: node, count: 16}
network:
  topology: fat-tree
  children: [4, 4]
  parents: [1, 1]
  bandwidth: 1 GB/s
  core_speed: 1 Gflop/s
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Arguments of `hpctwin simulate` for four jobs on random nodes."""
    (tmp_path / "tree.yaml").write_text(FILE)
    document = {
        "nb_res": 16,
        "profiles": {"p": {"type": "parallel_homogeneous", "cpu": 1e9, "com": 1e9}},
        "jobs": [
            {"id": i, "profile": "p", "res": 4, "subtime": i, "walltime": 60} for i in range(4)
        ],
    }
    (tmp_path / "jobs.json").write_text(json.dumps(document))
    return [
        "simulate", f"{tmp_path}/jobs.json", "--cluster", f"{tmp_path}/tree.yaml",
        "--placement", "random", "--sharing", "fair",
    ]  # fmt: skip


def run(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return int(end.value.code or 0)


def test_the_command_writes_and_draws_loads(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "run", tmp_path / "congestion.png"
    assert run(*command, "--out", out, "--plot", plot) == 0
    assert "contention slowdown" in capsys.readouterr().out
    assert plot.stat().st_size > 10_000
    totals = pl.read_parquet(out / "link_totals.parquet")
    assert totals["bytes"].sum() == pytest.approx(184e9)
    switches = pl.read_parquet(tmp_path / "run" / "link_switches.parquet")
    assert switches["bytes"].sum() > 0
    for name in ("link_loads", "link_levels"):
        assert pl.read_parquet(out / f"{name}.parquet")["bytes"].sum() == pytest.approx(184e9)
    summary = json.loads((out / "summary.json").read_text())
    slowdown = pl.read_parquet(out / "jobs.parquet")["contention_slowdown"]
    assert summary["max_contention_slowdown"] == slowdown.max()
    figures = tmp_path / "figures"
    assert run("report", out, "--figures", figures) == 0
    assert list(figures.glob("congestion-1.*"))


def test_comparisons_have_the_slowdown(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, trace, _, cluster, *_ = command
    policies = ["-p", "fcfs+easy", "-p", "fcfs+easy@random"]
    assert run("compare", trace, "--cluster", cluster, "--sharing", "fair", *policies) == 0
    assert "contention" in capsys.readouterr().out
    assert (
        run("compare", trace, "--cluster", cluster, "--sharing", "fair", *policies, "--json") == 0
    )
    found = json.loads(capsys.readouterr().out)
    slowdowns = [one["mean_contention_slowdown"] for one in found]
    assert slowdowns[0] == 1.0 < slowdowns[1]


def test_nothing_is_written_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.swf").write_text("1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1\n")
    assert run("simulate", tmp_path / "jobs.swf", "--nodes", 4, "--out", tmp_path / "run") == 0
    assert not list((tmp_path / "run").glob("link_*"))
    assert "contention_slowdown" not in pl.read_parquet(tmp_path / "run/jobs.parquet").columns
    plot = ["--plot", tmp_path / "congestion.png"]
    assert run("simulate", tmp_path / "jobs.swf", "--nodes", 4, *plot) == 2
    assert "draws the use of links; add --sharing fair" in capsys.readouterr().err


def test_the_figure_needs_recorded_loads(cluster: Cluster) -> None:
    workload = jobs((0.0, 4, 60.0, EXCHANGE))
    with pytest.raises(SimulationError, match="with 'sharing' and log=True"):
        Simulation(workload, cluster, sharing="fair").run().plot.congestion()
    delays = jobs((0.0, 4, 60.0, Sequence(parts=(HomogeneousTask(cpu=1e9, com=0.0),))))
    unused = Simulation(delays, cluster, sharing="fair", log=True).run().plot.congestion()
    assert "no link carried anything" in [text.get_text() for text in unused.axes[0].texts]


def test_the_figure_shows_the_busiest_links(cluster: Cluster) -> None:
    workload = jobs(*[(float(i), 4, 60.0, EXCHANGE) for i in range(4)])
    simulation = Simulation(workload, cluster, placement="random", sharing="fair", log=True)
    result = simulation.run()
    assert result.link_use is not None
    map_, bars, _ = result.plot.congestion().axes
    assert map_.images[0].get_array().max() == pytest.approx(1.0)
    top = result.link_use.table.top_k(10, by="mean_utilization")
    shown = sorted((bar.get_width() for bar in bars.containers[0]), reverse=True)
    assert shown == pytest.approx(top["mean_utilization"].to_list())


def test_a_platform_without_links(tmp_path: Path) -> None:
    path = tmp_path / "hosts.xml"
    path.write_text(
        """<?xml version='1.0'?>
<platform version="4.1">
 <zone id="W" routing="None"><host id="a" speed="1Gf"/><host id="b" speed="1Gf"/></zone>
</platform>
"""
    )
    workload = jobs((0.0, 1, 9.0, HomogeneousTask(cpu=2e9, com=0.0)))
    result = Simulation(workload, read_cluster(path), sharing="fair", log=True).run()
    use = result.link_use
    assert use is not None
    assert len(use.table) == len(use.over_time) == len(use.by_level) == len(use.by_switch) == 0
    assert use.by_level.columns[:2] == ["time_s", "level"]
    assert result.plot.congestion() is not None


def test_links_of_files_have_levels(tmp_path: Path) -> None:
    path = tmp_path / "two.xml"
    path.write_text(
        """<?xml version='1.0'?>
<platform version="4.1">
 <zone id="W" routing="Full">
  <cluster id="C" prefix="n" suffix="" radical="0-3" speed="1Gf" bw="1GBps" lat="0" bb_bw="2GBps"
    bb_lat="0" loopback_bw="9GBps" loopback_lat="0"/>
 </zone>
</platform>
"""
    )
    workload = jobs((0.0, 4, 60.0, EXCHANGE))
    use = Simulation(workload, read_cluster(path), sharing="simgrid", log=True).run().link_use
    assert use is not None
    levels = use.table.group_by("level", maintain_order=True).len().rows()
    assert levels == [("backbone", 1), ("nodes up", 4), ("nodes down", 4)]
