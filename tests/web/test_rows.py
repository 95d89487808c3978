"""On which nodes jobs to come are drawn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.web.views.job_history import Rows, runs_of
from tests.examples import examples

FREE = st.dictionaries(st.integers(0, 20), st.integers(-2, 9).map(float))
JOBS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9), st.integers(1, 8)), max_size=12)


@given(free_s=FREE, jobs=JOBS)
@settings(max_examples=examples(60))
def test_jobs_are_placed_on_the_lowest_nodes_that_are_free_when_they_start(
    free_s: dict[int, float], jobs: list[tuple[int, int, int]]
) -> None:
    rows, held = Rows(free_s), dict(free_s)
    for start_s, length_s, nodes in sorted(jobs):
        there = sorted(number for number, until_s in held.items() if until_s <= start_s)[:nodes]
        assert rows.place(start_s, start_s + length_s, nodes).tolist() == there
        held.update(dict.fromkeys(there, float(start_s + length_s)))


@given(numbers=st.sets(st.integers(0, 40)))
def test_runs_are_the_numbers_and_none_touches_the_next(numbers: set[int]) -> None:
    runs = runs_of(np.array(sorted(numbers), np.int64))
    assert [n for first, count in runs for n in range(first, first + count)] == sorted(numbers)
    assert all(a + count < b for (a, count), (b, _) in pairwise(runs))
