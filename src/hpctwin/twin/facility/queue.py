"""The facility's queue: the jobs to place, and the stage of each.

It is one SQLite file in WAL mode, so that users can add jobs while the placer works. Every stage of
a job is on disk before the next step is taken:

``queued`` → ``intended`` (a cluster is chosen) → ``submitted`` (held at the cluster, its id known)
→ ``placed`` (admitted); or ``rejected``, or ``withdrawn`` by its user while it was queued.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from hpctwin.errors import QueueError
from hpctwin.model.files import FileLock, other_format
from hpctwin.model.settings import first_fault
from hpctwin.model.trusted import make_private
from hpctwin.rms.gate import JobRequest

__all__ = ["Queue", "QueuedJob", "Stage"]

Stage = Literal["queued", "intended", "submitted", "placed", "rejected", "withdrawn"]

SCHEMA = 2
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, request TEXT NOT NULL,
    queued_s REAL NOT NULL, stage TEXT NOT NULL, cluster TEXT, job_id TEXT, start_s REAL,
    end_s REAL, reason TEXT NOT NULL DEFAULT '', refused TEXT NOT NULL DEFAULT '{}',
    changed_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (stage) WHERE stage IN ('queued', 'intended', 'submitted');
"""


@dataclass(frozen=True)
class QueuedJob:
    """A job in the queue.

    Args:
        number: Position in the queue.
        request: The job's request.
        queued_s: Time of arrival in the queue, Unix time.
        stage: Stage of the job.
        cluster: Name of the chosen cluster.
        job_id: Id of the job there.
        start_s, end_s: Start and end forecast when the cluster was chosen, Unix time.
        reason: Reason of its stage or cluster, as text.
        refused: Reasons of the clusters that refused it, by cluster.
        changed_s: Time of the last change of its stage, Unix time.
    """

    number: int
    request: JobRequest
    queued_s: float
    stage: Stage
    cluster: str | None = None
    job_id: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    reason: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    changed_s: float = 0.0


