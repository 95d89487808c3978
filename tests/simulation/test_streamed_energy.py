"""Past power states and the use of components in a stream, compared with a run in memory."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from hpctwin import Cluster, Simulation, Workload, simulate_stream
from hpctwin.cli import main
from hpctwin.energy.accounts.outputs import energy_tables
from hpctwin.errors import ConfigError
from hpctwin.model.workload.jobs import NODE_W, Usage
from hpctwin.policies import make_policy
from hpctwin.simulation import Result, StreamedResult
from hpctwin.simulation.streaming import stream
from tests.energy import test_shared_components
from tests.energy.powered import joined, platforms, power_policies
from tests.energy.test_against_reference import powers_of
from tests.energy.test_components import groups, shares
from tests.engine.test_suspension import busy_cases, crowded_cases
from tests.examples import each, examples
from tests.simulation.test_streamed import BATCHES, jobs_of, same, whole
from tests.strategies import clusters, shared_clusters, shared_workloads, workloads


def table_of(streamed: StreamedResult, name: str) -> pl.DataFrame | None:
    folder = streamed.folder / name
    return pl.read_parquet(folder / "*.parquet") if folder.is_dir() else None


def same_energy(streamed: StreamedResult, result: Result) -> None:
    """All tables of energy; the power over time up to rounding, and as steps: windows cut them."""
    same(streamed, result)
    same_tables(streamed, result)


def same_tables(streamed: StreamedResult, result: Result) -> None:
    assert result.energy is not None
    expected = energy_tables(result.energy)
    summed = result.placements is not None or "jobs_w" in expected.get("power", ())
    for name in ("nodes", "node_log"):
        found = table_of(streamed, name)
        assert (found is None) == (name not in expected), name
        if found is not None:
            table = whole(expected[name])
            keys = [one for one in table.columns if one != "energy_j"]
            assert_frame_equal(whole(found).select(keys), table.select(keys), check_exact=True)
            values = [one.sort(keys)["energy_j"] for one in (found, table)]
            if name == "node_log" or not summed:
                assert values[0].equals(values[1], null_equal=True)
            else:
                assert values[0].to_list() == pytest.approx(values[1].to_list(), rel=1e-9, abs=1e-6)
    found = table_of(streamed, "power")
    assert (found is None) == ("power" not in expected)
    if found is not None:
        same_steps(found, expected["power"])


def same_steps(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    times = found["time_s"].to_numpy()
    assert (np.diff(times) >= 0).all()
    assert set(expected["time_s"]) <= set(times.tolist())
    place = np.searchsorted(expected["time_s"].to_numpy(), times, side="right") - 1
    for name in expected.columns[1:]:
        values = expected[name].to_numpy()[place]
        assert found[name].to_numpy() == pytest.approx(values, rel=1e-9, abs=1e-6), name


def compared(workload: Workload, *parts: Any, batch: int, log: bool = True, **options: Any) -> None:
    """A workload as a stream, whose past power states are written at each second event time."""
    expected = Simulation(workload, *parts, log=log, **options).run()
    few = mock.patch.multiple(stream, MOST_LOGGED=0, EVERY=2)
    with TemporaryDirectory() as folder, few:
        streamed = simulate_stream(workload, *parts, out=folder, batch=batch, log=log, **options)
        same_energy(streamed, expected)


@settings(max_examples=examples(40))
@given(data=st.data(), batch=st.sampled_from(BATCHES), log=st.booleans())
@each("shared", (False, True))
def test_a_stream_keeps_the_past_power_states_of_a_run_in_memory(
    shared: bool, data: st.DataObject, batch: int, log: bool
) -> None:
    """Sleep depths, failures, cleanup, cancellations, and jobs that never run after the last end."""
    if shared:
        cluster = data.draw(shared_clusters(outages=data.draw(st.booleans())))
        cluster = joined(data.draw(powers_of(cluster)), cluster)
        workload = data.draw(shared_workloads(cluster, max_jobs=20))
    else:
        if data.draw(st.booleans()):
            cluster = data.draw(clusters(cleanup=True))
            cluster = joined(data.draw(powers_of(cluster)), cluster)
        else:
            cluster = data.draw(platforms())
        workload = data.draw(workloads(cluster, resources=False, per_node=False))
    backfill = data.draw(st.sampled_from(("easy", "conservative", "none")))
    policy = make_policy(None, backfill, power=data.draw(power_policies()))
    compared(workload, cluster, policy, batch=batch, log=log)


@settings(max_examples=examples(25))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_keeps_the_power_states_of_suspended_jobs(
    shared: bool, data: st.DataObject, batch: int
) -> None:
    case = data.draw(crowded_cases() if shared else busy_cases())
    cluster = joined(data.draw(powers_of(case["cluster"])), case["cluster"])
    parts = case["workload"], cluster, "fcfs+easy"
    options: dict[str, Any] = {"power": data.draw(power_policies()), "log": True}
    with TemporaryDirectory() as folder:
        streamed = simulate_stream(*parts, out=folder, batch=batch, **options)
        same_tables(streamed, Simulation(*parts, **options).run())


@st.composite
def used(draw: st.DrawFn, size: int, names: tuple[str, ...]) -> dict[str, Usage]:
    """Use of components by some jobs, and its mean or samples."""
    usage = {}
    for name in draw(st.sets(st.sampled_from(names))):
        top = 900.0 if name == NODE_W else 1.0
        most = draw(st.sampled_from((1, 4)))
        samples = [
            [top * draw(shares) for _ in range(draw(st.integers(0, most)))] for _ in range(size)
        ]
        usage[name] = Usage.traces(samples, draw(st.sampled_from([2.0, 3.5, 10.0])))
    return usage


POWERS = ("none", "psus:4s", "psas-auto:4s", "psas-ipm:4s")


@settings(max_examples=examples(60))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
def test_components_draw_in_a_stream_as_in_memory(data: st.DataObject, batch: int) -> None:
    """Traces of use, measured power, curves of converters, and nodes that are switched off."""
    power = data.draw(st.sampled_from(POWERS))
    cluster = Cluster.checked(
        {"nodes": [data.draw(groups(f"g{i}")) for i in range(data.draw(st.integers(1, 2)))]}, "c"
    )
    workload = data.draw(workloads(cluster, resources=False, per_node=False))
    usage = data.draw(used(len(workload), ("cpu", "gpu", NODE_W)))
    log = power != "none" or data.draw(st.booleans())
    compared(workload.replace(usage=usage), cluster, f"fcfs+easy~{power}", batch=batch, log=log)


@settings(max_examples=examples(40))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
def test_components_of_shared_nodes_draw_in_a_stream_as_in_memory(
    data: st.DataObject, batch: int
) -> None:
    power = data.draw(st.sampled_from(POWERS))
    sleep = {} if power == "none" else {"sleep": [test_shared_components.SLEEP]}
    content = test_shared_components.MACHINE.model_dump(mode="json")
    content["nodes"] = [one | sleep for one in content["nodes"]]
    cluster = Cluster.checked(content, "machine")
    workload = data.draw(test_shared_components.workloads())
    compared(workload, cluster, f"fcfs+easy~{power}", batch=batch)


PARTS = {"cpu": {"count": 2, "idle_w": 50, "max_w": 200, "uncertainty": 0.1}}


def test_the_use_of_components_may_be_unknown_in_some_batches(tmp_path: Path) -> None:
    machine = Cluster.checked({"nodes": [{"name": "c", "count": 8, "components": PARTS}]}, "c")
    tables = [
        jobs_of(0, 20),
        jobs_of(20, 20, use_cpu=lambda row: row % 5 / 4),
        jobs_of(40, 20, use_cpu=lambda row: [0.5, row % 3 / 2], use_cpu_step_s=lambda row: 2.0),
    ]
    found = simulate_stream(iter(tables), machine, out=tmp_path / "run", batch=7)
    lists = [tables[1].with_columns(pl.concat_list("use_cpu"), use_cpu_step_s=1.0), tables[2]]
    frame = pl.concat([tables[0], *lists], how="diagonal")
    same_energy(found, Simulation(Workload.from_frame(frame, name="stream"), machine).run())


def test_the_measured_power_of_a_shared_node_is_rejected_in_a_stream_too(tmp_path: Path) -> None:
    machine = test_shared_components.MACHINE
    asks = {"tasks": lambda row: 1, "cores_per_task": lambda row: 1.0, "nodes": lambda row: 1}
    tables = [jobs_of(0, 5, **asks), jobs_of(5, 5, **asks, node_w=lambda row: 300.0)]
    with pytest.raises(ConfigError, match="which is ambiguous because jobs share nodes"):
        simulate_stream(tables, machine, out=tmp_path, batch=5)


@pytest.mark.parametrize("begin", ["0", "2024-03-01T22:30:00"])
@pytest.mark.parametrize("given", [False, True])
def test_the_command_writes_what_it_writes_without_stream(
    tmp_path: Path, begin: str, given: bool
) -> None:
    """Prices are those of the cluster's file or of an option, by time of day if the trace has dates."""
    machine, trace, price = (tmp_path / name for name in ("c.yaml", "jobs.parquet", "price.csv"))
    own = "" if given else f", price: {price}, carbon: 380"
    machine.write_text(
        "{nodes: [{name: c, count: 8, modes: {base: {power_w: 200, idle_w: 90}}, sleep: [{name: off,"
        " power_w: 5, switch_off: {time: 1s, power_w: 60}, switch_on: {time: 2s, power_w: 80}}]}]"
        f"{own}}}"
    )
    hours = [f"2024-03-0{2 if hour < 22 else 1} {hour % 24:02}:00,{hour}.5" for hour in range(24)]
    price.write_text("\n".join(["time,price (EUR/kWh)", *sorted(hours)]))
    seconds = pl.col("submit_s") * 90
    if begin != "0":
        seconds = pl.lit(begin).str.to_datetime() + pl.duration(seconds=seconds)
    jobs_of(0, 60).with_columns(submit_s=seconds).write_parquet(trace)
    command = ["simulate", str(trace), "--cluster", str(machine), "--power", "psus:3s"]
    command += ["--price", str(price), "--carbon", "380"] if given else []
    for more in ([str(tmp_path / "memory")], [str(tmp_path / "parts"), "--stream"]):
        with pytest.raises(SystemExit, match="0"):
            main([*command, "--out", *more])
    if begin == "0":  # else time zero is the first submission, or that of Unix time
        for name in ("nodes", "node_log", "power"):
            expected = pl.read_parquet(tmp_path / "memory" / f"{name}.parquet")
            found = pl.read_parquet(tmp_path / "parts" / name / "*.parquet")
            assert len(expected) > 15
            assert_frame_equal(whole(found), whole(expected))
    told, again = (
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("memory", "parts")
    )
    (cost,) = (name for name in told if name.startswith("cost_"))
    for name in (cost, "emissions_kg", "total_energy_j"):
        assert again[name] == pytest.approx(told[name], rel=1e-9)
        assert told[name] > 0
