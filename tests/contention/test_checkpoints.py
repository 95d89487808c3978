"""Jobs on the network that write checkpoints at intervals, and continue from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, simulate, simulate_stream
from hpctwin.network.profiles import Delay, HomogeneousTask, Profile, Sequence, SmpiTrace
from tests.contention.test_resume import SECOND, interrupted
from tests.contention.test_saved import CALLS, TREE, times


def job(profile: Profile, every_s: float) -> Workload:
    return Workload.build(
        submit_s=[0], nodes=[8], walltime_s=[600], runtime_s=[600], profiles=[profile],
        checkpoint_s=[every_s],
    )  # fmt: skip


def end_s(profile: Profile, every_s: float, *down: tuple[float, float]) -> float:
    table = simulate(job(profile, every_s), interrupted(*down), sharing="fair").jobs
    return float(table["end_s"][0])


LONG = HomogeneousTask(cpu=10e9, com=0.0)


@pytest.mark.parametrize(
    ("every_s", "end"), [(0, 14.5), (2, 10.5), (3, 11.5), (4, 10.5), (5, 14.5)]
)
def test_a_job_continues_from_its_last_checkpoint(every_s: float, end: float) -> None:
    # It fails at 4 s. A checkpoint of this time counts.
    assert end_s(LONG, every_s, (4.0, 0.5)) == end


def test_intervals_begin_when_the_job_starts_again() -> None:
    # 3 s of 10 s are kept at 4 s. At 10.5 s it has run for 6 s more, all of which is kept.
    assert end_s(LONG, 3, (4.0, 0.5), (10.5, 1.5)) == 13.0


def test_parts_and_the_fraction_of_the_present_one_are_kept() -> None:
    profile = Sequence((SECOND, Delay(1.0)), repeat=3)
    assert end_s(profile, 2.5, (2.75, 0.25)) == 6.5
    assert end_s(profile, 1.5, (1.75, 0.25)) == 6.5


def test_the_later_of_a_checkpoint_and_the_last_finished_part_counts() -> None:
    profile = Sequence((SECOND,) * 4, resumes=True)
    assert end_s(profile, 1.5, (1.75, 0.25)) == 4.5
    assert end_s(profile, 1.5, (2.25, 0.25)) == 4.5


def test_a_recorded_trace_is_one_part() -> None:
    trace = SmpiTrace(ranks=(CALLS,) * 8)
    trace_s = end_s(trace, 0)
    profile = Sequence((SECOND, trace, SECOND))
    assert end_s(profile, 1.1, (1.2, 0.1)) == pytest.approx(1.3 + trace_s + 1.0, abs=0.0021)


def test_traffic_that_is_left_goes_on() -> None:
    send = HomogeneousTask(cpu=0.0, com=1e8)
    alone = end_s(send, 0)
    assert end_s(send, 0.2, (0.45, 1.0)) == pytest.approx(alone + 1.05, abs=0.0021)


@pytest.mark.parametrize("cleanup", [0, 1])
def test_a_preempted_job_continues_and_says_what_it_kept(cleanup: float, tmp_path: Path) -> None:
    cluster = Cluster.model_validate(
        {
            **TREE.model_dump(),
            "partitions": [{"name": "low", "default": True}, {"name": "high"}],
            "preemption": {"checkpoint": 2, "partitions": {"high": {"tier": 2}}},
            "cleanup": cleanup,
        }
    )
    workload = Workload.build(
        submit_s=[0, 3], nodes=[8, 8], walltime_s=[60, 60], runtime_s=[60, 60],
        profiles=[LONG, SECOND], partition=["low", "high"],
    )  # fmt: skip
    simulation = Simulation(workload, cluster, sharing="fair")
    for stop in (3.0, 3.5, 4.0, 5.5):
        simulation.advance(stop)
        lost = simulation.fork().result().lost
        assert lost.select("start_s", "end_s", "kept_s").rows() == [(0.0, 3.0, 2.0)]
        simulation.save(tmp_path / "saved")
        simulation = Simulation.load(tmp_path / "saved")
    result = simulation.run()
    assert result.jobs.sort("job_id")["end_s"].to_list() == [12.0 + 2 * cleanup, 4.0 + cleanup]
    assert result.lost.select("start_s", "end_s", "kept_s").rows() == [(0.0, 3.0, 2.0)]


def test_intervals_do_not_count_suspensions() -> None:
    cluster = Cluster.model_validate(
        {
            **interrupted((7.5, 0.5)).model_dump(),
            "partitions": [{"name": "low", "default": True}, {"name": "high"}],
            "preemption": {
                "mode": "suspend", "checkpoint": 2, "partitions": {"high": {"tier": 2}},
            },
        }
    )  # fmt: skip
    workload = Workload.build(
        submit_s=[0, 3], nodes=[8, 8], walltime_s=[60, 60], runtime_s=[60, 60],
        profiles=[LONG, SECOND], partition=["low", "high"],
    )  # fmt: skip
    # It is suspended from 3 to 4, has run for 6.5 s when a node fails, and starts again at 8.
    result = simulate(workload, cluster, sharing="fair")
    assert result.jobs.sort("job_id")["end_s"].to_list() == [12.0, 4.0]
    assert result.lost.select("start_s", "end_s", "kept_s").rows() == [(0.0, 7.5, 6.0)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6000), st.sampled_from([0, 300, 1000, 1700])), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(100, 4000), st.integers(100, 1000)), max_size=4),
)  # fmt: skip
def test_jobs_that_only_wait_end_as_jobs_of_fixed_length(
    some: list[tuple[int, int]], gaps: list[tuple[int, int]]
) -> None:
    down, now_ms = [], 0
    for gap_ms, length_ms in gaps:
        down.append(((now_ms + gap_ms) / 1000, length_ms / 1000))
        now_ms += gap_ms + length_ms
    lengths = [length_ms / 1000 for length_ms, _ in some]
    # A task without length keeps the job on the network.
    nothing = HomogeneousTask(cpu=0.0, com=0.0)
    common: Any = {
        "submit_s": [0] * len(some), "nodes": [8] * len(some), "walltime_s": [60] * len(some),
        "runtime_s": lengths, "checkpoint_s": [every_ms / 1000 for _, every_ms in some],
    }  # fmt: skip
    profiles = [Sequence((Delay(length / 2), Delay(length / 2), nothing)) for length in lengths]
    plain = simulate(Workload.build(**common), interrupted(*down))
    shared = simulate(
        Workload.build(**common, profiles=profiles), interrupted(*down), sharing="fair"
    )
    columns = ["job_id", "start_s", "state", "requeues"]
    assert shared.jobs.select(columns).equals(plain.jobs.select(columns))
    assert shared.lost.equals(plain.lost)
    ends = zip(shared.jobs["end_s"], plain.jobs["end_s"], strict=True)
    assert all(one == pytest.approx(other, abs=0.0021) for one, other in ends)


@pytest.mark.parametrize("batch", [1, 2])
def test_checkpoints_are_saved_and_streamed(batch: int, tmp_path: Path) -> None:
    cluster = interrupted((2.5, 3.0), (7.2, 1.0))
    profile = Sequence((SECOND, HomogeneousTask(cpu=1e9, com=1e8)), repeat=4)
    workload = Workload.build(
        submit_s=[0, 1, 4, 4.5], nodes=[8, 2, 8, 1], walltime_s=[60] * 4, runtime_s=[60] * 4,
        profiles=[profile, LONG, profile, SECOND], checkpoint_s=[0.7, 1, 0.7, 0],
    )  # fmt: skip
    whole = times(Simulation(workload, cluster, sharing="fair").run().jobs)
    for stop in (1.5, 2.0, 3.0, 6.3, 7.5):
        one = Simulation(workload, cluster, sharing="fair")
        one.advance(stop)
        one.save(tmp_path / "saved")
        assert times(one.fork().run().jobs) == whole
        assert times(Simulation.load(tmp_path / "saved").run().jobs) == whole
    streamed = simulate_stream(workload, cluster, sharing="fair", out=tmp_path / "o", batch=batch)
    assert times(streamed.jobs.collect()) == whole
