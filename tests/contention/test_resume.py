"""Jobs that start again and continue after the last part that they finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Simulation, Workload, simulate_stream
from hpctwin.errors import TraceError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model import Category, Cluster, Failures, Outage
from hpctwin.network.profiles import Delay, HomogeneousTask, Profile, Sequence, SmpiTrace
from tests.contention.test_saved import CALLS, TREE, times

SECOND = HomogeneousTask(cpu=1e9, com=0.0)


def interrupted(*down: tuple[float, float]) -> Any:
    """The tree, whose first node fails at these times for these durations."""
    outages = tuple(Outage(node=0, start=start, duration=length) for start, length in down)
    return TREE.model_copy(update={"failures": Failures(outages=outages)})


def job(profile: Profile, *, nodes: int = 8) -> Workload:
    return Workload.build(
        submit_s=[0], nodes=[nodes], walltime_s=[600], runtime_s=[600], profiles=[profile]
    )


def end_s(profile: Profile, *down: tuple[float, float]) -> float:
    table = Simulation(job(profile), interrupted(*down), sharing="fair").run().jobs
    return float(table["end_s"][0])


@pytest.mark.parametrize(("resumes", "end"), [(False, 2.75 + 4.0), (True, 2.75 + 2.0)])
def test_a_job_continues_after_its_last_part(resumes: bool, end: float) -> None:
    assert end_s(Sequence((SECOND,) * 4, resumes=resumes), (2.5, 0.25)) == end


def test_it_continues_in_the_middle_of_repetitions() -> None:
    inner = Sequence((SECOND, Delay(1.0)), repeat=3)
    profile = Sequence((inner, SECOND), repeat=2, resumes=True)
    # 14 s of work, of which the second delay of the first round is lost by half, and later a
    # quarter of the first delay of the second round
    assert end_s(profile) == 14.0
    assert end_s(profile, (3.5, 1.0)) == 14.0 + 1.0 + 0.5
    assert end_s(profile, (3.5, 1.0), (9.75, 1.0)) == 14.0 + 2.0 + 0.5 + 0.25


def test_a_part_that_ends_at_the_failure_is_finished() -> None:
    assert end_s(Sequence((SECOND,) * 3, resumes=True), (2.0, 0.5)) == 3.5


def test_recorded_calls_are_one_part() -> None:
    trace = SmpiTrace(ranks=(CALLS,) * 8)
    trace_s = end_s(trace)
    profile = Sequence((SECOND, trace, SECOND), resumes=True)
    assert end_s(profile, (1.2, 0.1)) == pytest.approx(1.3 + trace_s + 1.0, abs=0.0021)


def test_a_job_that_others_preempt_continues() -> None:
    tiers = {"partitions": {"high": {"tier": 2}}}
    cluster = Cluster.model_validate(
        {
            **TREE.model_dump(),
            "partitions": [{"name": "low", "default": True}, {"name": "high"}],
            "preemption": tiers,
        }
    )
    profile = Sequence((SECOND,) * 4, resumes=True)
    workload = Workload.build(
        submit_s=[0, 2.5], nodes=[8, 8], walltime_s=[60, 60], runtime_s=[60, 60],
        profiles=[profile, SECOND], partition=Category.of(["low", "high"]),
    )  # fmt: skip
    table = Simulation(workload, cluster, sharing="fair").run().jobs.sort("job_id")
    assert table["end_s"].to_list() == [5.5, 3.5]
    assert table["preemptions"].to_list() == [1, 0]


def test_parts_of_parts_do_not_decide() -> None:
    inner = Sequence((SECOND,) * 2, resumes=True)
    assert end_s(Sequence((inner, inner)), (2.5, 0.5)) == 7.0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.05, 3.0), min_size=1, max_size=4), st.integers(1, 3),
    st.lists(st.tuples(st.floats(0.1, 4.0), st.floats(0.1, 1.0)), max_size=4),
)  # fmt: skip
def test_lost_is_only_the_unfinished_part(
    lengths: list[float], repeat: int, gaps: list[tuple[float, float]]
) -> None:
    """Delays, whose lengths are whole milliseconds, against a plain walk over the parts."""
    lengths = [round(one, 3) for one in lengths]
    # A task without length keeps the job on the network.
    parts = tuple(Delay(one) for one in lengths)
    profile = Sequence((*parts, HomogeneousTask(cpu=0.0, com=0.0)), repeat, resumes=True)
    down, now = [], 0.0
    for gap, length in gaps:
        down.append((round(now + gap, 3), round(length, 3)))
        now = sum(down[-1])
    left, now = lengths * repeat, 0.0
    for start, length in [*down, (np.inf, 0.0)]:
        while left and round(now + left[0], 6) <= start:
            now = round(now + left.pop(0), 6)
        if not left:
            break
        now = round(start + length, 6)
    assert end_s(profile, *down) == pytest.approx(now, abs=0.0021)


@pytest.mark.parametrize("batch", [1, 2])
def test_positions_are_saved_and_streamed(batch: int, tmp_path: Path) -> None:
    cluster = interrupted((2.5, 3.0), (7.2, 1.0))
    profile = Sequence((SECOND,) * 5, repeat=2, resumes=True)
    workload = Workload.build(
        submit_s=[0, 1, 4, 4.5], nodes=[8, 2, 8, 1], walltime_s=[60] * 4, runtime_s=[60] * 4,
        profiles=[profile, SECOND, profile, SECOND],
    )  # fmt: skip
    whole = times(Simulation(workload, cluster, sharing="fair").run().jobs)
    for stop in (2.0, 3.0, 5.0, 7.5):
        one = Simulation(workload, cluster, sharing="fair")
        one.advance(stop)
        one.save(tmp_path / "saved")
        assert times(Simulation.load(tmp_path / "saved").run().jobs) == whole
        assert times(one.fork().run().jobs) == whole
    streamed = simulate_stream(workload, cluster, sharing="fair", out=tmp_path / "o", batch=batch)
    assert times(streamed.jobs.collect()) == whole


def test_the_file_says_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    write_workload(job(Sequence((SECOND, SECOND), 3, resumes=True)), path, format="batsim")
    (profile,) = read_workload(path).profiles or ()
    assert isinstance(profile, Sequence)
    assert profile.resumes
    path.write_text(path.read_text().replace('"resumes": true', '"resumes": "yes"'))
    with pytest.raises(TraceError, match=r"resumes.*'yes', expected true or false"):
        read_workload(path)


def test_slowdown_is_that_of_the_parts_still_to_do() -> None:
    simulation = Simulation(
        job(Sequence((SECOND,) * 4, resumes=True)), interrupted((2.5, 0.25)), sharing="fair"
    )
    assert simulation.run().jobs["contention_slowdown"].to_list() == [1.0]
