"""A policy as the scheduler of an external simulation: events in, starts out.

It can decide for simulators that speak Batsim's protocol. Batsim connects (REQ) to the socket on
which hpctwin listens (REP), and sends events in JSON. The answer has the jobs to start and their
resources (batsim.readthedocs.io, "Protocol description"; versions 2 to 4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.interactive import (
    close_arrivals,
    end_only_when_told,
    hand_over,
    know_job,
)
from hpctwin.engine.state import layout
from hpctwin.errors import ConfigError, PolicyError, SimulationError
from hpctwin.model import MS_PER_S, Cluster, Workload, to_ms
from hpctwin.policies import PolicyLike, make_policy
from hpctwin.simulation.running.simulation import Simulation
from hpctwin.simulation.schedulers.driving import Happened, Orders

__all__ = ["BatsimDecisions", "PolicyScheduler", "decide_for_batsim"]

IntArray = npt.NDArray[np.int64]

_LABELS = ("user", "account", "partition", "qos")


class PolicyScheduler:
    """Scheduler that decides as a policy does, for a simulation that runs elsewhere.

    Its own simulation advances with the reported events. It knows only what is reported: a job is
    planned to end at its walltime, and ends when its end is reported.

    Args:
        policy: Policy as for `Simulation`, without power policy; all nodes are on and equal.
        nodes: Number of nodes.
        rows: Number of jobs for which memory is allocated at first.

    Raises:
        PolicyError: The policy uses fair share or state of users, and past usage is not reported
            here; or its placement plans each node.
    """

    def __init__(self, policy: PolicyLike | None, nodes: int, *, rows: int = 1024) -> None:
        self.policy = make_policy(policy)
        if self.policy.order.fairshare or self.policy.order.state is not None:
            what = "fair shares" if self.policy.order.fairshare else "state of users"
            raise PolicyError(
                f"policy {self.policy.name!r} uses {what}, but an external scheduler "
                "has no record of past usage; use another policy"
            )
        if self.policy.placement.shared_only:
            raise PolicyError(
                f"policy {self.policy.name!r}: placement {self.policy.placement.name!r} plans each "
                "node, but an external scheduler only counts nodes; use first-fit"
            )
        self.cluster = Cluster.uniform(nodes=nodes)
        self._simulation = Simulation(_of_nobody(rows), self.cluster, self.policy)
        self._simulation.load_job_facts()
        sim = self._simulation.state
        close_arrivals(sim)
        sim.own("fact")
        self._simulation.compiled_policy()
        self._spare = list(range(rows))[::-1]
        self._row: dict[Any, int] = {}
        self._waiting: dict[Any, Mapping[str, Any]] = {}
        self._running: dict[Any, tuple[Mapping[str, Any], IntArray]] = {}
        self._rank: dict[Any, int] = {}
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _LABELS}
        self._free = np.ones(nodes, bool)

    def __call__(self, happened: Happened) -> Orders:
        """Take over what happened and return orders.

        Raises:
            SimulationError: It happened before the last reported time.
        """
        now_ms = to_ms(happened.now_s)
        if now_ms < self._simulation.state.clock.now:
            raise SimulationError(
                f"event at {happened.now_s:g} s arrives after the event at "
                f"{self._simulation.now_s:g} s; send events in order of time"
            )
        ended: list[int] = []
        for job_id, _ in happened.ended:
            self._over(job_id, now_ms, ended)
        again = [self._running[job_id][0] for job_id in happened.refused]
        never: list[Mapping[str, Any]] = []
        come: list[Mapping[str, Any]] = []
        for job in (*again, *happened.submitted):
            self._over(job["job_id"], now_ms, ended)
            fits = job["nodes"] <= self.cluster.node_count
            (come if fits else never).append(job)
        for job in come:
            self._enter(job)
        start = self._starts(now_ms, ended)
        self._spare += ended
        timer = int(self._simulation.state.clock.timer)
        later = self._waiting and timer < layout.NEVER
        return Orders(start, timer / MS_PER_S if later else None, [job["job_id"] for job in never])

    def nodes_of(self, job_id: Any) -> list[int]:
        """Return the numbers of the nodes that a running job has."""
        found: list[int] = self._running[job_id][1].tolist()
        return found

    def _over(self, job_id: Any, now_ms: int, ended: list[int]) -> None:
        """Remove a job; if it ran, its row is added to ``ended``."""
        from hpctwin.engine.operations.lookahead import withdraw

        row = self._row.pop(job_id, None)
        if row is None:
            return
        if job_id in self._running:
            self._free[self._running.pop(job_id)[1]] = True
            ended.append(row)
        else:
            del self._waiting[job_id]
            withdraw(self._simulation.state.address, row, now_ms)
            self._spare.append(row)

    def _enter(self, job: Mapping[str, Any]) -> None:
        """Add a job to the queue."""
        from hpctwin.engine.operations.lookahead import enter

        if not self._spare:
            self._grow()
        job_id, row = job["job_id"], self._spare.pop()
        self._row[job_id] = row
        self._waiting[job_id] = job
        walltime_ms = to_ms(job["walltime_s"])
        # Ties go by the order in which jobs were reported, whatever their ids look like.
        known = {
            "submit": to_ms(job["submit_s"]), "nodes": job["nodes"], "runtime": walltime_ms,
            "limit": walltime_ms, "expected": walltime_ms,
            "rank": self._rank.setdefault(job_id, len(self._rank)),
        }  # fmt: skip
        share = job["nodes"] / self.cluster.node_count
        fact = {
            "priority": job.get("priority", 0.0), "dominant": share, "load": share,
            "predicted_runtime": job["walltime_s"],
            **{name: self._code(name, job.get(name)) for name in _LABELS},
        }  # fmt: skip
        sim = self._simulation.state
        know_job(sim, row, known, fact)
        enter(sim.address, row)

    def _code(self, name: str, label: str | None) -> int:
        codes = self._codes[name]
        return -1 if label is None else codes.setdefault(label, len(codes))

    def _grow(self) -> None:
        """Double the number of rows for jobs."""
        simulation, before = self._simulation, self._simulation.state
        rows, size = np.array(sorted(self._row.values()), np.int64), before.jobs
        simulation.replace_ended_jobs(_of_nobody(2 * size), rows, rows, waits=False)
        simulation.load_job_facts()
        hand_over(before, simulation.state, rows)
        simulation.compiled_policy()
        self._spare = list(range(size, 2 * size))[::-1]

    def _starts(self, now_ms: int, ended: list[int]) -> list[Any]:
        """Return the jobs that start now."""
        sim = self._simulation.state
        end_only_when_told(sim, now_ms, ended)
        self._simulation.advance(now_ms / MS_PER_S)
        ids = list(self._waiting)
        phases = sim["state"]["phase"][[self._row[job_id] for job_id in ids]]
        started = [ids[place] for place in np.flatnonzero(phases == layout.RUNNING)]
        for job_id in started:
            job = self._waiting.pop(job_id)
            nodes = np.flatnonzero(self._free)[: job["nodes"]]
            self._free[nodes] = False
            self._running[job_id] = job, nodes
        return started


def _of_nobody(rows: int) -> Workload:
    """Return a workload of placeholder jobs, whose rows are filled later."""
    return Workload.build(submit_s=np.zeros(rows), runtime_s=np.ones(rows), nodes=np.ones(rows))


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
                f"{text[:80]!r} is not a message of Batsim's protocol: "
                f"{type(error).__name__} {error}"
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
                    f"Batsim sent {kind} at {now_s:g} s, which is not supported; "
                    "supported: SIMULATION_BEGINS, JOB_SUBMITTED, JOB_COMPLETED, "
                    f"REQUESTED_CALL, SIMULATION_ENDS, {', '.join(sorted(_OF_NO_MATTER))}"
                )
        if not (submitted or ended or called):
            return []
        if self._scheduler is None:
            raise SimulationError(f"Batsim sent jobs at {now_s:g} s before SIMULATION_BEGINS")
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
                "Batsim option allow_compute_sharing is on, but node sharing is not "
                "supported here; turn it off"
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
                f"{address!r}: cannot listen at this address ({error}); give one such as "
                "tcp://127.0.0.1:28000"
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
            f"{address!r}: port {port:.9} is invalid; it must be 1 to 65535, such as 28000"
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
