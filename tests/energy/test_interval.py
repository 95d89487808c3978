"""Energy and all other metrics cover one interval, however a workload was made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_workload, replay, simulate, write_workload
from hpctwin.cli import main
from hpctwin.energy import Series
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.power.states import node_watts
from hpctwin.facility import Facility, simulate_facility
from hpctwin.model import Reservation
from hpctwin.simulation import simulate_stream, window
from hpctwin.sweep import sweep

DAY_S = 86_400
EPOCH_S = 1_600_000_000
"""A Monday, 12:26:40 UTC."""
SLEEP = {
    "power_w": 9,
    "switch_off": {"time": 40, "power_w": 60},
    "switch_on": {"time": 90, "power_w": 150},
}
POWERED = {"name": "n", "count": 8, "cores": 8, "modes": {"base": {"power_w": 300, "idle_w": 100}}}
PARTS = {"cpu": {"count": 2, "idle_w": 40, "max_w": 140}, "memory": {"idle_w": 20}}
RACKS = {"nodes_per_chassis": 8, "switches": 1, "switch_w": 50, "cdus": 1, "cdu_w": 30}
CLUSTERS = {
    "no power policy": (POWERED, "fcfs+easy"),
    "nodes that sleep": ({**POWERED, "sleep": [SLEEP]}, "fcfs+easy~psus:5m"),
    "a plan that wakes nodes": ({**POWERED, "sleep": [SLEEP]}, "fcfs+easy~psas-ipm:5m"),
    "components": (
        {"name": "n", "count": 8, "cores": 8, "components": PARTS, "racks": RACKS, "sleep": [SLEEP]},
        "fcfs+easy~psus:5m",
    ),
}  # fmt: skip
OF_THE_RUN = ("workload", "engine_s")
TIMES = ("interval_begin_s", "interval_end_s", "energy_begin_s", "energy_end_s")


def cluster_of(group: dict[str, Any], **more: Any) -> Cluster:
    return Cluster.model_validate({"nodes": [group], **more})


def at_zero(count: int = 40, *, tasks: bool = False) -> Workload:
    """Jobs with gaps that are longer than the timeouts, and some that must wait."""
    rng = np.random.default_rng(7)
    submit = np.sort(rng.integers(0, 30_000, count))
    submit -= submit[0]
    runtime = rng.integers(20, 4_000, count)
    nodes = rng.integers(1, 7, count)
    columns: dict[str, Any] = {
        "job_id": np.arange(1, count + 1),
        "submit_s": submit.astype(float),
        "runtime_s": runtime.astype(float),
        "walltime_s": 2.0 * runtime,
        "nodes": nodes,
        "user": [f"u{n % 3}" for n in range(count)],
    }
    if tasks:
        columns |= {"tasks": nodes, "cores_per_task": rng.integers(1, 9, count)}
    return Workload.from_frame(pl.DataFrame(columns), start_epoch_s=EPOCH_S)


def later(jobs: Workload, by_s: float) -> Workload:
    """The same jobs at the same dates, counted from an earlier time zero."""
    assert jobs.start_epoch_s is not None
    return jobs.replace(
        submit_ms=jobs.submit_ms + round(1000 * by_s), start_epoch_s=jobs.start_epoch_s - by_s
    )


def started(jobs: Workload) -> Workload:
    """The jobs with recorded starts, a minute after they were submitted."""
    return jobs.replace(recorded_start_ms=jobs.submit_ms + 60_000)


def longer(jobs: Workload, by_s: float) -> Workload:
    """A trace that holds the jobs late, after others and before one more."""
    whole = later(jobs, by_s).to_frame()
    first = whole.head(5).with_columns(
        submit_s=pl.int_range(5) * 7.0, job_id=pl.int_range(1001, 1006)
    )
    last = whole.tail(1).with_columns(pl.col("submit_s") + 9e6, job_id=pl.lit(2000))
    frame = pl.concat([first, whole, last], how="diagonal_relaxed")
    return Workload.from_frame(frame, start_epoch_s=EPOCH_S - by_s)


def read_back(jobs: Workload, folder: Path, name: str) -> Workload:
    write_workload(jobs, folder / name)
    return read_workload(folder / name)


LATE_S = 20 * DAY_S
WAYS: dict[str, Callable[[Workload, Path], Workload]] = {
    "all times later": lambda jobs, _: later(jobs, LATE_S),
    "Unix times": lambda jobs, _: later(jobs, EPOCH_S),
    "slice": lambda jobs, _: longer(jobs, LATE_S)[5:-1],
    "mask": lambda jobs, _: longer(jobs, LATE_S)[np.r_[[False] * 5, [True] * len(jobs), [False]]],
    "Workload.window": lambda jobs, _: longer(jobs, LATE_S).window("19d", "30d"),
    "sample of all": lambda jobs, _: later(jobs, LATE_S).sample(1.0),
    "frame": lambda jobs, _: Workload.from_frame(
        later(jobs, LATE_S).to_frame(), start_epoch_s=EPOCH_S - LATE_S
    ),
    "concatenated frames": lambda jobs, _: Workload.from_frame(
        pl.concat([later(jobs, LATE_S)[:9].to_frame(), later(jobs, LATE_S)[9:].to_frame()]),
        start_epoch_s=EPOCH_S - LATE_S,
    ),
    "Parquet": lambda jobs, folder: read_back(later(jobs, LATE_S), folder, "jobs.parquet"),
    "CSV": lambda jobs, folder: read_back(later(jobs, LATE_S), folder, "jobs.csv"),
    "SWF": lambda jobs, folder: read_back(later(jobs, LATE_S), folder, "jobs.swf"),
}  # fmt: skip


def price_of(jobs: Workload) -> Series:
    """A price by the hour of the day, laid beside the jobs by date."""
    assert jobs.start_epoch_s is not None
    midnight_s = jobs.start_epoch_s - jobs.start_epoch_s % DAY_S
    day = np.arange(24.0)
    made = Series(day * 3600, (day + 1) / 3.6e8, DAY_S, "EUR", start_epoch_s=midnight_s)
    return made.aligned(jobs.start_epoch_s)[0]


def told(jobs: Workload, cluster: Cluster, policy: str) -> dict[str, Any]:
    """All that a run tells, with times from its first submission on."""
    result = simulate(jobs, cluster, policy, log=True)
    energy = result.energy
    assert energy is not None
    found = {k: v for k, v in result.summary().items() if k not in OF_THE_RUN}
    first_s = found["interval_begin_s"]
    assert found["energy_begin_s"] == first_s
    assert found["energy_end_s"] == found["interval_end_s"]
    for name in TIMES:
        found[name] -= first_s
    price = price_of(jobs)
    times, watts = energy.power_over_time()
    at_most = cluster.node_count * float(node_watts(cluster).max())
    if not isinstance(energy, ComponentEnergy):
        assert energy.total_j <= at_most * found["interval_end_s"] * (1 + 1e-12)
        assert watts.max() <= at_most
    assert times[0] == first_s
    assert times[-1] == pytest.approx(first_s + found["interval_end_s"])
    found |= {
        "cost": energy.cost(price),
        "cost of states": energy.state_costs(price).tolist(),
        "cost of jobs": energy.job_costs(price).to_list(),
        "node seconds": energy.state_s(),
        "nodes": energy.nodes()["energy_j"].to_list(),
        "jobs": energy.jobs["energy_j"].to_list(),
        "users": energy.by("user").sort("user")["energy_j"].to_list(),
        "power": float(watts[:-1] @ np.diff(times)),
        "peak": float(watts.max()),
        "series": result.series.select(pl.all().exclude("time_s")).to_dicts(),
    }
    if isinstance(energy, ComponentEnergy):
        found["means"] = energy.over_time(300)["total_w"].to_list()
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_every_metric_is_the_same_however_the_workload_was_made(
    name: str, way: str, tmp_path: Path
) -> None:
    group, policy = CLUSTERS[name]
    jobs, cluster = at_zero(), cluster_of(group)
    made = WAYS[way](jobs, tmp_path)
    if made.start_epoch_s is None:
        made = made.replace(start_epoch_s=EPOCH_S - (int(made.submit_ms[0]) / 1000))
    same(told(made, cluster, policy), told(jobs, cluster, policy))


@pytest.mark.parametrize("name", CLUSTERS)
def test_jobs_scaled_to_a_load_cost_the_same_however_late_they_are(name: str) -> None:
    group, policy = CLUSTERS[name]
    cluster = cluster_of(group)
    one, other = (jobs.scale(0.4, nodes=8) for jobs in (later(at_zero(), LATE_S), at_zero()))
    same(told(one, cluster, policy), told(other, cluster, policy))


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in other.items():
        if isinstance(value, float | int) or (
            isinstance(value, list) and value and isinstance(value[0], float)
        ):
            assert one[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name
        else:
            assert one[name] == value, name


def test_shared_nodes_and_a_replay_cost_the_same_however_late_the_jobs_are() -> None:
    jobs = at_zero(tasks=True)
    for group, policy in (CLUSTERS["nodes that sleep"], CLUSTERS["components"]):
        cluster = cluster_of(group)
        same(told(later(jobs, LATE_S), cluster, policy), told(jobs, cluster, policy))
    for one in (jobs, at_zero()):
        for group, _ in CLUSTERS.values():
            cluster = cluster_of({**group, "count": 40, "racks": None})
            here, there = (
                replay(started(later(one, by_s)), cluster).result.energy for by_s in (0, LATE_S)
            )
            assert here is not None
            assert there is not None
            assert there.total_j == pytest.approx(here.total_j, rel=1e-9)
            assert there.begin_s == LATE_S
            assert there.now_s == here.now_s + LATE_S


def test_an_event_at_a_date_is_under_way_if_it_began_before_the_first_submission() -> None:
    def on(by_s: float, **more: Any) -> Cluster:
        group, _ = CLUSTERS["nodes that sleep"]
        maintenance = [
            Reservation(start=by_s - 500, end=by_s + 900, nodes="0-3"),
            Reservation(start=by_s + 3_000, end=by_s + 5_000, nodes="2-7"),
            Reservation(start=by_s - 900, end=by_s - 10, nodes="0-7"),
        ]
        outages = [
            {"node": 5, "start": by_s - 700, "duration": 2_000},
            {"node": 6, "start": by_s - 700, "duration": 100},
            {"node": 7, "start": by_s + 4_000, "duration": 2_000},
        ]
        failures = {"outages": outages, **more}
        return cluster_of(group, failures=failures).model_copy(
            update={"reservations": tuple(maintenance)}
        )

    jobs = later(at_zero(), 1_000)
    for policy in ("fcfs+easy~psus:5m", "fcfs+easy~psas-ipm:5m"):
        for more in ({}, {"mtbf": 200_000, "mttr": 500}):
            for late_s in (LATE_S, float(EPOCH_S) - 1_000):
                moved = told(later(jobs, late_s), on(1_000 + late_s, **more), policy)
                same(moved, told(jobs, on(1_000, **more), policy))


TAILS: dict[str, dict[str, Any]] = {
    "a job that is rejected": {"nodes": 99},
    "a job that is cancelled while it waits": {"nodes": 2, "cancel_s": 5 * DAY_S},
    "a job whose dependency fails": {"nodes": 1, "depends": "afterok:1"},
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    ("name", "log"), [*((name, True) for name in CLUSTERS), ("nodes that sleep", False)]
)
def test_a_job_that_never_runs_after_the_last_end_costs_no_energy(
    name: str, log: bool, tail: str
) -> None:
    group, policy = CLUSTERS[name]
    asked = TAILS[tail]
    # Job 1 fails, so that a job that waits for its success never runs; job 3 is held back.
    rows = {
        "job_id": [1, 2, 3],
        "submit_s": [100.0, 150.0, 4.0 * DAY_S],
        "runtime_s": [2_000.0, 3_000.0, 10.0],
        "walltime_s": [1_000.0, 4_000.0, 10.0],
        "nodes": [3, 4, asked["nodes"]],
        "cancel_s": [None, None, asked.get("cancel_s")],
        "depends": [None, None, asked.get("depends")],
    }
    cluster = cluster_of(group)
    if "cancel_s" in asked:
        away = Reservation(start=3.5 * DAY_S, end=9 * DAY_S)
        cluster = cluster.model_copy(update={"reservations": (away,)})
    whole = Workload.from_frame(pl.DataFrame(rows))
    alone = Workload.from_frame(pl.DataFrame(rows).head(2))
    other = simulate(alone, cluster, policy, log=log)
    result = simulate(whole, cluster, policy, log=log)
    assert result.summary()["interval_end_s"] == other.summary()["interval_end_s"]
    for energy, of in ((result.energy, result), (other.energy, other)):
        assert energy is not None
        assert energy.now_s == of.summary()["interval_end_s"] == 3_150
    one, two = result.energy, other.energy
    assert (one.spent_ms == two.spent_ms).all()
    assert one.total_j == two.total_j
    if log:
        assert one.power_over_time()[0][-1] == 3_150


LATER_EVENTS: dict[str, dict[str, Any]] = {
    "nothing else": {},
    "maintenance": {"reservations": [{"start": 30 * DAY_S, "end": 31 * DAY_S}]},
    "failures": {"failures": {"mtbf": 20 * DAY_S, "mttr": 500}},
}
"""What happens on a cluster on which a job waits forever."""
ALONE = {"limits": [{"user": "alone", "nodes": 1}]}


def waiting(by_s: float = 0.0) -> Workload:
    """Two jobs that run, and one that a limit keeps pending forever."""
    return Workload.build(
        submit_s=[by_s, by_s + 50.0, by_s + 60.0], runtime_s=[100.0, 300.0, 10.0], nodes=[2, 4, 2],
        user=["one", "one", "alone"], start_epoch_s=EPOCH_S,
    )  # fmt: skip


@pytest.mark.parametrize("more", LATER_EVENTS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_job_that_waits_forever_costs_no_energy_after_the_last_end(
    name: str, more: str, tmp_path: Path
) -> None:
    group, policy = CLUSTERS[name]
    jobs, cluster = waiting(), cluster_of(group, **ALONE, **LATER_EVENTS[more])
    simulation = Simulation(jobs, cluster, policy, log=True)
    summary = simulation.run().summary()
    assert summary["jobs_waiting"] == 1
    assert summary["energy_end_s"] == summary["interval_end_s"]
    alone = simulate(jobs[:2], cluster, policy, log=True).summary()
    assert summary["total_energy_j"] == alone["total_energy_j"]
    simulation.save(tmp_path / "state.npz")
    saved = Simulation.load(tmp_path / "state.npz").result().summary()
    assert saved["total_energy_j"] == simulation.fork().result().summary()["total_energy_j"]
    assert saved["total_energy_j"] == summary["total_energy_j"]
    streamed = simulate_stream(jobs, cluster, policy, log=True, out=tmp_path / "run", batch=1)
    for key in ("total_energy_j", "energy_end_s"):
        assert streamed.summary()[key] == pytest.approx(summary[key], rel=1e-12)


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_window_ends_as_asked_if_a_job_waits_forever(name: str) -> None:
    group, policy = CLUSTERS[name]
    found = []
    for jobs in (waiting(), waiting()[:2]):
        part = window(jobs, 0, 5_000)
        cluster = cluster_of(group, **ALONE)
        simulation = Simulation(part.workload, cluster, policy, begin_s=part.not_before_s, log=True)
        found.append(part.summary(part.run(simulation))["window_energy_j"])
    # Nodes are not switched off after the last end, but may be while a job waits.
    assert found[0] == found[1] if "~" not in policy else found[0] > 5_000 * 8 * 9


def test_a_continued_simulation_covers_the_time_up_to_now() -> None:
    group, policy = CLUSTERS["nodes that sleep"]
    energies = []
    for late_s in (0.0, LATE_S):
        simulation = Simulation(later(at_zero(), late_s), cluster_of(group), policy)
        assert simulation.result().energy.total_j == 0.0
        simulation.advance(late_s + 7_000)
        energy = simulation.result().energy
        assert (energy.begin_s, energy.now_s) == (late_s, late_s + 7_000)
        energies.append(energy.total_j)
    assert energies[0] == energies[1] > 0


def test_a_saved_simulation_continues_with_the_same_energy(tmp_path: Path) -> None:
    group, policy = CLUSTERS["nodes that sleep"]
    failing = cluster_of(group, failures={"mtbf": 100_000, "mttr": 500})
    jobs = later(at_zero(), LATE_S)
    simulation = Simulation(jobs, failing, policy)
    simulation.advance(LATE_S + 7_000)
    simulation.save(tmp_path / "state.npz")
    resumed = Simulation.load(tmp_path / "state.npz").run()
    whole = simulate(jobs, failing, policy)
    assert resumed.energy.figures() == whole.energy.figures()


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_window_costs_the_same_wherever_time_zero_is(name: str) -> None:
    group, policy = CLUSTERS[name]
    # The last window begins, and ends, when no job runs or waits.
    for begin_s, end_s in ((5_000.0, 9_000.0), (0.0, 60_000.0), (-800.0, 90_000.0)):
        found = []
        for by_s in (1000.0, 1000.0 + LATE_S):
            jobs = started(later(at_zero(), by_s))
            part = window(jobs, by_s + begin_s, by_s + end_s)
            simulation = Simulation(
                part.workload, cluster_of(group), policy, begin_s=part.not_before_s, log=True
            )
            result = part.run(simulation)
            summary = part.summary(result, {"price": price_of(jobs)})
            assert summary["interval_begin_s"] == summary["window_begin_s"] == by_s + begin_s
            at_most = sum(g.count * 400 for g in cluster_of(group).nodes) + 500
            at_least = 8 * 9
            assert at_least < summary["window_mean_power_w"] <= at_most
            found.append([summary["window_energy_j"], summary["window_cost_eur"]])
            again = replay(
                part.workload, cluster_of({**group, "count": 40, "racks": None}),
                from_s=part.begin_s, until_s=part.end_s,
            ).result  # fmt: skip
            assert again.energy.begin_s <= part.begin_s
            assert again.energy.now_s == part.end_s
        assert found[1] == pytest.approx(found[0], rel=1e-9)


@pytest.mark.parametrize("tasks", [False, True])
def test_a_stream_of_late_jobs_costs_what_the_whole_run_does(tasks: bool, tmp_path: Path) -> None:
    group, policy = CLUSTERS["nodes that sleep"]
    jobs = later(at_zero(tasks=tasks), LATE_S)
    write_workload(jobs, tmp_path / "jobs.parquet")
    streamed = simulate_stream(
        tmp_path / "jobs.parquet", cluster_of(group), policy, batch=7, out=tmp_path / "out"
    ).summary()
    whole = simulate(jobs, cluster_of(group), policy).summary()
    for name in (*TIMES, "makespan_s", "total_energy_j", "wasted_energy_j", "sleeping_node_s"):
        assert streamed[name] == pytest.approx(whole[name], rel=1e-9), name


def test_a_facility_of_late_jobs_costs_the_same() -> None:
    group, _ = CLUSTERS["nodes that sleep"]
    facility = Facility.model_validate(
        {
            "clusters": [
                {
                    "name": name,
                    "policy": "fcfs+easy~psus:5m",
                    "machine": {"nodes": [{**group, "count": count}]},
                }
                for name, count in (("a", 8), ("b", 6))
            ]
        }
    )
    found = []
    for late_s in (0.0, LATE_S):
        result = simulate_facility(facility, later(at_zero(), late_s), "random", seed=3)
        spans = [(one.energy.begin_s, one.energy.now_s) for one in result.clusters.values()]
        assert set(spans) == {(late_s, float(result.jobs["end_s"].max()))}
        found.append(result.summary()["energy_j"])
    assert found[0] == found[1]


def test_windows_of_a_sweep_draw_no_more_than_the_cluster_can() -> None:
    group, policy = CLUSTERS["no power policy"]
    table = sweep(
        given={"late": longer(at_zero(), LATE_S), "machine": cluster_of(group)},
        workloads=["late"],
        clusters=["machine"],
        windows=[{"begin": "0d", "end": "1d"}, {"begin": "19d", "end": "30d"}],
        policies=[policy],
    ).table
    for row in table.iter_rows(named=True):
        assert row["total_energy_j"] <= 8 * 300 * row["makespan_s"]
    alone = simulate(at_zero(), cluster_of(group), policy).summary()
    assert table["total_energy_j"].to_list()[1] == alone["total_energy_j"]


def test_a_runs_folder_says_the_interval_in_its_summary_and_its_manifest(tmp_path: Path) -> None:
    group, _ = CLUSTERS["nodes that sleep"]
    (tmp_path / "cluster.yaml").write_text(json.dumps({"nodes": [group]}))
    write_workload(later(at_zero(), LATE_S), tmp_path / "jobs.parquet")
    out = tmp_path / "out"
    given = ["--cluster", str(tmp_path / "cluster.yaml"), "--out", str(out), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(tmp_path / "jobs.parquet"), *given])
    assert not ended.value.code
    summary, manifest = (
        json.loads((out / f"{n}.json").read_text()) for n in ("summary", "manifest")
    )
    span = summary["interval_begin_s"], summary["interval_end_s"]
    assert span == (manifest["interval_begin_s"], manifest["interval_end_s"])
    assert span[0] == LATE_S
    assert span[1] - span[0] == summary["makespan_s"]
    power = pl.read_parquet(out / "power.parquet")
    assert (power["time_s"][0], power["time_s"][-1]) == span


@given(
    late_s=st.integers(0, 10**9),
    gap_s=st.integers(0, 10**6),
    name=st.sampled_from(["no power policy", "nodes that sleep"]),
    jobs=st.lists(
        st.tuples(st.integers(0, 5_000), st.integers(1, 3_000), st.integers(1, 12)),
        min_size=1,
        max_size=8,
    ),
)
def test_energy_is_never_more_than_all_nodes_can_draw_in_the_interval(
    late_s: int, gap_s: int, name: str, jobs: list[tuple[int, int, int]]
) -> None:
    group, policy = CLUSTERS[name]
    cluster = cluster_of(group)
    rows = sorted(jobs)
    # The last job comes after a gap, and may be too wide to run.
    submit = [late_s + one[0] for one in rows[:-1]] + [late_s + rows[-1][0] + gap_s]
    workload = Workload.build(
        submit_s=submit, runtime_s=[one[1] for one in rows], nodes=[one[2] for one in rows]
    )
    result = simulate(workload, cluster, policy)
    summary = result.summary()
    if summary["makespan_s"] is not None:
        assert summary["energy_begin_s"] == summary["interval_begin_s"] == submit[0]
        assert summary["energy_end_s"] == summary["interval_end_s"]
        assert summary["total_energy_j"] <= 8 * 300 * summary["makespan_s"] * (1 + 1e-12)
        assert sum(result.energy.state_s().values()) == pytest.approx(8 * summary["makespan_s"])
