"""What machines of components take, beside a plain reference that looks at each node in each interval."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Workload, simulate
from hpctwin.cli import main
from hpctwin.energy import Series
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.power import losses
from hpctwin.energy.power.losses import PARTS
from hpctwin.errors import ConfigError, TraceError, WorkloadError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model import NodeGroup
from hpctwin.model.cluster.power import Converter, node_w
from hpctwin.model.workload.jobs import NODE_W, Usage

watts = st.integers(1, 400)
shares = st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.9, 1.0])


@st.composite
def converters(draw: st.DrawFn) -> dict:
    if draw(st.booleans()):
        return {
            "constant_w": draw(st.integers(0, 30)),
            "efficiency": draw(st.sampled_from([0.8, 0.95, 1])),
        }
    return {"constant_w": 5, "curve": [[100, 0.7], [600, 0.9], [2000, 0.95]]}


@st.composite
def groups(draw: st.DrawFn, name: str) -> dict:
    parts = {}
    for part in draw(st.sampled_from([["cpu"], ["cpu", "gpu"], ["cpu", "gpu", "memory"]])):
        idle = draw(watts)
        parts[part] = {"count": draw(st.integers(1, 4)), "idle_w": idle}
        if part != "memory":
            parts[part]["max_w"] = idle + draw(watts)
    count, each, per_rack = (
        draw(st.integers(1, 7)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
    )
    group = {"name": name, "count": count, "components": parts}
    if draw(st.integers(0, 3)):
        racks = math.ceil(count / each / per_rack) + 1
        group["racks"] = {
            "cdus": racks,
            "missing": [draw(st.integers(0, racks - 1))],
            "chassis_per_rack": per_rack,
            "nodes_per_chassis": each,
            "converter": draw(converters()),
            "switches": draw(st.integers(0, 2)),
            "switch_w": 50,
            "rectifiers": draw(st.integers(1, 3)),
            "rectifier": draw(converters()),
            "rectifier_load_w": draw(st.sampled_from([None, 300.0])),
            "cdu_w": draw(st.integers(0, 90)),
        }
    group["sleep"] = [
        {
            "power_w": 7,
            "switch_off": {"time": 3, "power_w": 60},
            "switch_on": {"time": 5, "power_w": 80},
        }
    ]
    return group


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    cluster = Cluster.checked(
        {"nodes": [draw(groups(f"g{i}")) for i in range(draw(st.integers(1, 2)))]}, "machine"
    )
    jobs = draw(st.integers(1, 6))
    usage = {}
    for name in draw(st.sets(st.sampled_from(["cpu", "gpu", NODE_W]))):
        top = 900.0 if name == NODE_W else 1.0
        if draw(st.booleans()):
            usage[name] = Usage.averages(
                [draw(st.sampled_from([math.nan, 0.0, 0.4 * top, top])) for _ in range(jobs)]
            )
        else:
            usage[name] = Usage.traces(
                [[top * draw(shares) for _ in range(draw(st.integers(0, 4)))] for _ in range(jobs)],
                draw(st.sampled_from([2.0, 3.5, 10.0])),
            )
    workload = Workload.build(
        submit_s=[draw(st.integers(0, 30)) for _ in range(jobs)],
        runtime_s=[draw(st.integers(0, 25)) for _ in range(jobs)],
        nodes=[draw(st.integers(1, cluster.node_count)) for _ in range(jobs)],
        usage=usage,
    )
    return workload, cluster


def _taken(stage: Converter, given_w: float) -> float:
    efficiency = stage.efficiency
    if stage.curve:
        loads, values = zip(*stage.curve, strict=True)
        efficiency = float(np.interp(given_w, loads, values))
    return (given_w + stage.constant_w) / efficiency


def _fed(
    group: NodeGroup, drawn: list[tuple[float, bool]]
) -> tuple[dict[str, float], dict[int, float]]:
    """By part and by coolant distribution unit, when each node draws so much and computes or does not."""
    parts = dict.fromkeys(PARTS, 0.0)
    for own, computes in drawn:
        parts["jobs" if computes else "idle"] += own
    racks = group.racks
    if racks is None:
        return parts, {}
    cdus = dict.fromkeys(range(racks.cdus), racks.cdu_w)
    parts["pumps"] = racks.cdus * racks.cdu_w
    number = 0
    for rack in range(racks.cdus * racks.racks_per_cdu):
        for _ in range(0 if rack in racks.missing else racks.chassis_per_rack):
            mine = [own for own, _ in drawn[number : number + racks.nodes_per_chassis]]
            number += racks.nodes_per_chassis
            taken = sum(_taken(racks.converter, own) for own in mine)
            load = taken + racks.switches * racks.switch_w
            working = racks.rectifiers
            if racks.rectifier_load_w is not None:
                working = min(max(math.ceil(load / racks.rectifier_load_w), 1), racks.rectifiers)
            fed = working * _taken(racks.rectifier, load / working)
            parts["conversion"] += taken - sum(mine)
            parts["switches"] += load - taken
            parts["rectification"] += fed - load
            cdus[rack // racks.racks_per_cdu] += fed
    return parts, cdus


def _use(usage: dict[str, Usage], name: str, job: int, since_s: float) -> float | None:
    if name not in usage:
        return None
    found = usage[name]
    samples = found.values[found.first[job] : found.first[job + 1]]
    if not len(samples):
        return None
    return float(samples[min(int(since_s * 1000) // int(found.step_ms[job]), len(samples) - 1)])


def reference(
    energy: ComponentEnergy, usage: dict[str, Usage]
) -> tuple[dict, list[float], list[float]]:
    """Joules by part, by coolant distribution unit, and by job."""
    ids = energy.table["job_id"].to_list()
    runs = [
        (ids.index(row["job_id"]), row["start_s"], row["end_s"], row["first_node"], row["count"])
        for row in energy.node_map.iter_rows(named=True)
    ]
    spans = [(n, s, a / 1000, b / 1000) for n, s, a, b in energy.spans().T.tolist()]
    times = {energy.begin_s, energy.now_s} | {t for *_, a, b in spans for t in (a, b)}
    for job, start, end, *_ in runs:
        times |= {start, min(end, energy.now_s)}
        for found in usage.values():
            step = float(found.step_ms[job]) / 1000
            times |= {
                start + i * step for i in range(int(found.count[job])) if start + i * step < end
            }
    parts, cdus, jobs = dict.fromkeys(PARTS, 0.0), {}, [0.0] * len(ids)
    for begin, end in pairwise(sorted(times)):
        drawn: list[tuple[float, bool]] = []
        node = 0
        for group in energy.cluster.nodes:
            for _ in range(group.count):
                state = next(s for n, s, a, b in spans if n == node and a <= begin < b)
                own, computes = float(energy.watts[state, node]), state == 1
                for job, start, *_, first, count in runs:
                    stop = next(r[2] for r in runs if r[0] == job)
                    if computes and start <= begin < stop and first <= node < first + count:
                        measured = _use(usage, NODE_W, job, begin - start)
                        own = sum(
                            float(part.watts(1.0 if use is None else use))
                            for name, part in group.components.items()
                            for use in [_use(usage, name, job, begin - start)]
                        )
                        own = own if measured is None else measured
                        jobs[job] += own * (end - begin)
                drawn.append((own, computes))
                node += 1
        offset = first_cdu = 0
        for group in energy.cluster.nodes:
            by_part, by_cdu = _fed(group, drawn[offset : offset + group.count])
            offset += group.count
            for part, value in by_part.items():
                parts[part] += value * (end - begin)
            for unit, value in by_cdu.items():
                cdus[first_cdu + unit] = cdus.get(first_cdu + unit, 0.0) + value * (end - begin)
            first_cdu += len(by_cdu)
    return parts, [cdus[unit] for unit in sorted(cdus)], jobs


@given(
    cases(),
    st.sampled_from(["fcfs+easy", "fcfs+easy~psus:4s"]),
    st.sampled_from([1, 6, losses._AT_ONCE]),
)
def test_the_consumption_of_a_cluster_equals_a_plain_reference(
    case, policy: str, at_once: int
) -> None:
    workload, cluster = case
    energy = simulate(workload, cluster, policy, log=True).energy
    assert isinstance(energy, ComponentEnergy)
    parts, cdus, jobs = reference(energy, dict(workload.usage))
    # Units are computed one by one, some together, and all at once.
    with mock.patch.object(losses, "_AT_ONCE", at_once):
        draw = energy.draw
    assert draw.energy_j == pytest.approx(parts, rel=1e-9, abs=1e-6)
    assert energy.total_j == pytest.approx(sum(parts.values()), rel=1e-9, abs=1e-6)
    assert energy.jobs["energy_j"].to_list() == pytest.approx(jobs, rel=1e-9, abs=1e-6)
    # Jobs, idle nodes, and losses are all that is taken.
    assert energy.jobs["energy_j"].sum() == pytest.approx(parts["jobs"], rel=1e-9, abs=1e-6)
    assert energy.node_j.sum() == pytest.approx(parts["jobs"] + parts["idle"], rel=1e-9, abs=1e-6)
    for step in (3.7, 1000.0) if energy.now_s > energy.begin_s else ():
        table, by_cdu = energy.over_time(step), energy.cdus_over_time(step)
        length = np.minimum(step, energy.now_s - table["time_s"].to_numpy())
        assert float(table["total_w"].to_numpy() @ length) == pytest.approx(
            energy.total_j, rel=1e-9
        )
        units = [float(by_cdu[name].to_numpy() @ length) for name in by_cdu.columns[1:]]
        assert units == pytest.approx(cdus, rel=1e-9, abs=1e-6)
    price = Series.hourly([0.1, 0.3, 0.2], "EUR", step_s=7.0)
    times, drawn = energy.power_over_time()
    assert energy.cost(price) == pytest.approx(
        sum(
            w * float(price.integral(b) - price.integral(a))
            for a, b, w in zip(times[:-1], times[1:], drawn[:-1], strict=True)
        )
    )


def _machine(**racks: object) -> Cluster:
    node = {
        "name": "node",
        "count": 4,
        "components": {
            "cpu": {"count": 2, "idle_w": 50, "max_w": 200, "uncertainty": 0.1},
            "memory": {"idle_w": 40, "uncertainty": 0.2},
        },
    }
    if racks:
        node["racks"] = {"nodes_per_chassis": 4, **racks}
    return Cluster.checked({"nodes": [node]}, "machine")


def test_a_trace_shorter_than_its_job_holds_its_last_sample_and_a_longer_one_is_cut() -> None:
    usage = {"cpu": Usage.traces([[0.0, 1.0], [0.5] * 100], 10)}
    jobs = Workload.build(submit_s=[0, 0], runtime_s=[60, 20], nodes=[1, 1], usage=usage)
    energy = simulate(jobs, _machine()).energy
    assert energy is not None
    assert energy.jobs["energy_j"].to_list() == [10 * 140 + 50 * 440, 20 * 290]
    assert energy.total_j == 10 * 140 + 50 * 440 + 20 * 290 + 140 * (60 * 4 - 80)


def test_usage_follows_its_job_through_sorting_taking_and_forking() -> None:
    usage = {"cpu": Usage.traces([[0.1], [0.2, 0.3], [], [0.4]], 5)}
    jobs = Workload.build(submit_s=[9, 3, 0, 3], runtime_s=[5] * 4, nodes=[1] * 4, usage=usage)
    assert jobs.job_id.tolist() == [3, 2, 4, 1]
    assert jobs.usage["cpu"].values.tolist() == [0.2, 0.3, 0.4, 0.1]
    assert jobs.usage["cpu"].count.tolist() == [0, 2, 1, 1]
    kept = jobs.take(np.array([True, False, True, True]))
    assert kept.usage["cpu"].values.tolist() == [0.4, 0.1]
    assert kept.usage["cpu"].count.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (
            {"cpu": Usage.averages([0.5, 1.2])},
            "job 2: usage cpu, sample 0, is 1.2; it must be from 0 to 1",
        ),
        ({"cpu": Usage.traces([[0.1], [0.2, math.nan]], 5)}, "job 2: usage cpu, sample 1, is nan"),
        (
            {NODE_W: Usage.averages([-1, 5])},
            "job 1: usage node_w, sample 0, is -1; it must be 0 W or more",
        ),
        ({"cpu": Usage.averages([0.5])}, "usage cpu has 1 job, expected 2"),
    ],
)
def test_invalid_usage_is_rejected(usage: dict[str, Usage], said: str) -> None:
    with pytest.raises(WorkloadError) as told:
        Workload.build(submit_s=[0, 0], runtime_s=[5, 5], nodes=[1, 1], usage=usage)
    assert said in str(told.value)


def test_the_deviation_of_energy_is_that_of_idle_and_full_power_each_for_itself() -> None:
    usage = {"cpu": Usage.traces([[0.0, 0.5]], 10)}
    jobs = Workload.build(submit_s=[0], runtime_s=[40], nodes=[2], usage=usage)
    energy = simulate(jobs, _machine(converter={"efficiency": 0.5})).energy
    assert isinstance(energy, ComponentEnergy)
    used, on = 2 * 30 * 0.5, 4 * 40
    expected = 2 * math.hypot(0.1 * 100 * (on - used), 0.1 * 400 * used, 0.2 * 40 * on)
    assert energy.total_j_sd == pytest.approx(expected)
    assert energy.figures()["total_energy_sd_j"] == pytest.approx(expected)


def test_a_step_of_a_table_over_time_must_be_above_nothing() -> None:
    jobs = Workload.build(submit_s=[0], runtime_s=[40], nodes=[2])
    energy = simulate(jobs, _machine()).energy
    assert isinstance(energy, ComponentEnergy)
    with pytest.raises(ConfigError, match="step is 0 s"):
        energy.over_time(0)
    (group,) = energy.cluster.nodes
    assert energy.over_time(15)["jobs_w"].to_list() == pytest.approx(
        [2 * node_w(group.components, 1.0)] * 3
    )


def test_usage_goes_through_a_table_and_back(tmp_path) -> None:
    usage = {
        "cpu": Usage.traces([[0.1, 0.2], [], [0.4]], 5),
        "gpu": Usage.averages([0.5, math.nan, 1]),
        NODE_W: Usage.traces([[300], [20, 10], []], 2.5),
    }
    jobs = Workload.build(submit_s=[0, 1, 2], runtime_s=[5] * 3, nodes=[1] * 3, usage=usage)
    write_workload(jobs, tmp_path / "t.parquet")
    again = read_workload(tmp_path / "t.parquet").usage
    for name, found in usage.items():
        assert again[name].values.tolist() == found.values.tolist()
        assert again[name].first.tolist() == found.first.tolist()
    assert again["cpu"].step_ms[0] == 5000
    assert again[NODE_W].step_ms[1] == 2500


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"use_cpu": [0.5, 1.5]}, "job 2: usage cpu, sample 0, is 1.5; it must be from 0 to 1"),
        (
            {"use_cpu": [[0.5], [0.1, 0.2]]},
            "a column use_cpu_step_s must give the seconds between samples",
        ),
        ({"use_cpu": [[0.5], [0.1, 0.2]], "use_cpu_step_s": [5, 0]}, "row 2: found 0"),
        ({"use_cpu": [["a"], ["b"]]}, "the column holds List(String), expected numbers or lists"),
        ({"node_w": ["a", "3"]}, "node_w: row 1: found 'a', expected a number, 0 or more"),
    ],
)
def test_invalid_columns_of_usage_are_rejected(columns: dict, said: str, tmp_path) -> None:
    frame = pl.DataFrame({"submit_s": [0, 0], "runtime_s": [5, 5], "nodes": [1, 1], **columns})
    frame.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(TraceError) as told:
        read_workload(tmp_path / "t.parquet")
    assert said in str(told.value)


def test_simulate_reports_and_writes_the_power_of_a_cluster_of_components(capsys, tmp_path) -> None:
    (tmp_path / "t.csv").write_text("submit_s,runtime_s,nodes,use_cpu,use_gpu\n0,3600,9472,1,0.5\n")
    with pytest.raises(SystemExit) as ended:
        main(
            ["simulate", str(tmp_path / "t.csv"), "-M", "frontier", "--json",
             "--out", str(tmp_path / "out"), "--plot", str(tmp_path / "power.png")]
        )  # fmt: skip
    assert ended.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    node = (280 + 4 * 324 + 74.26 + 80 + 30 + 13) / 0.98
    total = 74 * 8 * ((16 * node + 1000) / 4 + 17) / 0.96 * 4 + 25 * 8473.47
    assert summary["total_energy_j"] == pytest.approx(3600 * total)
    written = pl.read_parquet(tmp_path / "out" / "power.parquet")
    assert written["total_w"].to_list() == pytest.approx([total])
    assert (tmp_path / "power.png").exists()


def test_one_sample_of_each_job_is_written_and_read_back() -> None:
    jobs = Workload.build(
        submit_s=[0, 0], runtime_s=[5, 5], nodes=[1, 1], usage={"cpu": Usage.averages([0.5, 0.25])}
    )
    again = Workload.from_frame(jobs.to_frame())
    assert again.usage["cpu"].values.tolist() == [0.5, 0.25]
