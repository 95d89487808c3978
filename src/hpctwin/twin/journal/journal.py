"""The durable record of inputs, decisions, actions, forecasts and actual starts.

The journal is one SQLite file in WAL mode, so that it can be read while the twin writes. Only its
owner may read it. The table ``inputs`` holds everything that enters the core, in order, with a
checkpoint of the whole state from time to time. Any decision can be repeated from these.

A write is complete after ``commit``, even if the process is killed right after it. A crash of the
host may lose the last commits, but never leaves half of one.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin._version import __version__
from hpctwin.errors import JournalError
from hpctwin.model.files import other_format
from hpctwin.model.trusted import make_private
from hpctwin.rms.manager import Outcome
from hpctwin.twin.core.decision import Candidate, Decision
from hpctwin.twin.forecast.forecaster import Forecast, to_keep

__all__ = ["SCHEMA", "TABLES", "Action", "Input", "Journal", "tells_of_life"]

SCHEMA = 2
"""Version of the tables."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, body TEXT NOT NULL, versions TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS inputs (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS inputs_kind ON inputs (kind, id) WHERE kind IN ('checkpoint', 'decide');
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY, input INTEGER NOT NULL, settings INTEGER NOT NULL, at_s REAL NOT NULL,
    took_ms REAL NOT NULL, number INTEGER NOT NULL, time_s REAL NOT NULL, seq INTEGER NOT NULL,
    state TEXT NOT NULL, seed INTEGER NOT NULL, policy TEXT NOT NULL, reason TEXT NOT NULL,
    before TEXT NOT NULL, waiting INTEGER NOT NULL, free_nodes INTEGER NOT NULL,
    candidates TEXT NOT NULL, starts TEXT NOT NULL, approval TEXT);
CREATE INDEX IF NOT EXISTS decisions_pending ON decisions (approval) WHERE approval IS NOT NULL;
CREATE TABLE IF NOT EXISTS actions (
    id INTEGER PRIMARY KEY, decision INTEGER NOT NULL, kind TEXT NOT NULL, job TEXT NOT NULL,
    at_s REAL NOT NULL, took_ms REAL, result TEXT, reason TEXT);
CREATE INDEX IF NOT EXISTS actions_job ON actions (job);
CREATE INDEX IF NOT EXISTS actions_decision ON actions (decision);
CREATE TABLE IF NOT EXISTS forecasts (
    id INTEGER PRIMARY KEY, decision INTEGER NOT NULL, job TEXT NOT NULL, made_s REAL NOT NULL,
    start_s REAL, low_s REAL, high_s REAL, calibrated INTEGER NOT NULL,
    nodes INTEGER NOT NULL, came_true_s REAL);
