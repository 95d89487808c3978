"""What jobs that share nodes used of components, beside a plain reference of each node in each interval."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Workload, simulate
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.errors import ConfigError
from hpctwin.model.cluster.power import node_w
from hpctwin.model.workload.jobs import NODE_W, Usage
from hpctwin.simulation import replay

MACHINE = Cluster.checked(
    {
        "nodes": [
            {
                "name": "gpu",
                "count": 2,
                "cores": 8,
                "gpus": 2,
                "components": {
                    "cpu": {"count": 2, "idle_w": 50, "max_w": 200, "uncertainty": 0.1},
                    "gpu": {"count": 2, "idle_w": 30, "max_w": 300},
                    "memory": {"idle_w": 40},
                },
                "racks": {
                    "nodes_per_chassis": 2,
                    "converter": {"constant_w": 5, "efficiency": 0.9},
                },
            },
            {
                "name": "cpu",
                "count": 3,
                "cores": 4,
                "components": {"cpu": {"idle_w": 20, "max_w": 90}},
            },
        ],
        "partitions": [{"name": "all", "groups": ["gpu", "cpu"], "default": True}],
    },
    "machine",
)
shares = st.sampled_from([0.0, 0.25, 0.5, 1.0])
traces = st.lists(st.lists(shares, max_size=4), min_size=6, max_size=6)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    def several(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=6, max_size=6))

    usage = {
        name: Usage.traces(draw(traces), draw(st.sampled_from([3, 7])))
        for name in draw(st.sampled_from([["cpu"], ["gpu"], ["cpu", "gpu"]]))
    }
    return Workload.build(
        submit_s=sorted(several(st.integers(0, 20))),
        runtime_s=several(st.integers(1, 20)),
        walltime_s=[20] * 6,
        nodes=[1] * 6,
        chunks={
            "tasks": several(st.integers(1, 3)),
            "cores_per_task": several(st.integers(1, 4)),
            "gpus_per_task": several(st.integers(0, 1)),
        },
        usage=usage,
    )


def drawn_by(energy: ComponentEnergy, node: int, row: int, since_s: float) -> float:
    """What the node draws if it is in use as the job uses it."""
    group = energy.cluster.nodes[0 if node < 2 else 1]
    total = 0.0
    for name, part in group.components.items():
        use, found = 1.0, energy.usage.get(name)
        if found is not None and found.count[row]:
            samples = found.values[found.first[row] : found.first[row + 1]]
            use = samples[min(int(since_s * 1000) // int(found.step_ms[row]), len(samples) - 1)]
        total += float(part.watts(use))
    return total


def reference(energy: ComponentEnergy) -> tuple[list[float], float]:
    """Joules of each job, and of all nodes that are on."""
    ids = energy.table["job_id"].to_list()
    there = [
        (ids.index(r["job_id"]), r["first_node"], r["start_s"], r["end_s"], r["use"], r["share"])
        for r in energy.node_map.iter_rows(named=True)
    ]
    times = {energy.begin_s, energy.now_s}
    for row, _, start, end, *_ in there:
        times |= {start, end}
        for found in energy.usage.values():
            step = float(found.step_ms[row]) / 1000
            times |= {start + i * step for i in range(5) if start + i * step < end}
    jobs, total = [0.0] * len(ids), 0.0
    for begin, end in pairwise(sorted(times)):
        for node in range(energy.cluster.node_count):
            group = energy.cluster.nodes[0 if node < 2 else 1]
            idle = node_w(group.components, 0.0)
            here = [one for one in there if one[1] == node and one[2] <= begin < one[3]]
            used = max(1.0, sum(use for *_, use, _ in here))
            held = sum(share for *_, share in here)
            total += idle * (end - begin)
            for row, _, start, _, use, share in here:
                more = use / used * (drawn_by(energy, node, row, begin - start) - idle)
                total += more * (end - begin)
                own = share / held if held else 1 / len(here)
                jobs[row] += (more + own * idle) * (end - begin)
    return jobs, total


@given(workloads(), st.booleans())
def test_shared_nodes_draw_what_their_jobs_use_of_components(
    workload: Workload, replayed: bool
) -> None:
    result = simulate(workload, MACHINE, "fcfs+easy")
    if replayed:
        starts = result.jobs.sort("submit_s", "job_id")["start_s"].to_list()
        frame = workload.to_frame().with_columns(recorded_start_s=pl.Series(starts))
        result = replay(Workload.from_frame(frame), MACHINE).result
    energy = result.energy
    assert isinstance(energy, ComponentEnergy)
    assert energy.usage
    jobs, total = reference(energy)
    assert energy.jobs["energy_j"].to_list() == pytest.approx(jobs, rel=1e-7, abs=1e-3)
    assert energy.node_j.sum() == pytest.approx(total, rel=1e-7, abs=1e-3)
    drawn = energy.draw.energy_j
    assert drawn["jobs"] + drawn["idle"] == pytest.approx(total, rel=1e-7, abs=1e-3)
    table = energy.over_time(3.7)
    length = np.minimum(3.7, energy.now_s - table["time_s"].to_numpy())
    assert float(table["total_w"].to_numpy() @ length) == pytest.approx(energy.total_j, rel=1e-9)


SLEEP = {
    "name": "off", "power_w": 4, "switch_off": {"time": "2s", "power_w": 60},
    "switch_on": {"time": "3s", "power_w": 80},
}  # fmt: skip


@given(workloads(), st.sampled_from(["psus:4s", "psas-auto:4s", "psas-ipm:4s"]))
def test_use_goes_with_nodes_that_are_switched_off(workload: Workload, power: str) -> None:
    groups = [one | {"sleep": [SLEEP]} for one in MACHINE.model_dump(mode="json")["nodes"]]
    machine = Cluster.checked({"nodes": groups}, "machine")
    energy = simulate(workload, machine, f"fcfs+easy~{power}", log=True).energy
    assert isinstance(energy, ComponentEnergy)
    jobs, _ = reference(energy)
    assert energy.jobs["energy_j"].to_list() == pytest.approx(jobs, rel=1e-7, abs=1e-3)
    drawn = energy.draw.energy_j
    assert drawn["jobs"] + drawn["idle"] == pytest.approx(energy.node_j.sum(), rel=1e-9, abs=1e-3)
    times, watts = energy.power_over_time()
    assert float(watts[:-1] @ np.diff(times)) == pytest.approx(energy.total_j, rel=1e-9)


def test_stated_full_use_equals_no_statement() -> None:
    jobs = {
        "submit_s": [0, 0, 5], "runtime_s": [20, 10, 30], "nodes": [1, 1, 1],
        "chunks": {"tasks": [1, 1, 1], "cores_per_task": [3, 4, 2], "gpus_per_task": [1, 0, 0]},
    }  # fmt: skip
    full = Usage.traces([[1.0], [1.0, 1.0], [1.0]], 4)
    told = simulate(Workload.build(**jobs, usage={"cpu": full, "gpu": full}), MACHINE).energy
    plain = simulate(Workload.build(**jobs), MACHINE).energy
    assert told is not None
    assert plain is not None
    assert told.jobs["energy_j"].to_list() == pytest.approx(plain.jobs["energy_j"].to_list())
    assert told.figures()["total_energy_sd_j"] == pytest.approx(
        plain.figures()["total_energy_sd_j"]
    )


def test_the_measured_power_of_a_shared_node_belongs_to_no_single_job() -> None:
    jobs = Workload.build(
        submit_s=[0], runtime_s=[9], nodes=[1], recorded_start_s=[0],
        chunks={"tasks": [1], "cores_per_task": [1]}, usage={NODE_W: Usage.traces([[300.0]], 9)},
    )  # fmt: skip
    for run in (simulate, replay):
        with pytest.raises(ConfigError, match="which is ambiguous because jobs share nodes"):
            run(jobs, MACHINE)
