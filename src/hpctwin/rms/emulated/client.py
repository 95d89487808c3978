"""The emulated cluster as a resource manager over its socket, and its settings."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from hpctwin.errors import CommandError, LostAnswerError, UnreachableError
from hpctwin.model.files import cause
from hpctwin.model.settings import Duration, first_fault
from hpctwin.rms.gate import Gate, JobRequest, Mark, SubmittedJob
from hpctwin.rms.manager import Outcome, PlainManager, ResourceManager, Way
from hpctwin.rms.records.records import JobSpec, Snapshot
from hpctwin.rms.settings import ManagerSettings

logger = logging.getLogger(__name__)

MAX_REPLY = 1 << 30
RETRY_S = 0.5
"""Pause between two attempts to restore a lost subscription."""
RECENT = 10_000
"""Number of last events requested then; known ones do no harm."""


class _SnapshotReply(BaseModel):
    snapshot: Snapshot


class EmulatedManager(PlainManager):
    """Controls an emulated cluster in another process; restores a lost connection.

    Args:
        path: Path of its Unix socket.
        timeout_s: Time limit of each call, in seconds.

    Raises:
        UnreachableError: No cluster answers there.
    """

    def __init__(self, path: str | Path, *, timeout_s: float = 5.0) -> None:
        self.path = str(path)
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._stream: Any = None
        self._feeds: set[socket.socket] = set()
        self._closed = threading.Event()
        said = self.ask("hello")
        super().__init__(str(said["cluster"]))
        self.clock_speed = float(said["speed"])

    def ask(self, op: str, **body: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        try:
            reply = json.loads(self._exchange({"op": op, **body}))
        except ValueError as error:
            raise LostAnswerError(f"{self.path}: the answer is not JSON") from error
        if "error" in reply:
            raise CommandError(f"{self.path}: {reply['error']}")
        found: dict[str, Any] = reply
        return found

    def ways(self) -> frozenset[Way]:
        """Return all ways."""
        return frozenset({"lease", "start", "priority"})

    def snapshot(self) -> Snapshot:
        """Return everything that the cluster knows now."""
        line = self._exchange({"op": "snapshot"})
        try:
            return _SnapshotReply.model_validate_json(line).snapshot
        except ValidationError as error:
            raise UnreachableError(
                f"{self.path}: invalid snapshot: {first_fault(error)}"
            ) from error

    def submit(self, job: JobSpec, runtime_s: float | None = None) -> Outcome:
        """Submit a job.

        Args:
            job: Request of the job; it is submitted now, whatever ``submit_s`` says.
            runtime_s: Runtime; by default a share of its walltime, drawn as its faults say.
        """
        return self._act("submit", job=job.model_dump(mode="json"), runtime_s=runtime_s)

    def cancel(self, job_id: str) -> Outcome:
        """End a pending or running job."""
        return self._act("cancel", job_id=job_id)

    def leases(self) -> Mapping[str, float]:
        """See `ResourceManager`."""
        found: dict[str, float] = self.ask("leases")["leases"]
        return found

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Delay pending jobs until a time."""
        return self._act_on("lease", list(until_s), until_s=dict(until_s))

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """End the leases of jobs."""
        return self._act_on("admit", job_ids, job_ids=list(job_ids))

    def start(self, job_id: str) -> Outcome:
        """Start a pending job now."""
        return self._act("start", job_id=job_id)

    def hold(self, job_id: str) -> Outcome:
        """Keep a pending job from starting."""
        return self._act("hold", job_id=job_id)

    def release(self, job_id: str) -> Outcome:
        """Undo `hold`."""
        return self._act("release", job_id=job_id)

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a pending job's priority."""
        return self._act("set_priority", job_id=job_id, priority=priority)

    def take_scheduling(self) -> Outcome:
        """Ask the cluster to start no job by itself."""
        return self._act("take_scheduling")

    def give_scheduling(self) -> Outcome:
        """Let the cluster schedule by itself again."""
        return self._act("give_scheduling")

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Show that the twin is alive."""
        self.ask("heartbeat", seq=seq)

    def subscribe(self, take: Callable[[bytes], None]) -> None:
        """Pass each event from now on to a function, as a line of JSON, in a thread.

        A lost connection is restored until `close`. The last events are then sent once more, and
        further missed events show as a gap in their numbers.
        """
        feed = self._open_feed(recent=0)
        reading = threading.Thread(
            target=self._read_feed, args=(*feed, take), name="events", daemon=True
        )
        reading.start()

    def identity(self) -> str:
        """See `Identified`."""
        return f"emulated {Path(self.path).absolute()}"

    def close(self) -> None:
        """Close all connections."""
        self._closed.set()
        for feed in list(self._feeds):
            with contextlib.suppress(OSError):
                feed.shutdown(socket.SHUT_RDWR)
        self._hang_up()

    def _act(self, op: str, **body: Any) -> Outcome:
        try:
            reply = self.ask(op, **body)
        except LostAnswerError as error:
            return Outcome("unknown", str(error))
        except CommandError as error:
            return Outcome("refused", str(error))
        return Outcome(reply["result"], reply["reason"])

    def _act_on(self, op: str, jobs: Sequence[str], **body: Any) -> dict[str, Outcome]:
        try:
            said = self.ask(op, **body)["outcomes"]
        except LostAnswerError as error:
            return dict.fromkeys(jobs, Outcome("unknown", str(error)))
        except CommandError as error:
            return dict.fromkeys(jobs, Outcome("refused", str(error)))
        return {job_id: Outcome(**one) for job_id, one in said.items()}

    # --- connections -----------------------------------------------------------------------------

    def _exchange(self, body: dict[str, Any]) -> bytes:
        line = json.dumps(body).encode() + b"\n"
        with self._lock:
            self._send(line)
            try:
                reply: bytes = self._stream.readline(MAX_REPLY)
            except OSError as error:
                self._hang_up()
                raise LostAnswerError(f"{self.path}: no answer: {cause(error)}") from error
            if not reply.endswith(b"\n"):
                self._hang_up()
                raise LostAnswerError(f"{self.path}: the connection was closed")
            return reply

    def _send(self, line: bytes) -> None:
        """Send a request, on a new connection if the other end has closed the old one."""
        known = self._stream is not None
        try:
            if self._stream is None:
                # The file keeps the connection open.
                with self._connect() as connection:
                    self._stream = connection.makefile("rwb")
            self._stream.write(line)
            self._stream.flush()
        except OSError as error:
            # A line without its end was not carried out.
            self._hang_up()
            if not known:
                raise UnreachableError(f"{self.path}: {cause(error)}") from error
            self._send(line)

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self.timeout_s)
        try:
            connection.connect(self.path)
        except OSError:
            connection.close()
            raise
        return connection

    def _open_feed(self, *, recent: int) -> tuple[socket.socket, Any]:
        try:
            with self._connect() as connection:
                line = json.dumps({"op": "subscribe", "recent": recent}).encode() + b"\n"
                connection.sendall(line)
                stream = connection.makefile("rb")
                if b"subscribed" not in stream.readline(MAX_REPLY):
                    stream.close()
                    raise OSError("the subscription was rejected")
                connection.settimeout(None)
                # For a shutdown while the stream is being read.
                feed = connection.dup()
        except OSError as error:
            raise UnreachableError(f"{self.path}: {cause(error)}") from error
        self._feeds.add(feed)
        return feed, stream

    def _read_feed(self, feed: socket.socket, stream: Any, take: Callable[[bytes], None]) -> None:
        while True:
            with feed, contextlib.suppress(OSError), stream:
                for line in stream:
                    # A line that was cut off comes again.
                    if line.endswith(b"\n"):
                        take(line[:-1])
            self._feeds.discard(feed)
            if self._closed.is_set():
                return
            logger.warning("the cluster's event feed has stopped; reconnecting")
            again = None
            while again is None:
                if self._closed.wait(RETRY_S):
                    return
                with contextlib.suppress(UnreachableError):
                    again = self._open_feed(recent=RECENT)
            feed, stream = again


class EmulatedGate:
    """Gate into an emulated cluster: the key is the job's id there.

    The cluster draws the job's runtime.

    Args:
        manager: Manager of the cluster.
    """

    def __init__(self, manager: EmulatedManager) -> None:
        self.manager = manager

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """See `Gate`."""
        labels = job.model_dump(exclude={"key", "name", "script"})
        # The delay counts from the cluster's own clock, so ask for it.
        now_s = float(self.manager.ask("state")["now_s"]) if delay_s else 0.0
        spec = JobSpec(
            id=job.key,
            submit_s=0.0,
            not_before_s=now_s + delay_s if delay_s else None,
            held=True,
            **labels,
        )
        return self.manager.submit(spec), job.key

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """See `Gate`."""
        return {
            job.spec.id: [SubmittedJob(job.spec.id, job.spec.held)]
            for job in self.manager.snapshot().jobs
        }

    def admit(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self.manager.release(job_id)

    def cancel(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self.manager.cancel(job_id)


class EmulatedSettings(ManagerSettings):
    """An emulated cluster in a separate process.

    Args:
        address: Path of its socket.
        timeout: Time limit of each call.
    """

    kind: Literal["emulated"] = "emulated"
    address: str
    timeout: Duration = Field(default=5.0, gt=0)

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        return EmulatedManager(self.address, timeout_s=self.timeout)

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        assert isinstance(manager, EmulatedManager)
        return EmulatedGate(manager)
