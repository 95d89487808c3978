"""Jobs that are suspended for others: their flows stop, and continue where they were."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_cluster
from hpctwin.contention.network import Network
from hpctwin.contention.phases import PhaseBuilder
from hpctwin.model import Category
from hpctwin.network.profiles import Delay, HomogeneousTask, Profile, Sequence, SmpiTrace
from tests.contention.test_energy import NAPS, POWERED, energies
from tests.contention.test_network import SHARINGS, cases, profile_of
from tests.contention.test_saved import CALLS, KINDS, POLICIES, TREE, times
from tests.contention.test_simulation import PLATFORM, send


def preempting(cluster: Cluster) -> Cluster:
    tiers = {
        "partitions": [{"name": "low", "default": True}, {"name": "high"}],
        "preemption": {"mode": "suspend", "partitions": {"high": {"tier": 2}}},
    }
    made = Cluster.model_validate({**cluster.model_dump(), **tiers})
    return made if cluster.platform is None else made.connected(cluster.platform)


def jobs(*given: tuple[float, int, float, Profile | None, str]) -> Workload:
    """Jobs by submission, nodes, walltime, profile and partition."""
    submit, nodes, walltime, profiles, partition = zip(*given, strict=True)
    return Workload.build(
        submit_s=submit, nodes=nodes, walltime_s=walltime, runtime_s=walltime,
        profiles=profiles, partition=Category.of(list(partition)),
    )  # fmt: skip


def computing(seconds: float) -> HomogeneousTask:
    return HomogeneousTask(cpu=seconds * 1e9, com=0.0)


@pytest.mark.parametrize(
    "long",
    [
        computing(4.0),
        Sequence((computing(1.0), Delay(2.0), computing(1.0))),
        Sequence((computing(1.25), computing(2.75))),
    ],
)
@pytest.mark.parametrize("urgent", [computing(1.0), None])
@pytest.mark.parametrize("cleanup", [0.0, 1.0])
def test_a_suspended_job_continues(long: Profile, urgent: Profile | None, cleanup: float) -> None:
    workload = jobs((0.0, 8, 60.0, long, "low"), (1.5, 8, 1.0, urgent, "high"))
    cluster = preempting(TREE.model_copy(update={"cleanup": cleanup}))
    table = Simulation(workload, cluster, sharing="fair").run().jobs
    assert times(table) == [(1, 0.0, 5.0 + cleanup, "completed"), (2, 1.5, 2.5, "completed")]


def test_recorded_calls_continue_within_a_message() -> None:
    trace = SmpiTrace(ranks=(CALLS,) * 8)
    alone = times(Simulation(jobs((0.0, 8, 60.0, trace, "low")), TREE, sharing="fair").run().jobs)[
        0
    ][2]
    for moment in np.arange(0.05, alone, 0.05).round(3).tolist():
        workload = jobs((0.0, 8, 60.0, trace, "low"), (moment, 8, 9.0, computing(1.0), "high"))
        table = Simulation(workload, preempting(TREE), sharing="fair").run().jobs
        assert times(table)[0][2] == pytest.approx(alone + 1.0, abs=0.0011)


def test_walltimes_do_not_count_suspensions() -> None:
    workload = jobs((0.0, 8, 3.0, computing(4.0), "low"), (1.5, 8, 9.0, computing(5.0), "high"))
    table = Simulation(workload, preempting(TREE), sharing="fair").run().jobs
    assert times(table)[0] == (1, 0.0, 8.0, "walltime")


def test_flows_of_suspended_jobs_leave_their_links(tmp_path: Path) -> None:
    """Four jobs share a backbone of 2 GB/s; one of them is suspended for a second."""
    path = tmp_path / "eight.xml"
    path.write_text(PLATFORM)
    low = [(0.0, 2, 60.0, send(2e9), "low")] * 4
    workload = jobs(*low, (1.0, 2, 9.0, computing(1.0), "high"))
    found = Simulation(workload, preempting(read_cluster(path)), sharing="fair").run().jobs
    # 1.5 GB are left at 1 s. Three jobs then share the backbone for a second, and four later.
    assert sorted(found["end_s"].to_list()) == [2.0, 3.667, 3.667, 3.667, 4.334]


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=40, deadline=None)
@given(cases(), st.lists(st.tuples(st.floats(0.0, 4.0), st.integers(0, 9)), max_size=6))
def test_a_pause_of_all_jobs_moves_all_later_ends(sharing: Any, case: Any, pauses: Any) -> None:
    machine, starts = case
    ends: list[dict[Any, float]] = []
    for length in (0.0, 2.0):
        builder, network, late = PhaseBuilder(machine, sharing), Network(machine, sharing), 0.0
        found, last = [], 0.0
        for number, (_, where, phases) in enumerate(starts):
            network.start(number, 0.0, builder.build(profile_of(phases, len(where)), where))
        for pause, _ in pauses:
            last += pause
            found += [(one.job, one.time_s - late) for one in network.advance(last + late)]
            if length:
                for job in network.running:
                    network.pause(job, last + late)
                assert not network.advance(last + late + length)
                assert not network.used().any()
                late += length
                for job in network.running:
                    network.resume(job, last + late)
        found += [(one.job, one.time_s - late) for one in network.advance(np.inf)]
        ends.append(dict(found))
    assert ends[0].keys() == ends[1].keys()
    for job, end_s in ends[0].items():
        assert ends[1][job] == pytest.approx(end_s, rel=1e-9, abs=1e-9)


some_jobs = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.3]), st.integers(0, len(KINDS) - 1),
        st.sampled_from([0.7, 4.0, 60.0]), st.sampled_from(["low", "low", "high"]),
    ), min_size=1, max_size=12,
)  # fmt: skip


def with_naps(cluster: Cluster) -> Cluster:
    content = cluster.model_dump()
    content["nodes"][0]["sleep"] = [NAPS]
    return Cluster.model_validate(content)


@pytest.mark.parametrize("power", ["", "~psus:0", "~psas-ipm:1s"])
@settings(max_examples=30, deadline=None)
@given(some_jobs, st.sampled_from(POLICIES[:2]), st.lists(st.floats(0.0, 3.0), max_size=4))
def test_interrupted_runs_are_the_same_and_energies_add_up(
    power: str, some: Any, policy: str, pauses: list[float]
) -> None:
    pause, kinds, walltime, partition = zip(*some, strict=True)
    rows = zip(np.cumsum(pause), kinds, walltime, partition, strict=True)
    workload = jobs(*((at, KINDS[k][0], wall, KINDS[k][1], name) for at, k, wall, name in rows))
    cluster, policy = preempting(with_naps(POWERED) if power else POWERED), policy + power
    whole = Simulation(workload, cluster, policy, sharing="fair", log=True).run()
    one = Simulation(workload, cluster, policy, sharing="fair")
    with tempfile.TemporaryDirectory() as folder:
        for length in pauses:
            one.advance(one.now_s + length)
            assert times(one.fork().run().jobs) == times(whole.jobs)
            one.result()
            one.save(f"{folder}/saved")
            one = Simulation.load(f"{folder}/saved")
    found = one.run()
    assert times(found.jobs) == times(whole.jobs)
    assert found.energy is not None
    assert whole.energy is not None
    assert energies(found.energy.jobs) == energies(whole.energy.jobs)
    computed = whole.energy.node_j[1].sum()
    assert whole.energy.jobs["energy_j"].sum() == pytest.approx(computed, abs=1e-6)
    drawn_s, watts = whole.energy.power_over_time()
    assert float(np.diff(drawn_s) @ watts[:-1]) == pytest.approx(whole.energy.total_j)


def test_nodes_of_suspended_jobs_stay_on() -> None:
    # Seven nodes are idle from 1.5 to 4.5. The last job wakes two nodes, from 9 to 10.25.
    low = 0.0, 8, 60.0, computing(4.0), "low"
    high, last = (1.5, 1, 9.0, computing(3.0), "high"), (9.0, 2, 9.0, computing(1.0), "low")
    cluster = preempting(with_naps(POWERED))
    result = Simulation(jobs(low, high, last), cluster, "fcfs+easy~psus:0.5s", sharing="fair").run()
    assert times(result.jobs) == [
        (1, 0.0, 7.0, "completed"), (2, 1.5, 4.5, "completed"), (3, 10.25, 11.25, "completed"),
    ]  # fmt: skip
    assert result.energy is not None
    # One of the two cores of each node computes: 150 W.
    assert energies(result.energy.jobs) == pytest.approx([150 * 8 * 4, 150 * 3, 150 * 2])


def test_a_job_begins_on_nodes_that_wake_before_it_is_suspended() -> None:
    # The nodes sleep from 1.5 on, and are on from 5.25; high suspends low then, not at 4.5.
    first = 0.0, 8, 9.0, computing(1.0), "low"
    low, high = (4.0, 8, 60.0, computing(2.0), "low"), (4.5, 8, 9.0, computing(1.0), "high")
    cluster = preempting(with_naps(POWERED))
    policy = "fcfs+easy~psus:0"
    found = Simulation(jobs(first, low, high), cluster, policy, sharing="fair").run().jobs
    assert times(found) == [
        (1, 0.0, 1.0, "completed"), (2, 5.25, 8.25, "completed"), (3, 5.25, 6.25, "completed"),
    ]  # fmt: skip


def test_a_suspension_is_no_contention() -> None:
    workload = jobs((0.0, 8, 60.0, computing(4.0), "low"), (1.5, 8, 9.0, computing(2.0), "high"))
    table = Simulation(workload, preempting(TREE), sharing="fair").run().jobs
    assert table["contention_slowdown"].to_list() == [1.0, 1.0]
