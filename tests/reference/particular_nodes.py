"""Backfilling that reserves particular nodes, as a scheduler outside the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpctwin.simulation.schedulers import Happened, Orders


def by_particular_nodes(nodes: int, depth: int) -> Callable[[Happened], Orders]:
    """Return a first-come, first-served scheduler of nodes with the lowest numbers.

    Args:
        nodes: Nodes of the cluster.
        depth: Number of pending jobs that get reservations, which are made again each time.
    """
    waiting: list[Any] = []
    running: dict[Any, tuple[list[int], float]] = {}

    def decide(happened: Happened) -> Orders:
        now = happened.now_s
        for job, _ in happened.ended:
            del running[job]
        waiting.extend(happened.submitted)
        taken: list[list[tuple[float, float]]] = [[] for _ in range(nodes)]
        for own, end in running.values():
            for node in own:
                taken[node].append((now, end))
        start, reserved = [], 0
        for job in list(waiting):
            times = {now}
            if reserved < depth:
                times |= {end for spans in taken for _, end in spans if end > now}
            for begin in sorted(times):
                end = begin + job["walltime_s"]
                free = [
                    node
                    for node, spans in enumerate(taken)
                    if all(upto <= begin or first >= end for first, upto in spans)
                ]
                mine = free[: job["nodes"]]
                if len(mine) < job["nodes"]:
                    continue
                for node in mine:
                    taken[node].append((begin, end))
                if begin > now:
                    reserved += 1
                    break
                start.append(job["job_id"])
                running[job["job_id"]] = mine, end
                waiting.remove(job)
                break
        return Orders(start=tuple(start))

    return decide