CREATE INDEX IF NOT EXISTS forecasts_open ON forecasts (job) WHERE came_true_s IS NULL;
CREATE TABLE IF NOT EXISTS history (
    step_s INTEGER NOT NULL, at_s INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (step_s, at_s)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest (key TEXT PRIMARY KEY, at_s REAL NOT NULL, body TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Input:
    """An input of the core.

    Args:
        id: Number of the input, in order.
        at_s: Time of receipt by this host's clock, in seconds since the epoch.
        kind: ``event``, ``snapshot``, ``asked``, ``refused``, ``gap``, ``decide``, ``checkpoint``.
        body: Content as JSON text.
    """

    id: int
    at_s: float
    kind: str
    body: str


@dataclass(frozen=True)
class Action:
    """An action that was requested from the cluster.

    Args:
        id: Id of the action.
        decision: Id of the decision that the action follows from.
        kind: Kind of action, such as ``start`` or ``set_priority``.
        job: Id of the job.
        at_s: Time of sending, in seconds since the epoch.
        took_ms: Time until the answer, in ms; None before that.
        result: ``done``, ``refused`` or ``unknown``; None before the answer.
        reason: Reason of a failure, in the resource manager's words.
    """

    id: int
    decision: int
    kind: str
    job: str
    at_s: float
    took_ms: float | None
    result: str | None
    reason: str | None


STALE_S = 10.0
"""A twin counts as ended if its last status is older than this, in seconds."""

CHECKPOINT_CHARACTERS = 300_000
"""Size of the inputs after which a checkpoint is due.

These are some thousand events. They take as long to read and apply as a checkpoint of thousands of
jobs.
"""


def tells_of_life(said: tuple[float, Any] | None) -> bool:
    """Return whether a twin runs.

    Args:
        said: Its last status and when that was written; see `Journal.read_latest`.
    """
    return said is not None and not said[1]["ended"] and time.time() - said[0] < STALE_S


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file is at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Journal:
    """The journal of one twin.

    Args:
        path: Path of the file, which is created if it does not exist, unless ``read_only``.
        read_only: Whether the journal is only read, for example that of a running twin.

    Raises:
        JournalError: The file cannot be opened, is not a journal, or is of another version; it
            stays unchanged.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.exists():
            raise JournalError(f"{path}: journal does not exist; make one with `hpctwin twin run`")
        if path.exists() and not os.access(path, os.R_OK):
            raise JournalError(f"{path}: only the twin's user may read its journal")
        try:
            if not read_only:
                make_private(path)
            where = f"file:{path}?mode={'ro' if read_only else 'rwc'}"
            self._db = sqlite3.connect(where, uri=True, isolation_level=None, timeout=5.0)
            # Checked before any change, so that a journal of another version stays as it is.
            if self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                self._check_format()
            elif read_only:
                self._db.close()
                raise JournalError(
                    f"{path}: file is empty; give a journal that `hpctwin twin run` has written"
                )
            if not read_only:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                # All tables in one transaction, so that a reader sees all of them or none.
                self._db.executescript(
                    f"BEGIN IMMEDIATE; {TABLES}"
                    f"INSERT OR IGNORE INTO meta VALUES ('schema', '{SCHEMA}'); COMMIT;"
                )
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{path}: not a usable journal: {error}") from error
        self._file = _identity(path)
        self._settings = 0
        self._since_checkpoint = 0

    def _check_format(self) -> None:
        found = self._db.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
        if found is None or found[0] != str(SCHEMA):
            self._db.close()
            raise JournalError(other_format(self.path, found and found[0], SCHEMA))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Commit everything that is written in this context together, or nothing.

        Raises:
            JournalError: The file cannot be written, for example because the disk is full, or it is
                no longer at its path, where readers look for it.
        """
        if _identity(self.path) != self._file:
            raise JournalError(
                f"{self.path}: was deleted or replaced while the twin runs; restart the twin"
            )
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                failed = JournalError(f"{self.path}: cannot be written: {error}")
                failed.exit_code = 1
                raise failed from error
            raise

    # --- writing, inside `writing` ---------------------------------------------------------------

    def settings(self, body: Mapping[str, Any], at_s: float) -> None:
        """Record the configuration and the versions that later decisions are made with."""
        versions = {
            "hpctwin": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        self._settings = self._insert(
            "settings (at_s, body, versions)", at_s, json.dumps(body), json.dumps(versions)
        )

    def input(self, kind: str, body: str, at_s: float) -> int:
        """Record an input of the core and return its id."""
        self._since_checkpoint += len(body)
        return self._insert("inputs (at_s, kind, body)", at_s, kind, body)

    def checkpoint(self, state: Mapping[str, Any], at_s: float) -> None:
        """Record the whole state of the core."""
        packed = zlib.compress(json.dumps(state).encode(), 3)
        self._insert("inputs (at_s, kind, body)", at_s, "checkpoint", packed)
        self._since_checkpoint = 0

    @property
    def checkpoint_due(self) -> bool:
        """Whether the inputs since the last checkpoint would take long to read again."""
        return self._since_checkpoint > CHECKPOINT_CHARACTERS

    def decision(
        self,
        decision: Decision,
        *,
        input_id: int,
        at_s: float,
        took_ms: float,
        approval: str | None,
    ) -> int:
        """Record a decision and its kept forecasts, and return the decision's id."""
        row = self._insert(
            "decisions (input, settings, at_s, took_ms, number, time_s, seq, state, seed, policy,"
            " reason, before, waiting, free_nodes, candidates, starts, approval)",
            input_id, self._settings, at_s, took_ms, decision.number, decision.time_s, decision.seq,
            decision.state, decision.seed, decision.policy, decision.reason, decision.before,
            decision.waiting, decision.free_nodes,
            json.dumps([asdict(c) for c in decision.candidates]), json.dumps(decision.starts),
            approval,
        )  # fmt: skip
        self._db.executemany(
            "INSERT INTO forecasts (decision, job, made_s, start_s, low_s, high_s, calibrated, nodes)"
            " VALUES (?,?,?,?,?,?,?,?)",
            [
                (row, f.job_id, f.made_s, f.start_s, f.low_s, f.high_s, f.calibrated, f.nodes)
                for f in to_keep(decision.forecasts)
            ],
        )
        return row

    def came_true(self, job: str, start_s: float) -> Forecast | None:
        """Record a job's actual start in all its open forecasts, and return the first of them."""
        first = self._forecasts("WHERE job=? AND came_true_s IS NULL ORDER BY id LIMIT 1", job)
        if not first:
            return None
        self._db.execute(
            "UPDATE forecasts SET came_true_s=? WHERE job=? AND came_true_s IS NULL", (start_s, job)
        )
        return first[0][0]

    def forget(self, job: str) -> None:
        """Delete the open forecasts of a job that will not start."""
        self._db.execute("DELETE FROM forecasts WHERE job=? AND came_true_s IS NULL", (job,))

    def intend(self, decision: int, kind: str, job: str, at_s: float) -> int:
        """Record an action before it is sent, and return its id."""
        return self._insert("actions (decision, kind, job, at_s)", decision, kind, job, at_s)

    def outcome(self, action: int, outcome: Outcome, took_ms: float) -> None:
        """Record the outcome of an action."""
        self._db.execute(
            "UPDATE actions SET result=?, reason=?, took_ms=? WHERE id=?",
            (outcome.result, outcome.reason, took_ms, action),
        )

    def approve(self, decision: int, approval: str, *, before: str = "pending") -> bool:
        """Set the approval of a decision, and return whether it was still as expected.

        Args:
            decision: Id of the decision.
            approval: ``approved``, ``rejected``, ``lapsed``, ``superseded`` or ``done``.
            before: Expected approval; if another process has changed it, nothing changes.
        """
        changed = self._db.execute(
            "UPDATE decisions SET approval=? WHERE id=? AND approval=?",
            (approval, decision, before),
        )
        return changed.rowcount == 1

    def latest(self, key: str, body: Any, at_s: float) -> None:
        """Replace a record whose latest version alone is kept."""
        self._db.execute(
            "INSERT OR REPLACE INTO latest VALUES (?,?,?)", (key, at_s, json.dumps(body))
        )

    def history(self, step_s: int, at_s: int, body: str, most: int) -> None:
        """Replace the row of a period, and delete the oldest rows beyond a number.

        Args:
            step_s: Length of the period, in seconds.
            at_s: Begin of the period.
            body: Content as JSON text; see `hpctwin.twin.journal.history`.
            most: Number of rows of this length that are kept.
        """
        self._db.execute("INSERT OR REPLACE INTO history VALUES (?,?,?)", (step_s, at_s, body))
        self._db.execute(
            "DELETE FROM history WHERE step_s=?1 AND at_s<=(SELECT at_s FROM history"
            " WHERE step_s=?1 ORDER BY at_s DESC LIMIT 1 OFFSET ?2)",
            (step_s, most),
        )

    def delete_before(self, at_s: float) -> None:
        """Delete records from before a time, except inputs that later decisions need."""
        kept = self._one("SELECT max(id) FROM inputs WHERE kind='checkpoint' AND at_s<=?", at_s)
        if kept[0] is not None:
            self._db.execute("DELETE FROM inputs WHERE id<?", (kept[0],))
        for table in ("decisions", "actions"):
            self._db.execute(f"DELETE FROM {table} WHERE at_s<?", (at_s,))
        self._db.execute(
            "DELETE FROM forecasts WHERE decision<(SELECT coalesce(min(id),0) FROM decisions)"
        )

    # --- reading ---------------------------------------------------------------------------------

    def read_latest(self, key: str) -> tuple[float, Any] | None:
        """Return when a record was written, and the record; None if there is none."""
        row = self._one("SELECT at_s, body FROM latest WHERE key=?", key)
        return None if row is None else (row[0], json.loads(row[1]))

    def read_settings(self, settings: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a configuration by its id, and the versions it ran with."""
        row = self._one("SELECT body, versions FROM settings WHERE id=?", settings)
        return json.loads(row[0]), json.loads(row[1])

    def last_settings(self) -> dict[str, Any] | None:
        """Return the configuration recorded last; None if there is none."""
        row = self._one("SELECT body FROM settings ORDER BY id DESC LIMIT 1")
        return None if row is None else json.loads(row[0])

    def read_decision(self, number: int | None = None) -> dict[str, Any] | None:
        """Return a decision by its id, by default the last one; None if not found."""
        where, values = ("WHERE id=?", (number,)) if number else ("ORDER BY id DESC LIMIT 1", ())
        cursor = self._run(f"SELECT * FROM decisions {where}", *values)
        row = cursor.fetchone()
        if row is None:
            return None
        names = [column[0] for column in cursor.description]
        found = dict(zip(names, row, strict=True))
        candidates = json.loads(found["candidates"])
        found["candidates"] = [Candidate(**{**c, "starts": tuple(c["starts"])}) for c in candidates]
        found["starts"] = tuple(json.loads(found["starts"]))
        return found

    def unanswered(self, decision: dict[str, Any]) -> list[tuple[int, str]]:
        """Return future and policy of each what-if that missed its deadline."""
        row = self._one("SELECT body FROM inputs WHERE id=? AND kind='decide'", decision["input"])
        late = json.loads(row[0]).get("unanswered", ()) if row else ()
        return [(number, policy) for number, policy in late]

    def read_inputs(self, before: int | None = None) -> tuple[dict[str, Any] | None, list[Input]]:
        """Return the last checkpoint before an input, and the inputs from there to it.

        Args:
            before: Id of the input; by default everything up to the end is returned.
        """
        last = before if before is not None else 2**62
        row = self._one(
            "SELECT id, body FROM inputs WHERE kind='checkpoint' AND id<? ORDER BY id DESC LIMIT 1",
            last,
        )
        first = row[0] if row else 0
        state = json.loads(zlib.decompress(row[1])) if row else None
        rows = self._run(
            "SELECT id, at_s, kind, body FROM inputs"
            " WHERE id>? AND id<=? AND kind<>'checkpoint' ORDER BY id",
            first, last,
        ).fetchall()  # fmt: skip
        return state, [Input(*row) for row in rows]

    def inputs_after(self, last: int) -> list[Input]:
        """Return the inputs with a larger id than a given one, without checkpoints."""
        rows = self._run(
            "SELECT id, at_s, kind, body FROM inputs WHERE id>? AND kind<>'checkpoint' ORDER BY id",
            last,
        ).fetchall()
        return [Input(*row) for row in rows]

    def events_since(self, at_s: float) -> Iterator[str]:
        """Return the events received since a time by this host's clock, as JSON text."""
        query = "SELECT body FROM inputs WHERE kind='event' AND at_s>=? ORDER BY id"
        return (row[0] for row in self._run(query, at_s))

    def last_ids(self) -> tuple[int, int]:
        """Return the ids of the last input and of the last settings; 0 if there is none."""
        inputs = self._one("SELECT coalesce(max(id), 0) FROM inputs")[0]
        return inputs, self._one("SELECT coalesce(max(id), 0) FROM settings")[0]

    def decision_ids(self, limit: int, before: int | None = None) -> list[int]:
        """Return the ids of the last decisions, newest first.

        Args:
            limit: Maximum number of ids.
            before: Upper bound of the ids, excluded.
        """
        last = 2**62 if before is None else before
        query = "SELECT id FROM decisions WHERE id<? ORDER BY id DESC LIMIT ?"
        return [row[0] for row in self._run(query, last, limit)]

    def decided_after(self, last: int) -> list[tuple[int, str, float]]:
        """Return ids, policies and durations in ms of the decisions after an id, oldest first."""
        rows = self._run("SELECT id, policy, took_ms FROM decisions WHERE id>? ORDER BY id", last)
        return [(int(row[0]), str(row[1]), float(row[2])) for row in rows]

    def read_actions(self, *, job: str | None = None, decision: int | None = None) -> list[Action]:
        """Return the actions of a job or of a decision, oldest first."""
        column, value = ("job", job) if decision is None else ("decision", decision)
        columns = "id, decision, kind, job, at_s, took_ms, result, reason"
        rows = self._run(f"SELECT {columns} FROM actions WHERE {column}=? ORDER BY id", value)
        return [Action(*row) for row in rows.fetchall()]

    def unfinished_actions(self) -> list[Action]:
        """Return the actions without an outcome: the twin ended before the answer came."""
        columns = "id, decision, kind, job, at_s, took_ms, result, reason"
        rows = self._run(f"SELECT {columns} FROM actions WHERE result IS NULL ORDER BY id")
        return [Action(*row) for row in rows.fetchall()]

    def read_forecasts(
        self, job: str | None = None, *, decision: int | None = None
    ) -> list[tuple[Forecast, float | None]]:
        """Return kept forecasts with the job's start (None: not yet), oldest first."""
        asked = {"job": job, "decision": decision}
        wanted = {name: value for name, value in asked.items() if value is not None}
        where = "WHERE " + " AND ".join(f"{name}=?" for name in wanted) if wanted else ""
        return self._forecasts(f"{where} ORDER BY id", *wanted.values())

    def _forecasts(self, where: str, *values: Any) -> list[tuple[Forecast, float | None]]:
        rows = self._run(
            "SELECT job, made_s, start_s, low_s, high_s, calibrated, nodes, came_true_s"
            f" FROM forecasts {where}",
            *values,
        ).fetchall()
        return [
            (Forecast(r[0], r[1], r[2], r[3], r[4], bool(r[5]), True, r[6]), r[7]) for r in rows
        ]

    def read_history(
        self, step_s: int, from_s: float, to_s: float, limit: int
    ) -> list[tuple[int, dict[str, Any]]]:
        """Return begin and content of periods, oldest first."""
        if not self._one("SELECT 1 FROM sqlite_master WHERE name='history'"):
            return []  # a version without this table wrote the journal
        rows = self._run(
            "SELECT at_s, body FROM history WHERE step_s=? AND at_s BETWEEN ? AND ?"
            " ORDER BY at_s LIMIT ?",
            step_s, from_s, to_s, limit,
        ).fetchall()  # fmt: skip
        return [(row[0], json.loads(row[1])) for row in rows]

    def approvals(self, state: str) -> list[tuple[int, float]]:
        """Return ids and times of the decisions with a given approval."""
        return self._run(
            "SELECT id, at_s FROM decisions WHERE approval=? ORDER BY id", state
        ).fetchall()

    def last_choice(self) -> int | None:
        """Return the id of the last decision in which one policy had the lowest score."""
        row = self._one("SELECT max(id) FROM decisions WHERE reason='lowest score'")
        return None if row is None else row[0]

    def starts_by_policy(self) -> dict[str, float]:
        """Return each policy's share of the completed starts."""
        rows = self._run(
            "SELECT policy, count(*) FROM actions JOIN decisions ON decisions.id=decision"
            " WHERE kind='start' AND result='done' GROUP BY policy ORDER BY policy"
        ).fetchall()
        total = sum(count for _, count in rows)
        return {policy: count / total for policy, count in rows}

    def mean_cycle_ms(self) -> float:
        """Return the mean time that a decision took, in ms."""
        return float(self._one("SELECT coalesce(avg(took_ms), 0) FROM decisions")[0])

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        tables = ("inputs", "decisions", "actions", "forecasts")
        return {table: self._one(f"SELECT count(*) FROM {table}")[0] for table in tables}

    def _insert(self, target: str, *values: Any) -> int:
        marks = ",".join("?" * len(values))
        row = self._run(f"INSERT INTO {target} VALUES ({marks})", *values).lastrowid
        assert row is not None
        return row

    def _one(self, query: str, *values: Any) -> Any:
        return self._run(query, *values).fetchone()

    def _run(self, query: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._db.execute(query, values)
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: {error}") from error
