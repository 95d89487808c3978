"""The scheduler's side of Batsim's protocol: a policy decides for a simulator.

Batsim connects (REQ) to the socket on which hpctwin listens (REP), and sends events in JSON. The
answer has the jobs to start and their resources (batsim.readthedocs.io, "Protocol description";
versions 2 to 4).
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from hpctwin.errors import ConfigError, SimulationError
from hpctwin.policies import PolicyLike
from hpctwin.simulation.schedulers.by_policy import PolicyScheduler
from hpctwin.simulation.schedulers.driving import Happened

__all__ = ["BatsimDecisions", "decide_for_batsim"]

ENDLESS_S = 10 * 365 * 86_400.0
"""Planned runtime of a job without a walltime, in seconds."""
_OF_NO_MATTER = frozenset({"NOTIFY", "JOB_KILLED"})


class BatsimDecisions:
    """Answers to the messages of one Batsim simulation.

    Args:
        policy: Policy as for `Simulation`, without power policy and fair share.
    """

    def __init__(self, policy: PolicyLike | None) -> None:
        self.policy = policy
        self.over = False
        self._scheduler: PolicyScheduler | None = None
        self._resources: list[int] = []
        self._call_at_s = 0.0

    def answer(self, text: str) -> str:
        """Return the answer to a message.

        Raises:
            SimulationError: The text is no message of the protocol, or names an event that is not
                supported.
        """
        try:
            message = json.loads(text)
            now_s, events = float(message["now"]), list(message["events"])
            decided = self._decide(now_s, events)
        except (ValueError, LookupError, TypeError) as error:
            raise SimulationError(
                f"{text[:80]!r} is no message of Batsim's protocol: {type(error).__name__} {error}"
            ) from error
        return json.dumps({"now": now_s, "events": decided})

    def _decide(self, now_s: float, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        submitted: list[dict[str, Any]] = []
        ended: list[tuple[str, str]] = []
        called = False
        for event in events:
            kind, data = event["type"], event.get("data", {})
            if kind == "SIMULATION_BEGINS":
                self._begin(data)
            elif kind == "JOB_SUBMITTED":
                submitted.append(_job(event))
            elif kind == "JOB_COMPLETED":
                ended.append((data["job_id"], "completed"))
            elif kind == "REQUESTED_CALL":
                called = True
            elif kind == "SIMULATION_ENDS":
                self.over = True
            elif kind not in _OF_NO_MATTER:
                raise SimulationError(
                    f"Batsim tells of {kind} at {now_s:g} s; known here are SIMULATION_BEGINS, "
                    "JOB_SUBMITTED, JOB_COMPLETED, REQUESTED_CALL, SIMULATION_ENDS, "
                    f"{', '.join(sorted(_OF_NO_MATTER))}"
                )
        if not (submitted or ended or called):
            return []
        if self._scheduler is None:
            raise SimulationError(f"at {now_s:g} s Batsim tells of jobs before SIMULATION_BEGINS")
        orders = self._scheduler(Happened(now_s, tuple(submitted), tuple(ended)))
        rejected = [_event(now_s, "REJECT_JOB", {"job_id": job_id}) for job_id in orders.never]
        started = [
            _event(now_s, "EXECUTE_JOB", {"job_id": job_id, "alloc": self._alloc(job_id)})
            for job_id in orders.start
        ]
        if orders.call_at_s is None or orders.call_at_s in (self._call_at_s, now_s):
            return [*rejected, *started]
        self._call_at_s = orders.call_at_s
        later = _event(now_s, "CALL_ME_LATER", {"timestamp": orders.call_at_s})
        return [*rejected, *started, later]

    def _begin(self, data: dict[str, Any]) -> None:
        if data.get("allow_compute_sharing") or data.get("allow_time_sharing"):
            raise SimulationError(
                "Batsim shares nodes among jobs (allow_compute_sharing); here they do not"
            )
        told = data.get("compute_resources", data.get("resources_data"))
        count = int(data.get("nb_compute_resources", data.get("nb_resources", 0)))
        self._resources = list(range(count)) if told is None else [int(one["id"]) for one in told]
        self._scheduler = PolicyScheduler(self.policy, len(self._resources))

    def _alloc(self, job_id: str) -> str:
        """Return the job's resources as intervals, such as ``0-3 7``."""
        assert self._scheduler is not None
        ids = sorted(self._resources[node] for node in self._scheduler.nodes_of(job_id))
        runs = groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0])
        spans = [[number for _, number in run] for _, run in runs]
        return " ".join(f"{s[0]}" if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def decide_for_batsim(address: str, policy: PolicyLike | None) -> None:
    """Listen on a socket and decide for one simulation until it ends.

    Args:
        address: Address to listen on, such as ``tcp://127.0.0.1:28000``.
        policy: Policy as for `BatsimDecisions`.

    Raises:
        ConfigError: pyzmq is not installed (extra ``batsim``), or the address cannot be used.
        PolicyError: The policy cannot decide for an external simulation.
        SimulationError: A message is not in Batsim's protocol.
    """
    try:
        import zmq
    except ImportError as error:
        raise ConfigError(
            "Batsim's protocol needs pyzmq; install it with pip install 'hpctwin[batsim]'"
        ) from error
    _check_port(address)
    PolicyScheduler(policy, 1)  # rejects an unsuitable policy before a client connects
    decisions = BatsimDecisions(policy)
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.setsockopt(zmq.LINGER, 1000)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise ConfigError(
                f"{address!r}: nobody can listen there ({error}); expected one such as tcp://127.0.0.1:28000"
            ) from error
        while not decisions.over:
            socket.send_string(decisions.answer(socket.recv_string()))


def _check_port(address: str) -> None:
    """Check the port of an address.

    ZeroMQ maps a port above 65535 to another one, and 0 to any free port that no client would know.

    Raises:
        ConfigError: The port is 0 or above 65535.
    """
    port = address.rpartition(":")[2]
    if port.isdecimal() and not 0 < int(port) < 65_536:
        raise ConfigError(
            f"{address!r}: port {port:.9} is none; it must be 1 to 65535, such as 28000"
        )


def _job(event: dict[str, Any]) -> dict[str, Any]:
    data = event["data"]
    told = data.get("job", {})
    walltime = float(told.get("walltime", -1.0))
    return {
        "job_id": data["job_id"],
        "submit_s": float(told.get("subtime", event["timestamp"])),
        "nodes": int(told["res"]),
        "walltime_s": walltime if walltime > 0 else ENDLESS_S,
    }


def _event(time_s: float, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": time_s, "type": kind, "data": data}
