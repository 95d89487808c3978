"""Generated users keep an emulated cluster busy without end, and its queue in balance."""

from __future__ import annotations

from itertools import islice

import pytest

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster
from hpctwin.rms.emulated.agenda import MAX_PENDING, endless_arrivals
from hpctwin.twin.emulated import emulated_cluster

DAY_S = 86_400.0


def cluster(nodes: int = 64, **about: object) -> Cluster:
    return Cluster.checked({"name": "c", "nodes": [{"name": "n", "count": nodes}], **about}, "c")


@pytest.mark.parametrize("load", [0.5, 0.92])
def test_the_work_of_any_long_time_is_the_load(load: float) -> None:
    machine = cluster()
    jobs = list(islice(endless_arrivals(machine, load=load, seed=3, start_s=1e6), 20_000))
    assert jobs[0].spec.submit_s == 1e6
    for half in (jobs[100:10_000], jobs[10_000:]):
        work = sum(job.spec.nodes * job.runtime_s for job in half)
        span_s = half[-1].spec.submit_s - half[0].spec.submit_s
        assert work / (machine.node_count * span_s) == pytest.approx(load, rel=0.05)


def test_jobs_are_the_same_for_a_seed_and_ids_are_distinct() -> None:
    first, again, other = (
        list(islice(endless_arrivals(cluster(), seed=seed), 500)) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len({job.spec.id for job in first}) == 500
    assert all(job.runtime_s <= job.spec.walltime_s for job in first)
    assert len({job.spec.user for job in first}) > 5


def test_the_queue_stays_in_balance_and_the_cluster_full() -> None:
    emulated = emulated_cluster(cluster(32), endless_arrivals(cluster(32), load=0.9))
    pending = []
    for hour in range(24 * 6):
        emulated.advance(hour * 3600.0)
        pending.append(sum(job.record.start_s is None for job in emulated.jobs.values()))
    assert pending[0] > 0
    assert max(pending) < 150
    assert sum(pending[-72:]) / 72 < 60
    assert emulated.rejected == 0
    assert emulated.submitted > 1000


def test_more_work_than_the_cluster_can_do_does_not_grow_the_queue_without_bound() -> None:
    emulated = emulated_cluster(cluster(16), endless_arrivals(cluster(16), load=5.0))
    emulated.advance(2 * DAY_S)
    assert emulated._waiting <= MAX_PENDING
    assert emulated.next_time() is not None
    ended = emulated.ended
    emulated.advance(3 * DAY_S)
    assert emulated.ended > ended + 50


def test_jobs_respect_the_limits_of_partitions() -> None:
    machine = cluster(
        40,
        partitions=[
            {"name": "long", "default": True, "min_nodes": 2},
            {"name": "short", "max_walltime": "10m", "max_nodes": 3},
        ],
    )
    emulated = emulated_cluster(machine, endless_arrivals(machine))
    emulated.advance(DAY_S)
    assert emulated.rejected == 0
    jobs = list(islice(endless_arrivals(machine), 400))
    assert {job.spec.partition for job in jobs} == {"long", "short"}
    assert max(job.spec.nodes for job in jobs if job.spec.partition == "short") == 3


def test_nodes_with_cores_are_shared() -> None:
    machine = Cluster.checked({"name": "c", "nodes": [{"name": "n", "count": 4, "cores": 8}]}, "c")
    emulated = emulated_cluster(machine, endless_arrivals(machine))
    emulated.advance(DAY_S / 2)
    assert emulated.rejected == 0
    kinds = {bool(job.spec.tasks) for job in islice(endless_arrivals(machine), 50)}
    assert kinds == {True, False}


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_load_is_refused(load: float) -> None:
    with pytest.raises(ConfigError, match="load is"):
        endless_arrivals(cluster(), load=load)


def test_a_partition_that_no_job_fits_is_named() -> None:
    machine = cluster(4, partitions=[{"name": "tiny", "max_walltime": "10s", "default": True}])
    with pytest.raises(ConfigError, match="partition tiny"):
        endless_arrivals(machine)
