"""The emulated cluster as a process: a socket, a clock, and a dead-man's handle.

One JSON object per line in both directions. One thread owns the cluster; those of the connections
hand requests to it, so that everything happens in one order.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpctwin.errors import HpctwinError
from hpctwin.rms.emulated.cluster import EmulatedCluster
from hpctwin.rms.events import Event, event_json
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records import JobSpec, NodeReservation

__all__ = ["MAX_REQUEST", "Server"]

logger = logging.getLogger(__name__)

MAX_REQUEST = 1_000_000
"""Bytes of a request; a longer one ends its connection."""
MAX_BEHIND = 100_000
"""Events that a subscriber may be behind before it is cut off."""
TICK_S = 0.2


@dataclass
class _Request:
    body: dict[str, Any]
    reply: dict[str, Any] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class Server:
    """Serves one emulated cluster.

    Args:
        cluster: made with ``publish=server.publish``; see `attach`.
        path: of the Unix socket.
        speed: seconds of the cluster's clock per second; None for as fast as possible, where the
            clock waits after each instant until the twin, if it is in charge, has dealt with it.
        takeover_s: after so long without a heartbeat the cluster schedules by itself again.
        wait: the clock stands until somebody takes over scheduling for the first time.
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
        self._requests: queue.Queue[_Request] = queue.Queue()
        self._subscribers: list[queue.Queue[str | None]] = []
        self._sinks: list[Callable[[Event], None]] = []
        self._stop = threading.Event()
        self._beat = 0.0
        self._clock = (0.0, 0.0)
        self.cluster: EmulatedCluster

    def attach(self, cluster: EmulatedCluster) -> None:
        """Serve this cluster."""
        self.cluster = cluster

    def publish(self, event: Event) -> None:
        """Give an event to all subscribers and sinks."""
        for sink in self._sinks:
            sink(event)
        if not self._subscribers:
            return
        line = event_json(event) + "\n"
        for lines in list(self._subscribers):
            try:
                lines.put_nowait(line)
            except queue.Full:
                logger.warning("a subscriber is too far behind and is cut off")
                self._subscribers.remove(lines)

    def send_to(self, sink: Callable[[Event], None]) -> None:
        """Give events to a function too, such as a publisher to Redis."""
        self._sinks.append(sink)

    def stop(self) -> None:
        """End `serve`."""
        self._stop.set()

    def serve(self) -> None:
        """Run clock and socket until stopped.

        Raises:
            HpctwinError: the socket cannot be made.
        """
        listener = self._listen()
        accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        accepting.start()
        self._set_clock()
        try:
            while not self._stop.is_set():
                self._watch_heartbeat()
                self._turn()
        finally:
            listener.close()
            self.path.unlink(missing_ok=True)
            for lines in self._subscribers:
                with contextlib.suppress(queue.Full):
                    lines.put_nowait(None)

    # --- the clock -------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Serve what is asked, and let the clock go on as far as it may."""
        due_s = self.cluster.next_time()
        if self._waits or due_s is None:
            self._serve_one(TICK_S)
        elif self.speed is None:
            if self.cluster.own_scheduling or self.cluster.heard >= self.cluster.seq:
                self._serve_all()
                self.cluster.advance(due_s)
            else:
                self._serve_one(min(TICK_S, self.takeover_s / 10))
        else:
            pause_s = (due_s - self._now_s()) / self.speed
            if pause_s > 0:
                self._serve_one(min(TICK_S, pause_s))
            self.cluster.advance(self._now_s())

    def _set_clock(self) -> None:
        self._clock = (self.cluster.now_s, time.monotonic())

    def _now_s(self) -> float:
        now_s, seen_at = self._clock
        return max(self.cluster.now_s, now_s + (time.monotonic() - seen_at) * (self.speed or 0.0))

    def _watch_heartbeat(self) -> None:
        if self.cluster.own_scheduling or time.monotonic() - self._beat <= self.takeover_s:
            return
        logger.warning("no heartbeat for %g s: scheduling by myself again", self.takeover_s)
        self.takeovers += 1
        self.cluster.give_scheduling()

    # --- requests --------------------------------------------------------------------------------

    def _serve_all(self) -> None:
        while not self._requests.empty():
            self._serve_one(0.0)

    def _serve_one(self, timeout_s: float) -> None:
        try:
            request = (
                self._requests.get(timeout=timeout_s)
                if timeout_s > 0
                else (self._requests.get_nowait())
            )
        except queue.Empty:
            return
        if self.speed is not None and not self._waits:
            self.cluster.advance(self._now_s())
        try:
            request.reply = self._answer(request.body)
        except (HpctwinError, KeyError, TypeError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else repr(error)
            request.reply = {"error": f"bad request: {said}"}
        request.done.set()

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        cluster = self.cluster
        match body.get("op"):
            case "hello":
                return {"cluster": cluster.machine.name, "speed": self.speed or 0.0}
            case "snapshot":
                return {"snapshot": cluster.snapshot().model_dump(mode="json")}
            case "state":
                return {
                    "now_s": cluster.now_s, "seq": cluster.seq, "run": cluster.run,
                    "submitted": cluster.submitted, "ended": cluster.ended,
                    "open": len(cluster.jobs), "own_scheduling": cluster.own_scheduling,
                    "takeovers": self.takeovers,
                    "done": not cluster.jobs and cluster.next_time() is None,
                    "history": cluster.history if body.get("history") else None,
                }  # fmt: skip
            case "heartbeat":
                cluster.heartbeat(int(body["seq"]))
                self._beat = time.monotonic()
                return {}
            case "take_scheduling":
                self._beat = time.monotonic()
                # What came before is not waited for: the twin has it from its snapshot.
                cluster.heartbeat(cluster.seq)
                if self._waits:
                    self._waits = False
                    self._set_clock()
                return _outcome(cluster.take_scheduling())
            case "restart":
                cluster.restart()
                return {}
        return _outcome(self._act(body))

    def _act(self, body: dict[str, Any]) -> Outcome:
        """Requests that change jobs or nodes."""
        cluster = self.cluster
        outcome = Outcome("done")
        match body.get("op"):
            case "give_scheduling":
                outcome = cluster.give_scheduling()
            case "start":
                outcome = cluster.start(str(body["job_id"]))
            case "hold":
                outcome = cluster.hold(str(body["job_id"]))
            case "release":
                outcome = cluster.release(str(body["job_id"]))
            case "set_priority":
                outcome = cluster.set_priority(str(body["job_id"]), float(body["priority"]))
            case "submit":
                spec = JobSpec.model_validate({"submit_s": cluster.now_s, **body["job"]})
                outcome = cluster.submit(spec, float(body["runtime_s"]))
            case "cancel":
                outcome = cluster.cancel(str(body["job_id"]))
            case "modify":
                outcome = cluster.modify(str(body["job_id"]), **dict(body["changes"]))
            case "node":
                {"up": cluster.node_up, "down": cluster.node_down, "drained": cluster.node_drain}[
                    body["state"]
                ](str(body["name"]))
            case "set_reservation":
                cluster.set_reservation(NodeReservation.model_validate(body["reservation"]))
            case "remove_reservation":
                cluster.remove_reservation(str(body["name"]))
            case other:
                raise ValueError(f"unknown op {other!r}")
        cluster.schedule()
        return outcome

    # --- connections -----------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.unlink(missing_ok=True)
            listener.bind(str(self.path))
            self.path.chmod(0o600)
            listener.listen(16)
        except OSError as error:
            listener.close()
            raise HpctwinError(f"{self.path}: no socket can be made there: {error}") from error
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
            while line := stream.readline(MAX_REQUEST + 1):
                if len(line) > MAX_REQUEST:
                    return
                try:
                    body = json.loads(line)
                except (ValueError, RecursionError):
                    body = None
                if not isinstance(body, dict):
                    reply: dict[str, Any] = {"error": "bad request: not a JSON object"}
                elif body.get("op") == "subscribe":
                    self._feed(stream)
                    return
                else:
                    request = _Request(body)
                    self._requests.put(request)
                    while not request.done.wait(TICK_S):
                        if self._stop.is_set():
                            return
                    reply = request.reply
                stream.write(json.dumps(reply).encode() + b"\n")
                stream.flush()

    def _feed(self, stream: Any) -> None:
        """Write events as they come until the subscriber goes away."""
        lines: queue.Queue[str | None] = queue.Queue(MAX_BEHIND)
        self._subscribers.append(lines)
        try:
            stream.write(b'{"subscribed": true}\n')
            stream.flush()
            while True:
                line = lines.get()
                if line is None or lines not in self._subscribers:
                    return
                stream.write(line.encode())
                if lines.empty():
                    stream.flush()
        finally:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(lines)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)
