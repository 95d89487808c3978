"""The emulated cluster as a process: a clock, a socket, and a dead-man's handle.

Each direction carries one JSON object per line. One thread owns the cluster. The threads of
connections pass requests to it, so that everything happens in one order.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpctwin.errors import HpctwinError
from hpctwin.rms.emulated.cluster import EmulatedCluster
from hpctwin.rms.emulated.connections import MAX_REQUEST, Feeds, Listener, Request
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.events import Event, event_json
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeReservation

__all__ = ["MAX_REQUEST", "Server"]

logger = logging.getLogger(__name__)

TICK_S = 0.2


class Server:
    """Server of one emulated cluster with ``publish=server.publish``; see `attach`.

    Args:
        path: Path of the Unix socket.
        speed: Seconds of the cluster's clock per second; None for as fast as possible. Then the
            clock waits at each event time until an acting twin has processed it, but at most
            ``takeover_s``.
        takeover_s: Time without a heartbeat after which the cluster schedules by itself again.
        wait: Whether the clock stands until a twin takes over scheduling for the first time.
    """

    def __init__(
        self,
        path: Path,
        *,
        speed: float | None = 1.0,
        takeover_s: float = 5.0,
        wait: bool = False,
    ) -> None:
        self.path = path
        self.speed = speed
        self.takeover_s = takeover_s
        self.takeovers = 0
        self._waits = wait
        self._requests: queue.Queue[Request] = queue.Queue()
        self._feeds = Feeds()
        self._sinks: list[Callable[[Event], None]] = []
        self._stop = threading.Event()
        self._beat = 0.0
        self._unconfirmed_since: float | None = None
        self._clock = (0.0, 0.0)
        self.cluster: EmulatedCluster

    def attach(self, cluster: EmulatedCluster) -> None:
        """Serve this cluster."""
        self.cluster = cluster

    def publish(self, event: Event) -> None:
        """Give an event to all subscribers and sinks."""
        for sink in self._sinks:
            sink(event)
        self._feeds.put(event_json(event).encode() + b"\n")

    def send_to(self, sink: Callable[[Event], None]) -> None:
        """Also give events to a function, such as a publisher to Redis."""
        self._sinks.append(sink)

    def stop(self) -> None:
        """End `serve`."""
        self._stop.set()

    def serve(self, ready: Callable[[], object] = lambda: None) -> None:
        """Run clock and socket until stopped.

        Args:
            ready: Function called once clients can connect.
        """
        # The engine takes a second to load, or more if it must be compiled first. No client should
        # wait for that between a request and its answer.
        _warm_up(self.cluster)
        listener = Listener(self.path, self._requests, self._feeds, self._stop)
        self._set_clock()
        ready()
        try:
            while not self._stop.is_set():
                self._watch_heartbeat()
                self._turn()
        finally:
            listener.close()
            self._feeds.close()

    # --- the clock -------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Serve requests, and advance the clock as far as allowed."""
        due_s = self.cluster.next_time()
        if self._waits or due_s is None:
            self._serve_one(TICK_S)
        elif self.speed is None:
            if self._may_go_on():
                self._serve_all()
                self.cluster.advance(due_s)
            else:
                self._serve_one(min(TICK_S, self.takeover_s / 10))
        else:
            pause_s = (due_s - self._now_s()) / self.speed
            # Even if something is due: a cluster that is behind its clock still answers.
            self._serve_one(max(0.0, min(TICK_S, pause_s)))
            self.cluster.advance(self._now_s())

    def _may_go_on(self) -> bool:
        """Return whether the scheduler has processed all events, or has had enough time."""
        now = time.monotonic()
        if self.cluster.own_scheduling or self.cluster.confirmed:
            self._unconfirmed_since = None
            return True
        if self._unconfirmed_since is None:
            self._unconfirmed_since = now
        if now - self._unconfirmed_since <= self.takeover_s:
            return False
        self._unconfirmed_since = None
        return True

    def _set_clock(self) -> None:
        self._clock = (self.cluster.now_s, time.monotonic())

    def _now_s(self) -> float:
        now_s, seen_at = self._clock
        gone_s = (time.monotonic() - seen_at) * (self.speed or 0.0)
        return max(self.cluster.now_s, round(now_s + gone_s, 3))

    def _watch_heartbeat(self) -> None:
        if self.cluster.own_scheduling or time.monotonic() - self._beat <= self.takeover_s:
            return
        logger.warning(
            "no heartbeat for %g s; the cluster's own scheduling takes control", self.takeover_s
        )
        self.takeovers += 1
        self.cluster.give_scheduling()

    # --- requests --------------------------------------------------------------------------------

    def _serve_all(self) -> None:
        while not self._requests.empty():
            self._serve_one(0.0)

    def _serve_one(self, timeout_s: float) -> None:
        try:
            request = self._requests.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return
        if self.speed is not None and not self._waits:
            self.cluster.advance(self._now_s())
        try:
            request.reply = self._answer(request.body)
        except (HpctwinError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            if isinstance(error, KeyError):
                said = f"field {error} is missing, or its value is unknown"
            request.reply = {"error": f"bad request: {said}"}
        except Exception as error:
            logger.exception("a request failed: %.200r", request.body)
            request.reply = {"error": f"internal error: {type(error).__name__}"}
        request.done.set()

    def _answer(self, body: dict[str, Any]) -> dict[str, Any] | bytes:
        cluster = self.cluster
        match body.get("op"):
            case "hello":
                return {"cluster": cluster.machine.name, "speed": self.speed or 0.0}
            case "snapshot":
                return b'{"snapshot": ' + cluster.snapshot().model_dump_json().encode() + b"}"
            case "state":
                return {
                    "now_s": cluster.now_s, "seq": cluster.seq, "run": cluster.run,
                    "submitted": cluster.submitted, "rejected": cluster.rejected,
                    "ended": cluster.ended, "open": len(cluster.jobs),
                    "own_scheduling": cluster.own_scheduling, "takeovers": self.takeovers,
                    "done": not cluster.jobs and cluster.next_time() is None,
                    "history": cluster.history if body.get("history") else None,
                }  # fmt: skip
            case "heartbeat":
                cluster.heartbeat(int(body["seq"]))
                self._beat = time.monotonic()
                self._go_on()
                return {}
            case "take_scheduling":
                self._beat = time.monotonic()
                # Earlier events need no confirmation: the twin has them from its snapshot.
                cluster.heartbeat(cluster.seq)
                self._go_on()
                return asdict(cluster.take_scheduling())
            case "restart":
                cluster.restart()
                return {}
            case "leases":
                return {"leases": cluster.leases()}
            case "lease" | "admit":
                if body["op"] == "admit":
                    outcomes = cluster.admit([str(i) for i in body["job_ids"]])
                else:
                    ends = {str(i): float(s) for i, s in body["until_s"].items()}
                    outcomes = cluster.lease(ends)
                cluster.schedule()
                return {"outcomes": {i: asdict(one) for i, one in outcomes.items()}}
        outcome = self._act(body)
        cluster.schedule()
        return asdict(outcome)

    def _go_on(self) -> None:
        """Start the clock if it was waiting for a scheduler."""
        if self._waits:
            self._waits = False
            self._set_clock()

    def _act(self, body: dict[str, Any]) -> Outcome:
        """Carry out a request that changes jobs or nodes."""
        cluster = self.cluster
        match body.get("op"):
            case "give_scheduling":
                return cluster.give_scheduling()
            case "start":
                return cluster.start(str(body["job_id"]))
            case "hold":
                return cluster.hold(str(body["job_id"]))
            case "release":
                return cluster.release(str(body["job_id"]))
            case "set_priority":
                return cluster.set_priority(str(body["job_id"]), float(body["priority"]))
            case "submit":
                spec = JobSpec.model_validate({**body["job"], "submit_s": cluster.now_s})
                runtime_s = body.get("runtime_s")
                return cluster.submit(spec, None if runtime_s is None else _seconds(runtime_s))
            case "cancel":
                return cluster.cancel(str(body["job_id"]))
            case "modify":
                return cluster.modify(str(body["job_id"]), **dict(body["changes"]))
            case "node":
                set_state = {
                    "up": cluster.node_up, "down": cluster.node_down, "drained": cluster.node_drain
                }  # fmt: skip
                return set_state[body["state"]](str(body["name"]))
            case "set_reservation":
                return cluster.set_reservation(NodeReservation.model_validate(body["reservation"]))
            case "remove_reservation":
                return cluster.remove_reservation(str(body["name"]))
            case other:
                raise ValueError(f"unknown op {other!r}")


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"runtime_s is {seconds:g}; it must be 0 to 1e9")
    return seconds


def _warm_up(cluster: EmulatedCluster) -> None:
    """Plan one small job, so that no client waits for loading or compiling later."""
    job = JobRecord(spec=JobSpec(id="1", submit_s=0.0, nodes=1, walltime_s=1.0))
    with contextlib.suppress(HpctwinError):
        machine = cluster.machine.model_copy(update={"partitions": ()})
        cluster.plan(machine, [job], list(cluster.nodes.records), (), 0.0)
