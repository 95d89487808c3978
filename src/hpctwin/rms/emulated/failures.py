"""Nodes of an emulated cluster that fail and come back: by a plan, or by chance."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from hpctwin.model.cluster.cluster import Failures
from hpctwin.model.text.units import since, to_ms
from hpctwin.rms.emulated.agenda import NODE, Agenda
from hpctwin.rms.emulated.faults import Faults
from hpctwin.rms.emulated.nodes import Nodes

__all__ = ["Failing", "NodeFailures", "with_failures"]


class Failing(Protocol):
    """A cluster whose nodes fail.

    Args:
        now_s: its clock.
        faults: how often nodes fail, and for how long.
        agenda: what will happen.
        nodes: its nodes.
        jobs: those that have not ended, by id.
    """

    now_s: float
    faults: Faults
    agenda: Agenda
    nodes: Nodes
    jobs: dict[str, Any]

    def node_down(self, name: str) -> object:
        """A node fails."""

    def node_up(self, name: str) -> object:
        """It takes jobs again."""


class NodeFailures:
    """Lets the nodes of a cluster fail.

    Args:
        cluster: the cluster, at its beginning.
        planned: the outages that its description names.
    """

    def __init__(self, cluster: Failing, planned: Failures) -> None:
        self._cluster = cluster
        self._faults = cluster.faults
        self._agenda = cluster.agenda
        self._draws = cluster.faults.draws("failures")
        zero_s, names = cluster.now_s, cluster.nodes.names
        for node, fails_s, back_s in _outages(planned):
            for at_s, action in ((fails_s, cluster.node_down), (back_s, cluster.node_up)):
                self._agenda.put(NODE, zero_s + at_s, partial(action, names[node]), counts=False)
        if self._faults.mtbf_s > 0:
            for name in names:
                self._expect(name)

    def _expect(self, name: str) -> None:
        fails_s = self._cluster.now_s + self._draws.expovariate(1 / self._faults.mtbf_s)
        self._agenda.put(NODE, fails_s, partial(self._fail, name), counts=False)

    def _fail(self, name: str) -> None:
        if not self._cluster.jobs and not self._agenda.due:
            # While nothing goes on, nothing is told.
            self._expect(name)
            return
        self._cluster.node_down(name)
        back_s = self._cluster.now_s + self._draws.expovariate(1 / self._faults.mttr_s)
        self._agenda.put(NODE, back_s, partial(self._repair, name), counts=False)

    def _repair(self, name: str) -> None:
        # An operator may have drained it meanwhile.
        nodes = self._cluster.nodes
        if nodes.records[nodes.number[name]].state == "down":
            self._cluster.node_up(name)
        self._expect(name)


def with_failures(faults: Faults, failures: Failures) -> Faults:
    """Faults with the failures of a machine's description, where they have none of their own."""
    if faults.mtbf_s > 0:
        return faults
    changes: dict[str, Any] = {"requeue": failures.then == "requeue"} if failures.outages else {}
    if failures.mtbf is not None:
        changes = {"mtbf_s": failures.mtbf, "mttr_s": failures.mttr,
                   "requeue": failures.then == "requeue"}  # fmt: skip
    return faults.model_copy(update=changes)


def _outages(failures: Failures) -> list[tuple[int, float, float]]:
    """Node, start and end of each outage; those of one node that touch are one."""
    merged: list[tuple[int, float, float]] = []
    for outage in sorted(failures.outages, key=lambda o: (o.node, to_ms(o.start))):
        node, start_s = outage.node, since(outage.start, None, "the emulated cluster")
        end_s = start_s + outage.duration
        if merged and merged[-1][0] == node and start_s <= merged[-1][2]:
            _, start_s, known_s = merged.pop()
            end_s = max(end_s, known_s)
        merged.append((node, start_s, end_s))
    return merged
