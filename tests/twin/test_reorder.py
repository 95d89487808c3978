"""The least changes of priority that give a queue an order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpctwin.twin.core.decision import MAX_RAISED, raised

QUEUES = st.lists(st.integers(-5, 5), min_size=1, max_size=40).flatmap(
    lambda values: st.tuples(st.just(values), st.permutations(range(len(values))))
)


@given(QUEUES)
def test_afterwards_the_head_of_the_order_goes_first_and_nothing_was_lowered(queue) -> None:
    values, numbers = queue
    priority = {str(i): float(value) for i, value in enumerate(values)}
    order = [str(i) for i in numbers]
    after = dict(priority)
    for job_id, value in raised(order, priority):
        assert value > after[job_id]
        after[job_id] = value
    head, behind = order[:MAX_RAISED], order[MAX_RAISED:]
    wanted = [after[i] for i in head]
    assert wanted == sorted(set(wanted), reverse=True)
    assert all(wanted[-1] > after[i] for i in behind)
    assert raised(order, after) == []


def test_one_job_that_is_to_go_first_costs_one_change() -> None:
    assert raised(["d", "a", "b", "c"], {"a": 3, "b": 2, "c": 1, "d": 0}) == [("d", 4)]


def test_a_job_that_has_started_or_arrived_last_costs_nothing() -> None:
    assert raised(["b", "c"], {"b": 2, "c": 1}) == []
