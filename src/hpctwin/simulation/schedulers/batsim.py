"""Batsim's side of its protocol: schedulers written for Batsim drive hpctwin.

The scheduler listens on a ZeroMQ socket (REP) and receives messages of events in JSON. It answers
each message with its decisions, as with Batsim 3 and 4 (batsim.readthedocs.io, "Protocol
description").
"""

from __future__ import annotations

import json
from typing import Any, Self

from hpctwin.errors import ConfigError, SimulationError, need
from hpctwin.formats.json.batsim import FINAL_STATES
from hpctwin.model import Cluster
from hpctwin.simulation.schedulers.driving import Happened, Orders

__all__ = ["BatsimScheduler"]

WORKLOAD = "w0"


class BatsimScheduler:
    """External scheduler that listens where Batsim would connect.

    As a context manager it sends begin and end. True runtimes are not sent: a profile's delay is
    the walltime. The simulation places jobs, which is equivalent if all nodes are equal.

    Args:
        address: Address of the scheduler's socket, such as ``tcp://127.0.0.1:28000``.
        cluster: The cluster.
        timeout_s: Longest time to wait for an answer, in seconds.

    Raises:
        ConfigError: pyzmq is not installed (extra ``batsim``), or the nodes of the cluster differ.
        SimulationError: The scheduler does not answer, or orders something that is not supported.
    """

    def __init__(self, address: str, cluster: Cluster, *, timeout_s: float = 60.0) -> None:
        if len(cluster.nodes) > 1 or cluster.partitions:
            raise ConfigError(
                f"cluster {cluster.name!r} has node groups or partitions, but nodes must "
                "be equal for Batsim's protocol: its scheduler chooses nodes, which "
                "hpctwin does itself"
            )
        self.address, self.cluster, self.timeout_s = address, cluster, timeout_s
        self._begun = self._told_last = False
        self._where: dict[Any, str] = {}
        self._ids: dict[str, Any] = {}

    def __enter__(self) -> Self:
        need("zmq", "batsim", "Batsim's protocol")
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, round(1000 * self.timeout_s))
        try:
            self._socket.connect(self.address)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise ConfigError(
                f"{self.address!r} is not an address of a scheduler; give one such as "
                "tcp://127.0.0.1:28000"
            ) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._begun:
            self._ask(self._now_s, [_event(self._now_s, "SIMULATION_ENDS", {})])
        self._context.destroy(0)

    def __call__(self, happened: Happened) -> Orders:
        """Send what happened and return the scheduler's orders."""
        now_s = self._now_s = happened.now_s
        if not self._begun:
            # SIMULATION_BEGINS is a separate message, as in Batsim: schedulers set up their state
            # after it.
            self._begun = True
            self._orders(self._ask(0.0, [_event(0.0, "SIMULATION_BEGINS", self._machine())]), 0.0)
        events: list[dict[str, Any]] = []
        for job_id, state in happened.ended:
            events.append(
                _event(
                    now_s,
                    "JOB_COMPLETED",
                    {
                        "job_id": f"{WORKLOAD}!{job_id}",
                        "job_state": FINAL_STATES[state],
                        "return_code": 0 if state == "completed" else 1,
                        "alloc": self._where.pop(job_id, ""),
                    },
                )
            )
        for job in happened.submitted:
            name = f"{WORKLOAD}!{job['job_id']}"
            self._ids[name] = job["job_id"]
            told = {
                "id": name,
                "subtime": job["submit_s"],
                "walltime": job["walltime_s"],
                "res": job["nodes"],
                "profile": name,
            }
            profile = {"type": "delay", "delay": job["walltime_s"]}
            events.append(
                _event(now_s, "JOB_SUBMITTED", {"job_id": name, "job": told, "profile": profile})
            )
        if happened.last and not self._told_last:
            events.append(_event(now_s, "NOTIFY", {"type": "no_more_static_job_to_submit"}))
            self._told_last = True
        if not happened.submitted and not happened.ended:
            events.append(_event(now_s, "REQUESTED_CALL", {}))
        return self._orders(self._ask(now_s, events), now_s)

    def _machine(self) -> dict[str, Any]:
        resources = [
            {
                "id": node,
                "name": f"node{node}",
                "state": "idle",
                "properties": {},
                "zone_properties": {},
            }
            for node in range(self.cluster.node_count)
        ]
        return {
            "nb_resources": len(resources),
            "nb_compute_resources": len(resources),
            "nb_storage_resources": 0,
            "allow_compute_sharing": False,
            "allow_storage_sharing": False,
            "config": {
                "profiles-forwarded-on-submission": True,
                "dynamic-jobs-enabled": False,
                "dynamic-jobs-acknowledged": False,
                "profile-reuse-enabled": False,
                "forward-unknown-events": False,
            },
            "compute_resources": resources,
            "storage_resources": [],
            "workloads": {WORKLOAD: self.cluster.name},
            "profiles": {WORKLOAD: {}},
        }

    def _ask(self, now_s: float, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        import zmq

        try:
            self._socket.send_string(json.dumps({"now": now_s, "events": events}))
            answer = self._socket.recv_string()
        except zmq.Again as error:
            raise SimulationError(
                f"scheduler at {self.address} did not answer within {self.timeout_s:g} s, "
                f"at {now_s:g} s of the simulation"
            ) from error
        try:
            decided = json.loads(answer)["events"]
            assert all(isinstance(one["type"], str) for one in decided)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise SimulationError(
                f"scheduler at {self.address} answered {answer[:80]!r} at {now_s:g} s of "
                "the simulation, which is not a message of Batsim's protocol"
            ) from error
        found: list[dict[str, Any]] = decided
        return found

    def _orders(self, decided: list[dict[str, Any]], now_s: float) -> Orders:
        start: list[Any] = []
        never: list[Any] = []
        calls: list[float] = []
        for one in decided:
            data = one.get("data", {})
            if one["type"] == "EXECUTE_JOB":
                job_id = self._job(data)
                start.append(job_id)
                self._where[job_id] = str(data.get("alloc", ""))
            elif one["type"] == "REJECT_JOB":
                never.append(self._job(data))
            elif one["type"] == "CALL_ME_LATER":
                calls.append(float(data["timestamp"]))
            else:
                raise SimulationError(
                    f"scheduler at {self.address} sent {one['type']} at {now_s:g} s of the "
                    "simulation, which is not supported; use EXECUTE_JOB, REJECT_JOB or "
                    "CALL_ME_LATER"
                )
        return Orders(start, min(calls, default=None), never)

    def _job(self, data: dict[str, Any]) -> Any:
        name = data.get("job_id")
        if name not in self._ids:
            raise SimulationError(
                f"scheduler at {self.address} names job {name!r}, which does not exist"
            )
        return self._ids[name]


def _event(time_s: float, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": time_s, "type": kind, "data": data}
