"""What a live cluster's page tells of its nodes over time: lanes of shared ones, load, power, its cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster
from hpctwin.rms.records.records import (
    JobRecord,
    JobSpec,
    NodePart,
    NodePower,
    NodeRecord,
    Snapshot,
)
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.restore import Standing
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.web.views.cluster_views import bars, held_line, job_view, node_views, places, timeline
from hpctwin.web.views.job_history import History, Stretch, lanes_of, past, rows_of
from hpctwin.web.views.power_views import energy_of, energy_view, power_lines, rates_of
from hpctwin.web.views.timeline import LaneNames
from hpctwin.web.views.views import Change, site_zone
from hpctwin.web.views.whatif import Question, schedule_of

IDLE, FULL, ASLEEP = np.array([50, 50, 50, 80, 80]), np.array([200, 200, 200, 300, 300]), 5.0
WAY = {"time": 1, "power_w": 9}
SLEEP = {"power_w": ASLEEP, "switch_off": WAY, "switch_on": WAY}
MACHINE = Cluster.model_validate({
    "name": "m", "price": 0.2, "carbon": 300.0,
    "nodes": [
        {"name": "a", "count": 3, "cores": 4, "sleep": [SLEEP],
         "modes": {"on": {"power_w": 200, "idle_w": 50}}},
        {"name": "b", "count": 2, "cores": 8, "modes": {"on": {"power_w": 300, "idle_w": 80}}},
    ],
})  # fmt: skip
NODES = [NodeRecord(name=f"n{i}") for i in range(5)]
HORIZON = 60


@st.composite
def ran(draw: st.DrawFn) -> list[Stretch]:
    """Jobs on whole nodes, none two at a time on one."""
    free, found = np.zeros(5, int), []
    for job in range(draw(st.integers(0, 12))):
        nodes = np.array(sorted(draw(st.sets(st.integers(0, 4), min_size=1))))
        start = int(free[nodes].max()) + draw(st.integers(0, 9))
        end = start + draw(st.integers(0, 20))
        free[nodes] = end
        found.append(Stretch(str(job), "ran", 1000.0 + start, 1000.0 + end, nodes, None))
    return found


@settings(max_examples=40)
@given(all_of_it=ran(), down=st.integers(0, 5), since=st.integers(0, HORIZON))
def test_the_power_is_what_each_node_draws_second_by_second(
    all_of_it: list[Stretch], down: int, since: int
) -> None:
    nodes = list(NODES)
    if down < 5:
        nodes[down] = NodeRecord(name=f"n{down}", state="down")
    else:
        asleep = NodePower(state="asleep", since_s=1000.0 + since)
        nodes[1] = NodeRecord(name="n1", power=asleep)
    energy = energy_of(MACHINE, all_of_it, nodes, (1000.0, 1000.0 + HORIZON))
    runs = np.zeros((HORIZON, 5), bool)
    for one in all_of_it:
        runs[int(one.start_s) - 1000 : max(0, int(one.end_s) - 1000), one.nodes] = True
    drawn = np.where(runs, FULL, IDLE).astype(float)
    if down < 5:
        last = max((k + 1 for k in range(HORIZON) if runs[k, down]), default=0)
        drawn[last:, down] = 0
    else:
        mine = [one for one in all_of_it if 1 in one.nodes and one.end_s > one.start_s]
        later = [int(one.start_s) - 1000 for one in mine]
        until = min((k for k in later if k >= since), default=HORIZON)
        before = max((k + 1 for k in range(until) if k < HORIZON and runs[k, 1]), default=0)
        drawn[max(since, before) : until, 1] = ASLEEP
    edges = np.arange(HORIZON + 1.0)
    rates = rates_of(MACHINE, 0.0)
    told = {line.name: line for line in power_lines(energy, edges, rates, None)}
    assert told["power drawn"].mean == pytest.approx(drawn.sum(axis=1))
    assert told["carbon emitted"].mean == pytest.approx(drawn.sum(axis=1) * 300 / 1000)
    view = energy_view(energy, 30.0, rates, None)
    assert view.energy_j == pytest.approx(drawn[:30].sum())
    assert view.power_w == pytest.approx(drawn[30].sum())
    assert view.carbon == pytest.approx(300 * view.energy_j / 3.6e6)
    assert view.price == pytest.approx(0.2 * view.energy_j / 3.6e6)
    assert view.pue is None


def test_the_power_of_feeding_and_cooling_is_that_of_a_simulation() -> None:
    from hpctwin import Workload, simulate
    from hpctwin.formats.clusters import read_cluster

    machine = read_cluster("frontier")
    workload = Workload.build(
        submit_s=[0, 100, 300],
        runtime_s=[900, 400, 700],
        walltime_s=[1000] * 3,
        nodes=[4000, 5000, 900],
    )
    result = simulate(workload, machine, policy="fcfs+easy@contiguous")
    assert result.node_map is not None
    stretches = [
        Stretch(str(job), "ran", start, end, np.arange(first, first + count), None)
        for job, start, end, first, count in result.node_map.iter_rows()
    ]
    nodes = [NodeRecord(name=f"n{i}") for i in range(machine.node_count)]
    assert result.energy is not None
    last = result.energy.now_s
    live = energy_of(machine, stretches, nodes, (0.0, last))
    assert live.total_j == pytest.approx(result.energy.total_j)
    (_, pue) = power_lines(live, np.linspace(0.0, last, 11), {}, 18.0)
    cooled = result.energy.cooled(18.0, last / 10)  # type: ignore[attr-defined]
    assert pue.mean == pytest.approx(cooled["pue"].to_list())
    assert energy_view(live, last, {}, 18.0).pue == pytest.approx(cooled["pue"][-1], rel=0.01)


def standing(jobs: list[JobRecord], forecasts: dict[str, float]) -> Standing:
    snapshot = Snapshot(cluster="m", time_s=1000.0, machine=MACHINE, nodes=tuple(NODES), jobs=tuple(jobs),
                        shared=tuple(node.name for node in NODES))  # fmt: skip
    core = SimpleNamespace(mirror=Mirror(snapshot))
    said = {job: Forecast(job, 1000.0, at, at, at, False) for job, at in forecasts.items()}
    return Standing(cast(Any, core), 1000.0, "fcfs+easy", False, {}, said)


def part(job: str, tasks: int, cores: float, where: dict[str, int]) -> JobRecord:
    spec = JobSpec(
        id=job, submit_s=900.0, nodes=1, walltime_s=100.0, tasks=tasks, cores_per_task=cores
    )
    parts = tuple(NodePart(cores=n * cores) for n in where.values())
    return JobRecord(
        spec=spec, start_s=950.0 if where else None, node_names=tuple(where), parts=parts
    )


SHARED = [
    part("1", 2, 1.0, {"n0": 2}),
    part("2", 3, 2.0, {"n0": 1, "n3": 2}),
    part("3", 4, 1.0, {}),
    part("4", 8, 1.0, {}),
]


def scheduled(jobs: list[JobRecord]) -> list[Stretch]:
    core = Core(CoreSettings(pool=("fcfs+easy",)))
    snapshot = standing(jobs, {}).core.mirror.snapshot()
    core.take_snapshot(snapshot)
    return list(schedule_of(core.present(1000.0, "fcfs+easy"), core.scene(1000.0)).stretches)


def test_jobs_on_a_shared_node_are_next_to_each_other_on_its_cores() -> None:
    found = scheduled(SHARED)
    assert lanes_of(MACHINE, found) == [4, 8]
    names = LaneNames([node.name for node in NODES], places(MACHINE), np.array([4, 4, 4, 8, 8]))
    line = timeline(bars(MACHINE, found), found, names, 28)
    count = {one: int(line.count[line.job == one.encode()].sum()) for one in "1234"}
    assert count == {"1": 2, "2": 6, "3": 4, "4": 8}
    for lane in range(28):
        here = (line.first <= lane) & (lane < line.first + line.count)
        spans = sorted(zip(line.start_s[here], line.end_s[here], strict=True))
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    # Job 1 has two cores of the first node, job 2 the other two and four of the first of b.
    assert line.at(960.0, 0).job == line.at(960.0, 1).job == "1"  # type: ignore[union-attr]
    assert line.at(960.0, 3).job == line.at(960.0, 12).job == "2"  # type: ignore[union-attr]
    held = held_line(MACHINE, found, np.array([950.0, 1000.0, 1050.0]))
    assert (held.unit, held.most, held.mean) == ("cores", 28.0, (8.0, 20.0))


def test_the_load_of_a_shared_node_is_what_jobs_hold_of_it() -> None:
    views = {view.name: view for view in node_views(standing(SHARED, {}))}
    assert views["n0"].load == {"cores": 1.0}
    assert views["n3"].load == {"cores": 0.5}
    assert views["n1"].load == {"cores": 0.0}
    assert views["n0"].jobs == ("1", "2")
    energy = energy_of(MACHINE, scheduled(SHARED[:2]), NODES, (950.0, 1000.0))
    busy = IDLE.sum() + (FULL - IDLE)[0] * 1.0 + (FULL - IDLE)[3] * 0.5
    assert energy_view(energy, 10.0, {}, None).power_w == pytest.approx(busy)


def test_a_job_that_has_ended_keeps_its_lanes() -> None:
    from hpctwin.rms.records import events as ev

    history = History()
    told = {"cluster": "m", "run": "", "time_s": 960.0}
    parts = (NodePart(cores=3.0),)
    history.take(ev.JobStarted(seq=1, job_id="9", node_names=("n4",), parts=parts, **told))
    history.take(ev.JobEnded(seq=2, job_id="9", **{**told, "time_s": 980.0}))
    number = {node.name: i for i, node in enumerate(NODES)}
    (one,) = past(history, 1000.0, number)
    assert rows_of(MACHINE, [one]) == [((20, 3),)]


def test_nodes_stand_at_their_switches_or_in_their_racks() -> None:
    groups = [{"name": "a", "count": 4}, {"name": "b", "count": 2}]
    switches = [
        {"name": "s1", "nodes": "0-2"},
        {"name": "s2", "nodes": "3-5"},
        {"name": "top", "switches": ["s1", "s2"]},
    ]
    assert places(Cluster.model_validate({"nodes": groups})) == ["a"] * 4 + ["b"] * 2
    told = Cluster.model_validate({"nodes": groups, "switches": switches})
    assert places(told) == ["s1"] * 3 + ["s2"] * 3
    racks = {
        "cdus": 2,
        "racks_per_cdu": 2,
        "missing": [1],
        "nodes_per_chassis": 2,
        "chassis_per_rack": 1,
    }
    group = {"name": "a", "count": 5, "racks": racks, "components": {"cpu": {"idle_w": 1}}}
    found = places(Cluster.model_validate({"nodes": [group]}))
    assert found == ["a, rack 0"] * 2 + ["a, rack 2"] * 2 + ["a, rack 3"]


@pytest.mark.parametrize("weather", ["nowhere.csv", "warm"])
def test_weather_that_is_neither_a_temperature_nor_a_file_is_rejected(
    weather: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpctwin.cli.app import main

    with pytest.raises(SystemExit) as end:
        main(["serve", "--weather", weather, "--journal", "j.sqlite"])
    assert end.value.code == 2
    assert "must be a temperature" in capsys.readouterr().err


def test_an_unreadable_price_is_reported_and_the_rest_is_shown(make: Any) -> None:
    page = make()
    mirror = page.source.core.mirror
    group = mirror.machine.nodes[0].model_dump() | {
        "modes": {"on": {"power_w": 2.0, "idle_w": 1.0}}
    }
    mirror.machine = Cluster.model_validate({"nodes": [group], "price": "/nowhere/prices.csv"})
    page.source.version += 1
    assert page.source.head().energy.price is None
    assert any("/nowhere/prices.csv" in one for one in page.source.head().trouble)
    told = page.source.lines(50)
    assert [line.name for line in told.lines] == ["nodes in use", "power drawn"]
    assert math.isclose(told.edges_s[-1], page.source.timeline_view().to_s)


def test_a_what_if_of_shared_nodes_shows_jobs_on_their_cores() -> None:
    core = Core(CoreSettings(pool=("fcfs+easy",)))
    snapshot = standing(SHARED, {}).core.mirror.snapshot()
    core.take_snapshot(snapshot)
    answer = Question.of(core, 1000.0, "fcfs+easy", Change()).answer()
    held = {bar.job: sum(count for _, count in bar.rows) for bar in answer.as_is.bars}
    assert held == {"1": 2, "2": 6, "3": 4, "4": 8}
    assert answer.as_is.lanes == 28
    starts = {bar.job: bar.start_s for bar in answer.as_is.bars if bar.kind == "forecast"}
    assert answer.as_is.starts == starts
    on: dict[int, list[tuple[float, float]]] = {}
    for bar in answer.as_is.bars:
        for first, count in bar.rows:
            for lane in range(first, first + count):
                on.setdefault(lane, []).append((bar.start_s, bar.end_s))
    for spans in on.values():
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(spans)))


def test_jobs_of_the_past_keep_what_colors_mean() -> None:
    from hpctwin.rms.records import events as ev

    history, told = History(), {"cluster": "m", "run": ""}
    number = {node.name: i for i, node in enumerate(NODES)}
    spec = JobSpec(
        id="9", submit_s=900.0, nodes=1, walltime_s=100.0, user="ann", account="ice", partition="p"
    )
    texts = [
        ev.JobSubmitted(seq=1, job=spec, time_s=900.0, **told),
        ev.JobStarted(seq=2, job_id="9", node_names=("n4",), time_s=960.0, **told),
        ev.JobEnded(seq=3, job_id="9", reason="walltime", time_s=980.0, **told),
    ]
    history.read(map(ev.event_json, texts))
    (one,) = past(history, 1000.0, number)
    assert one.state == "time limit"
    names = LaneNames([node.name for node in NODES], places(MACHINE), np.ones(5, np.int64))
    line = timeline(bars(MACHINE, [one]), [one], names, 5)
    told_by = {by: line.groups(by).names for by in ("user", "account", "partition", "state")}
    assert told_by == {
        "user": ("ann",), "account": ("ice",), "partition": ("p",), "state": ("time limit",),
    }  # fmt: skip
    for by, name in (("wait", "up to 1 min"), ("size", "1 node")):
        groups = line.groups(by)
        assert groups.names[groups.number[0]] == name
    assert line.at(970.0, 4).where == "n4"  # type: ignore[union-attr]


@pytest.mark.parametrize(("currency", "unit"), [("EUR", "EUR"), ("", "(no currency)")])
def test_prices_have_their_currency(currency: str, unit: str) -> None:
    machine = MACHINE.model_copy(update={"currency": currency})
    energy = energy_of(machine, [], NODES, (1000.0, 1060.0), unix_time=False)
    rates = rates_of(machine, 0.0)
    assert energy_view(energy, 30.0, rates, None).price_unit == unit
    units = {line.name: line.unit for line in power_lines(energy, np.arange(61.0), rates, None)}
    assert units["price of the electricity"] == f"{unit}/h"
    assert units["carbon emitted"] == "g/h"


@pytest.mark.parametrize(
    ("told", "zone"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("CET-1CEST,M3.5.0", "UTC"),
    ],
)
def test_the_zone_of_the_site_is_that_of_the_host_or_its_tz(
    monkeypatch: pytest.MonkeyPatch, told: str, zone: str
) -> None:
    monkeypatch.setenv("TZ", told)
    assert site_zone.__wrapped__() == zone


@pytest.mark.parametrize(
    ("mode", "text"), [("act", "starts now"), ("approve", "its start needs an approval")]
)
def test_a_job_that_starts_now_waits_for_no_earlier_job(mode: str, text: str) -> None:
    stands = replace(standing(SHARED, {"3": 1000.0, "4": 1001.0}), status={"mode": mode})
    texts = [job_view(job, stands, lambda _: True, {}).why for job in SHARED[2:]]
    assert texts == [text, "nodes are reserved for earlier jobs"]
