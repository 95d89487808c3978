"""Priorities that grow with age are not told at each look; changes of the order are, at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model import Cluster
from hpctwin.rms.manager import Outcome
from hpctwin.rms.polling.poller import PolledManager, Poller
from hpctwin.rms.priorities import StillPriorities
from hpctwin.rms.records.changes import Changes
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot

MACHINE = Cluster.uniform(2)


def snapshot(jobs: dict[str, tuple[float, float]], time_s: float = 1e6) -> Snapshot:
    """Waiting jobs by id: when submitted, and their priority."""
    records = tuple(
        JobRecord(spec=JobSpec(id=i, submit_s=s, nodes=1, walltime_s=60, priority=p))
        for i, (s, p) in jobs.items()
    )
    nodes = (NodeRecord(name="a"), NodeRecord(name="b"))
    return Snapshot(cluster="c", time_s=time_s, machine=MACHINE, nodes=nodes, jobs=records)


def order(of: Snapshot) -> list[str]:
    return [
        j.spec.id
        for j in sorted(of.jobs, key=lambda j: (j.spec.priority, -j.spec.submit_s, -int(j.spec.id)))
    ]


def told(of: Snapshot) -> dict[str, float]:
    return {job.spec.id: job.spec.priority for job in of.jobs}


def aged(count: int, seed: int, weight: float) -> tuple[np.ndarray, np.ndarray, Any]:
    """Jobs of a multifactor queue: submit times, what does not change, and the priority at a time."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 400_000, count)).astype(float)
    size = rng.integers(0, 40, 50)[rng.integers(0, 50, count)] * 25.0
    longest_s = 7 * 86_400.0

    def at(now_s: float) -> dict[str, tuple[float, float]]:
        age = np.minimum((now_s - submit_s) / longest_s, 1.0)
        return {
            str(i): (float(submit_s[i]), float(math.floor(weight * age[i] + size[i])))
            for i in range(count)
        }

    return submit_s, size, at


@pytest.mark.parametrize(("weight", "share"), [(1000.0, 0.7), (100_000.0, 0.03)])
def test_the_age_of_a_thousand_pending_jobs_reports_only_changed_places(
    weight: float, share: float
) -> None:
    _, _, at = aged(1000, 1, weight)
    still = StillPriorities()
    first = snapshot(at(400_000.0), 400_000.0)
    changes = Changes(still.settled(first), "r")
    plainly = events = 0
    before = told(first)
    for minute in range(1, 13):
        now_s = 400_000.0 + 60 * minute
        true = snapshot(at(now_s), now_s)
        present = told(true)
        plainly += sum(present[i] != p for i, p in before.items())
        before = present
        settled = still.settled(true)
        assert order(settled) == order(true)
        events += len(changes.to(settled))
    assert plainly > 1000
    assert events < share * plainly, (events, plainly)


def test_the_job_with_the_smallest_number_is_first_if_submitted_in_one_second() -> None:
    settled = told(
        StillPriorities().settled(snapshot(dict.fromkeys(("9", "10", "11"), (5.0, 1.0))))
    )
    assert settled["9"] > settled["10"] > settled["11"]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=0, max_size=8),
        min_size=1,
        max_size=6,
    )
)
def test_the_reported_order_is_the_true_order_after_any_change(looks) -> None:
    still = StillPriorities()
    for number, jobs in enumerate(looks):
        # Ids are the places in the list, so jobs come, stay and go from look to look.
        true = snapshot(
            {str(i): (float(s), float(p + 7 * number)) for i, (s, p) in enumerate(jobs)}
        )
        assert order(still.settled(true)) == order(true)


def test_a_priority_raised_by_an_administrator_is_reported_at_once_and_nothing_else() -> None:
    still = StillPriorities()
    queue = {str(i): (float(i), 100.0 * i) for i in range(20)}
    changes = Changes(still.settled(snapshot(queue)), "r")
    later = {i: (s, p + 13.0) for i, (s, p) in queue.items()}
    assert changes.to(still.settled(snapshot(later))) == []
    later["3"] = (3.0, 1563.0)
    (event,) = changes.to(still.settled(snapshot(later)))
    assert event.kind == "job_modified"
    assert event.job.id == "3"
    assert 1500.0 < event.job.priority < 1600.0
    # Also where its place stays the same, but not its distance.
    later["19"] = (19.0, 4013.0)
    (event,) = changes.to(still.settled(snapshot(later)))
    assert (event.job.id, event.job.priority) == ("19", 4000.0)


def test_a_job_submitted_later_is_ranked_among_priorities_reported_long_before() -> None:
    still = StillPriorities()
    queue = {str(i): (float(i), 100.0 * i) for i in range(10)}
    still.settled(snapshot(queue))
    later = {i: (s, p + 5000.0) for i, (s, p) in queue.items()}
    later["new"] = (99.0, 5250.0)
    assert told(still.settled(snapshot(later)))["new"] == 250.0


def test_all_are_reported_as_they_are_if_most_change_places() -> None:
    still = StillPriorities()
    still.settled(snapshot({str(i): (float(i), 100.0 * i) for i in range(10)}))
    turned = {str(i): (float(i), 5000.0 - 100.0 * i) for i in range(10)}
    assert told(still.settled(snapshot(turned))) == {i: p for i, (_, p) in turned.items()}


class Raised:
    """A manager whose jobs all have grown older by 500."""

    cluster, clock_speed = "c", 1.0

    def __init__(self) -> None:
        self.looks = 0
        self.asked: list[tuple[str, float]] = []

    def snapshot(self) -> Snapshot:
        self.looks += 1
        grown = 500.0 * (self.looks - 1)
        return snapshot({str(i): (float(i), 100.0 * i + grown) for i in range(5)})

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        self.asked.append((job_id, priority))
        return Outcome("done")


def test_a_priority_that_is_set_is_above_the_true_ones_of_the_jobs_it_is_to_pass() -> None:
    manager = Raised()
    poller = Poller(manager, lambda event: None, drifting=True)
    polled = PolledManager(poller)
    assert told(polled.snapshot())["4"] == 400.0
    poller._poll()
    # The mirror still has 400 for the job at the top, whose true priority is 900.
    assert told(polled.snapshot())["4"] == 400.0
    polled.set_priority("0", 410.0)
    assert manager.asked == [("0", 910.0)]
