"""Recorded MPI calls as steps of ranks that compute, and meet to send.

A message, and a collective call, is one parallel task in which all its ranks meet. A barrier is two:
all ranks send a byte to rank 0, and rank 0 sends one to each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.contention.rank_strands import StrandStep
from hpctwin.engine.network.records import MEET, TASK
from hpctwin.errors import ConfigError
from hpctwin.network.profiles import Action, SmpiTrace

__all__ = ["steps_of_ranks"]

Hosts = npt.NDArray[np.int64]
_DATATYPE_BYTES = (
    8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16,
)  # fmt: skip
"""Size of a value by the code of its type in a trace; 1 for other codes."""


def steps_of_ranks(
    trace: SmpiTrace,
    hosts: Hosts,
    load: Callable[..., int],
    meeting: Callable[[int, int], int],
) -> list[list[StrandStep]]:
    """Return the steps of each rank.

    Args:
        trace: Recorded calls.
        hosts: Hosts of the job.
        load: Function that adds a load of hosts, flops and bytes, and returns its row.
        meeting: Function that adds a meeting with a load and a number of ranks, and returns its row.

    Raises:
        ConfigError: A message has no receiver or no sender, or ranks do not call the same
            collectives.
    """
    ranks = len(trace.ranks)
    placement = range(ranks) if trace.placement is None else trace.placement
    of_rank = hosts[np.array([place % len(hosts) for place in placement], np.int64)]
    messages: dict[tuple[Any, ...], int] = {}
    received: set[tuple[Any, ...]] = set()
    for rank, key, numbers in _point_to_point(trace, "send"):
        pair = of_rank[[rank, key[1]]]
        bytes_ = np.array([[0.0, numbers[2]], [0.0, 0.0]])
        messages[key] = meeting(load(pair, 0.0, bytes_), 2)
    for rank, key, _ in _point_to_point(trace, "recv"):
        if key not in messages:
            raise ConfigError(
                f"rank {rank} receives a message from rank {key[0]} that is never sent"
            )
        received.add(key)
    if lost := [key for key in messages if key not in received]:
        raise ConfigError(
            f"rank {lost[0][0]} sends a message that rank {lost[0][1]} never receives"
        )
    shared = _collectives(trace, of_rank, load, meeting)
    found = []
    for rank, actions in enumerate(trace.ranks):
        compute = partial(load, of_rank[[rank]], com=0.0)
        found.append(_steps(rank, actions, messages, shared, compute))
    return found


def _steps(
    rank: int,
    actions: Sequence[Action],
    messages: dict[tuple[Any, ...], int],
    shared: list[list[int]],
    compute: Callable[[float], int],
) -> list[StrandStep]:
    steps: list[StrandStep] = []
    count: Counter[tuple[Any, ...]] = Counter()
    calls = iter(shared)
    for name, numbers in actions:
        if name == "compute":
            steps.append(StrandStep(TASK, compute(numbers[0])))
        elif name in ("send", "recv"):
            key = _ends(rank, name, numbers)
            steps.append(StrandStep(MEET, messages[*key, count[key]]))
            count[key] += 1
        elif name not in ("init", "finalize"):
            steps += [StrandStep(MEET, one) for one in next(calls)]
    return steps


def _ends(rank: int, name: str, numbers: Sequence[float]) -> tuple[int, int, float]:
    """Return sender, receiver and tag of a message."""
    peer = int(numbers[0])
    return (rank, peer, numbers[1]) if name == "send" else (peer, rank, numbers[1])


def _point_to_point(
    trace: SmpiTrace, wanted: str
) -> Iterator[tuple[int, tuple[Any, ...], Sequence[float]]]:
    """Yield rank, key and numbers of all sends or receives.

    The key is sender, receiver, tag, and how many such messages came before.
    """
    for rank, actions in enumerate(trace.ranks):
        count: Counter[tuple[Any, ...]] = Counter()
        for name, numbers in actions:
            if name != wanted:
                continue
            key = _ends(rank, name, numbers)
            if not 0 <= int(numbers[0]) < len(trace.ranks):
                raise ConfigError(
                    f"rank {rank}: {name} names rank {numbers[0]:g}, which does not exist"
                )
            yield rank, (*key, count[key]), numbers
            count[key] += 1


def _collectives(
    trace: SmpiTrace,
    hosts: Hosts,
    load: Callable[..., int],
    meeting: Callable[[int, int], int],
) -> list[list[int]]:
    """Return the meetings of each collective call, in their order."""
    local = ("init", "finalize", "compute", "send", "recv")
    calls = [[one for one in actions if one[0] not in local] for actions in trace.ranks]
    for rank, own in enumerate(calls):
        if [name for name, _ in own] != [name for name, _ in calls[0]]:
            raise ConfigError(
                f"ranks 0 and {rank} do not call the same collectives in the same order"
            )
    ranks = len(hosts)
    found = []
    for name, numbers in calls[0] if calls else []:
        tasks = []
        for cpu, com in _tasks(name, [int(n) for n in numbers], ranks):
            tasks.append(meeting(load(hosts, cpu, com), ranks))
        found.append(tasks)
    return found


def _tasks(name: str, numbers: list[int], ranks: int) -> list[tuple[float, Any]]:
    """Return flops of each rank and bytes between ranks, for each task of a call."""

    def size(place: int) -> int:
        code = numbers[place] if place < len(numbers) else -1
        return _DATATYPE_BYTES[code] if 0 <= code < len(_DATATYPE_BYTES) else 1

    def at(place: int) -> int:
        return numbers[place] if place < len(numbers) else 0

    def between(root: int, amount: float, *, inward: bool) -> npt.NDArray[np.float64]:
        com = np.zeros((ranks, ranks))
        com[(slice(None), root) if inward else (root, slice(None))] = amount
        com[root, root] = 0.0
        return com

    if name == "bcast":
        return [(0.0, between(at(1) % ranks, at(0) * size(2), inward=False))]
    if name == "reduce":
        return [(float(at(1)), between(at(2) % ranks, at(0) * size(3), inward=True))]
    if name == "alltoall":
        return [(0.0, float(at(0) * size(2)))]
    return [(0.0, between(0, 1.0, inward=True)), (0.0, between(0, 1.0, inward=False))]
