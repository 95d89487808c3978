"""The nodes of an emulated cluster as operators see them: up, down, drained, reserved."""

from __future__ import annotations

from functools import partial

from hpctwin.rms.emulated.agenda import OTHER
from hpctwin.rms.emulated.life import JobLife
from hpctwin.rms.emulated.nodes import NodeState
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import NodeReservation

__all__ = ["NodeLife"]

_NODE_EVENTS = {"up": ev.NodeUp, "down": ev.NodeDown, "drained": ev.NodeDrained}


class NodeLife(JobLife):
    """What operators do to nodes, and what becomes of the jobs on them."""

    def node_up(self, name: str) -> Outcome:
        """A node takes jobs again."""
        return self._set_node(name, "up")

    def node_down(self, name: str) -> Outcome:
        """A node fails; its jobs wait again or end, as the faults say."""
        return self._set_node(name, "down")

    def node_drain(self, name: str) -> Outcome:
        """A node finishes its jobs and takes no other."""
        return self._set_node(name, "drained")

    def set_reservation(self, reservation: NodeReservation) -> Outcome:
        """Keep nodes from jobs for a span of time; jobs that run there stay."""
        for name in reservation.node_names:
            if name not in self.nodes.number:
                return Outcome("refused", f"there is no node {name}")
        if reservation.end_s <= self.now_s:
            return Outcome("refused", f"reservation {reservation.name} would be over already")
        self._reserve(reservation)
        self._tell(ev.ReservationSet, reservation=reservation)
        self._changed()
        return Outcome("done")

    def remove_reservation(self, name: str) -> Outcome:
        """Give them back."""
        if not self.nodes.remove_reservation(name):
            return Outcome("refused", f"there is no reservation {name}")
        self._tell(ev.ReservationRemoved, name=name)
        self._changed()
        return Outcome("done")

    def _set_node(self, name: str, state: NodeState) -> Outcome:
        node = self.nodes.number.get(name)
        if node is None:
            return Outcome("refused", f"there is no node {name}")
        if not self.nodes.set_state(node, state):
            return Outcome("done")
        self._tell(_NODE_EVENTS[state], node_name=name)
        for job_id in self.nodes.jobs_on(node) if state == "down" else ():
            job = self.jobs[job_id]
            if job.ending is not None:
                self._end(job, job.ending)
            elif self.faults.requeue:
                self._throw_back(job)
            else:
                self._end(job, "node_failure")
        self._changed()
        return Outcome("done")

    def _reserve(self, reservation: NodeReservation) -> None:
        self.nodes.set_reservation(reservation)
        self.agenda.put(OTHER, reservation.start_s, self._changed, counts=False)
        over = partial(self._reservation_over, reservation)
        self.agenda.put(OTHER, reservation.end_s, over, counts=False)

    def _reservation_over(self, reservation: NodeReservation) -> None:
        if self.nodes.reservations.get(reservation.name) is reservation:
            self.remove_reservation(reservation.name)