class Queue:
    """The queue in a file that only its owner may read.

    ``secret`` is the key of the marks on this queue's jobs; see `hpctwin.rms.gate`.

    Args:
        path: Path of the file, which is created if it does not exist.

    Raises:
        QueueError: The file cannot be opened, or is of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        try:
            # The file has the jobs' scripts, and the secret by which the placer recognizes jobs.
            make_private(path)
            # No isolation level: no transaction stays open between two calls.
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
            # Checked before any change, so that a queue of another version stays as it is.
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, SCHEMA):
                self._db.close()
                raise QueueError(other_format(path, found, SCHEMA))
            self._db.execute("PRAGMA journal_mode=WAL")
            # FULL: a stage is on disk, not only in the system's memory, before the next step.
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
            self._db.execute(f"PRAGMA user_version={SCHEMA}")
            self._db.execute(
                "INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (secrets.token_bytes(32),)
            )
            found = self._db.execute("SELECT value FROM meta WHERE key='secret'").fetchone()
            self.secret: bytes = found[0]
        except (sqlite3.Error, OSError) as error:
            raise QueueError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file, and release the lock for another placer."""
        self._db.close()
        self._lock.release()

    def lock(self) -> None:
        """Lock the queue for this placer, until `close` or the end of the process.

        Raises:
            QueueError: Another placer works on the queue.
        """
        why_not = self._lock.take()
        if why_not is not None:
            raise QueueError(f"{self.path}: another placer uses this queue: {why_not}")

    # --- users -----------------------------------------------------------------------------------

    def add(self, request: JobRequest) -> bool:
        """Add a job; return False if the queue has the same job already.

        Raises:
            QueueError: The queue has another job with the same key.
        """
        body, now = request.model_dump_json(), time.time()
        added = self._run(
            "INSERT INTO jobs (key, request, queued_s, stage, changed_s) "
            "VALUES (?, ?, ?, 'queued', ?) ON CONFLICT (key) DO NOTHING",
            (request.key, body, now, now),
        )
        if not added and self.entry(request.key).request != request:
            raise QueueError(
                f"{self.path}: key {request.key} already belongs to another job; use a new key"
            )
        return bool(added)

    def withdraw(self, key: str) -> None:
        """Withdraw a job that is still queued.

        Raises:
            QueueError: There is no such job, or it is past that stage.
        """
        if not self._step(key, ("queued",), stage="withdrawn", reason="by its user"):
            entry = self.entry(key)
            where = f" at {entry.cluster}, job {entry.job_id}" if entry.job_id else ""
            raise QueueError(f"job {key} is {entry.stage}{where}: it can no longer be canceled")

    def entries(self, *stages: Stage) -> list[QueuedJob]:
        """Return the jobs at the given stages, by default all, in queue order."""
        wanted = stages or get_args(Stage)
        marks = ",".join("?" * len(wanted))
        return self._read(f"WHERE stage IN ({marks}) ORDER BY number", tuple(wanted))

    def entry(self, key: str) -> QueuedJob:
        """Return the job with a key.

        Raises:
            QueueError: There is no such job.
        """
        found = self._read("WHERE key = ?", (key,))
        if not found:
            raise QueueError(f"{self.path}: no job has the key {key}")
        return found[0]

    # --- the placer ------------------------------------------------------------------------------

    def intend(
        self, key: str, cluster: str, start_s: float | None, end_s: float | None, reason: str
    ) -> bool:
        """Record the chosen cluster; return False if the job was withdrawn meanwhile."""
        return self._step(
            key, ("queued",), stage="intended", cluster=cluster, start_s=start_s, end_s=end_s,
            reason=reason,
        )  # fmt: skip

    def submitted(self, key: str, job_id: str) -> None:
        """Record that the job is held at its cluster under an id."""
        self._must(key, ("intended",), stage="submitted", job_id=job_id)

    def placed(self, key: str) -> None:
        """Record that the job was admitted."""
        self._must(key, ("submitted",), stage="placed")

    def refused(self, key: str, cluster: str, reason: str) -> None:
        """Queue a job again that a cluster refused; it is not submitted there again."""
        refused = {**self.entry(key).refused, cluster: reason}
        self._must(
            key, ("intended",), stage="queued", cluster=None, start_s=None, end_s=None,
            refused=json.dumps(refused), reason=f"{cluster}: {reason}",
        )  # fmt: skip

    def not_sent(self, key: str, reason: str) -> None:
        """Queue a job again that certainly did not reach the cluster."""
        self._must(
            key, ("intended",), stage="queued", cluster=None, start_s=None, end_s=None,
            reason=reason,
        )  # fmt: skip

    def reject(self, key: str, reason: str) -> None:
        """Record that no cluster can run the job."""
        self._step(key, ("queued",), stage="rejected", reason=reason)

    # --- SQLite ----------------------------------------------------------------------------------

    def _must(self, key: str, before: tuple[Stage, ...], **changes: str | float | None) -> None:
        if not self._step(key, before, **changes):
            raise QueueError(
                f"{self.path}: job {key} is {self.entry(key).stage}, not "
                f"{' or '.join(before)}; check whether another program changed the queue"
            )

    def _step(self, key: str, before: tuple[Stage, ...], **changes: str | float | None) -> bool:
        values = {**changes, "changed_s": time.time()}
        sets = ", ".join(f"{name} = ?" for name in values)
        marks = ",".join("?" * len(before))
        text = f"UPDATE jobs SET {sets} WHERE key = ? AND stage IN ({marks})"
        return bool(self._run(text, (*values.values(), key, *before)))

    def _run(self, text: str, values: tuple[str | float | None, ...]) -> int:
        try:
            return self._db.execute(text, values).rowcount
        except sqlite3.Error as error:
            raise QueueError(f"{self.path}: {error}") from error

    def _read(self, where: str, values: tuple[str, ...]) -> list[QueuedJob]:
        columns = (
            "number, request, queued_s, stage, cluster, job_id, start_s, end_s, reason, refused, "
            "changed_s"
        )
        try:
            rows = self._db.execute(f"SELECT {columns} FROM jobs {where}", values).fetchall()
            return [_entry(*row) for row in rows]
        except ValidationError as error:
            raise QueueError(f"{self.path}: a job's request: {first_fault(error)}") from error
        except (sqlite3.Error, ValueError) as error:
            raise QueueError(f"{self.path}: {error}") from error


def _entry(number: int, request: str, queued_s: float, stage: Stage, *rest: Any) -> QueuedJob:
    cluster, job_id, start_s, end_s, reason, refused, changed_s = rest
    return QueuedJob(
        number, JobRequest.model_validate_json(request), queued_s, stage, cluster, job_id, start_s,
        end_s, reason, json.loads(refused), changed_s,
    )  # fmt: skip
