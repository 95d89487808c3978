from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model import Category


@given(numbers=st.lists(st.integers(-3, 12) | st.integers(-(2**40), 2**40)))
def test_whole_numbers_near_each_other_or_far_apart_become_the_same_labels(
    numbers: list[int],
) -> None:
    found = Category.of(np.array(numbers, np.int64))
    assert found.labels == tuple(map(str, sorted({*numbers} - {-1})))
    assert found.codes.dtype == np.int32
    assert [None if c < 0 else found.labels[c] for c in found.codes] == [
        None if n == -1 else str(n) for n in numbers
    ]
