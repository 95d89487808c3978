"""Functions run in threads: in order, at most so many at once, and none is begun after a fault."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.simulation.running.advance import run_all

WAIT_S = 60


@given(st.lists(st.integers(), max_size=20), st.integers(1, 4))
def test_results_are_in_the_order_of_the_items(items: list[int], threads: int) -> None:
    found = run_all(lambda item: -item, items, threads=threads, stop=lambda: None)
    assert found == [-item for item in items]


def test_only_the_given_number_runs_at_once() -> None:
    together, inside, most = threading.Barrier(3), [], []

    def run(item: int) -> None:
        inside.append(item)
        together.wait(WAIT_S)  # as many as there are threads meet here, again and again
        most.append(len(inside))
        together.wait(WAIT_S)
        inside.remove(item)
        together.wait(WAIT_S)

    run_all(run, range(12), threads=3, stop=lambda: None)
    assert most == [3] * 12


def test_after_an_error_running_work_is_stopped_and_none_is_started() -> None:
    both, stopped, begun = threading.Barrier(2), threading.Event(), []

    def run(item: int) -> None:
        begun.append(item)
        both.wait(WAIT_S)
        if item == 1:
            raise ValueError("the second")
        assert stopped.wait(WAIT_S)

    with pytest.raises(ValueError, match="the second"):
        run_all(run, range(9), threads=2, stop=stopped.set)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name.startswith("hpctwin-engine"):
            thread.join(WAIT_S)
    assert sorted(begun) == [0, 1]
