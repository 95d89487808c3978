"""The emulated cluster as a process: a clock, a socket, and a dead-man's handle.

Each direction carries one JSON object per line. One thread owns the cluster. The threads of
connections to its Unix socket pass requests to it, so that everything happens in one order.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.model.files import cause
from hpctwin.rms.emulated.cluster import EmulatedCluster
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.events import Event, event_json
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeReservation

MAX_REQUEST = 1_000_000
"""Longest request, in bytes; the rest of a longer one is skipped."""
MAX_SKIPPED = 100 * MAX_REQUEST
"""Bytes skipped at most; then the connection ends."""
MAX_CONNECTIONS = 64
MAX_BEHIND = 100_000
"""Events that a subscriber may be behind before it is cut off."""
RECENT = 10_000
"""Events kept for subscribers that connect again."""
LOOK_S = 0.2


@dataclass
class Request:
    """A client's request; the owner of the cluster sets ``reply``, then ``done``."""

    body: dict[str, Any]
    reply: dict[str, Any] | bytes = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class Feeds:
    """Subscribers to events, each with its own queue, so that none delays others."""

    def __init__(self) -> None:
        self._queues: list[queue.Queue[bytes | None]] = []
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._lock = threading.Lock()

    def put(self, line: bytes) -> None:
        """Give an event to all subscribers; cut off any that is too far behind."""
        with self._lock:
            self._recent.append(line)
            for lines in list(self._queues):
                if lines.qsize() >= MAX_BEHIND:
                    logger.warning(
                        "a subscriber is too slow: %d events are queued; disconnecting it",
                        MAX_BEHIND,
                    )
                    self._queues.remove(lines)
                else:
                    lines.put(line)

    def open(self, recent: int) -> queue.Queue[bytes | None]:
        """Return a new subscriber's queue, starting with ``recent`` of the last events."""
        lines: queue.Queue[bytes | None] = queue.Queue()
        with self._lock:
            for line in list(self._recent)[max(0, len(self._recent) - recent) :]:
                lines.put(line)
            self._queues.append(lines)
        return lines

    def is_open(self, lines: queue.Queue[bytes | None]) -> bool:
        """Return whether the queue gets further events."""
        return any(known is lines for known in self._queues)

    def drop(self, lines: queue.Queue[bytes | None]) -> None:
        """Remove a subscriber that is gone."""
        with self._lock, contextlib.suppress(ValueError):
            self._queues.remove(lines)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            for lines in self._queues:
                lines.put(None)


class Listener:
    """Accepts connections on a Unix socket for its owner alone, each in a thread.

    Args:
        path: Path of the socket.
        requests: Queue for requests.
        feeds: Source of events.
        stop: Event set at the end.

    Raises:
        ConfigError: The socket cannot be created, or another cluster is served there already.
    """

    def __init__(
        self, path: Path, requests: queue.Queue[Request], feeds: Feeds, stop: threading.Event
    ) -> None:
        self.path = path
        self._requests = requests
        self._feeds = feeds
        self._stop = stop
        self._slots = threading.Semaphore(MAX_CONNECTIONS)
        self._listener = _bind(path)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections, and remove the socket."""
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b'{"error": "too many connections"}\n')
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            connection,
            connection.makefile("rwb") as stream,
            self._slot(),
        ):
            while line := stream.readline(MAX_REQUEST + 1):
                if len(line) > MAX_REQUEST and not _skip_line(stream, line):
                    return
                body = _parse(line)
                if body is None:
                    reply: dict[str, Any] | bytes = {"error": "bad request: expected a JSON object"}
                elif len(line) > MAX_REQUEST:
                    reply = {"error": f"bad request: longer than {MAX_REQUEST} bytes"}
                elif body.get("op") == "subscribe":
                    recent = body.get("recent", 0)
                    self._feed(stream, recent if isinstance(recent, int) else 0)
                    return
                else:
                    request = Request(body)
                    self._requests.put(request)
                    while not request.done.wait(LOOK_S):
                        if self._stop.is_set():
                            return
                    reply = request.reply
                stream.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())
                stream.write(b"\n")
                stream.flush()

    def _feed(self, stream: Any, recent: int) -> None:
        """Write events as they come until the subscriber disconnects."""
        lines = self._feeds.open(recent)
        try:
            stream.write(b'{"subscribed": true}\n')
            stream.flush()
            while (line := lines.get()) is not None and self._feeds.is_open(lines):
                stream.write(line)
                if lines.empty():
                    stream.flush()
        finally:
            self._feeds.drop(lines)

    @contextlib.contextmanager
    def _slot(self) -> Any:
        try:
            yield
        finally:
            self._slots.release()


def _bind(path: Path) -> socket.socket:
    if path.exists() and not path.is_socket():
        raise ConfigError(f"{path}: the file exists and is not a socket; choose another path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            if _is_served(path):
                raise ConfigError(
                    f"{path}: another emulated cluster uses this socket; choose another path"
                )
            path.unlink()
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{path}: the socket cannot be created: {cause(error)}") from error
    except ConfigError:
        listener.close()
        raise
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1.0)
        try:
            trial.connect(str(path))
        except OSError:
            return False
    return True


def _parse(line: bytes) -> dict[str, Any] | None:
    if len(line) > MAX_REQUEST:
        return {}
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _skip_line(stream: Any, line: bytes) -> bool:
    """Read on to the end of a line that is too long; return whether it was found."""
    skipped = 0
    while not line.endswith(b"\n"):
        line = stream.readline(MAX_REQUEST)
        skipped += len(line)
        if not line or skipped > MAX_SKIPPED:
            return False
    return True


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
        wait: Whether the clock stands until a twin starts scheduling for the first time.
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
