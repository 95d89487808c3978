"""What is kept is found once, and for two objects at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from hpctwin.attributes import kept


class Thing:
    def __init__(self, together: threading.Barrier | None = None) -> None:
        self.together, self.times = together, 0

    @kept
    def found(self) -> list[int]:
        """It."""
        self.times += 1
        if self.together is not None:
            self.together.wait(60)
        return [self.times]


def test_it_is_found_when_it_is_asked_for_first_and_no_more() -> None:
    thing = Thing()
    assert thing.times == 0
    assert thing.found is thing.found
    assert thing.times == 1
    assert Thing.found.__doc__ == "It."


def test_two_objects_find_theirs_at_the_same_time() -> None:
    things = [Thing(threading.Barrier(2))]
    things.append(Thing(things[0].together))
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda thing: thing.found, things)) == [[1], [1]]


def test_two_threads_get_the_same_of_one_object() -> None:
    thing = Thing(threading.Barrier(2))
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: thing.found, range(2))
    assert one is other is thing.found
