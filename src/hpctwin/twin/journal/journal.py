"""The journal: the durable record of what came in, what was decided, done, forecast, and came true.

One SQLite file in WAL mode, so that it can be read while the twin writes, by its owner only. ``inputs`` holds
everything that enters the core, in order, with a checkpoint of the whole state now and then: from
these any decision can be made again. A write is complete after ``commit``, also if the process is
killed then; a crash of the machine may cost the last commits, but never leaves half of one.
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin._version import __version__
from hpctwin.errors import JournalError
from hpctwin.model.files.files import other_format
from hpctwin.model.files.private_file import make_private
from hpctwin.rms.manager import Outcome
from hpctwin.twin.core.decision import Candidate, Decision
from hpctwin.twin.forecast.records import Forecast, to_keep
from hpctwin.twin.journal.tables import SCHEMA, TABLES, Action, Input

__all__ = ["Journal", "tells_of_life"]

STALE_S = 10.0
"""A twin whose last status is older than this does not run."""

CHECKPOINT_CHARACTERS = 300_000
"""Some thousand events: as long to read and apply again as a checkpoint of thousands of jobs."""


def tells_of_life(said: tuple[float, Any] | None) -> bool:
    """Whether a twin runs, by its last status and when it was written; see `Journal.read_latest`."""
    return said is not None and not said[1]["ended"] and time.time() - said[0] < STALE_S


class Journal:
    """The journal of one twin.

    Args:
        path: the file; made if it is not there, unless only read.
        read_only: for looking into the journal of a running twin.

    Raises:
        JournalError: it cannot be opened, is not a journal, or is of another version, and stays as it is.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.exists():
            raise JournalError(f"{path}: no such journal; `hpctwin twin run` makes one")
        if path.exists() and not os.access(path, os.R_OK):
            raise JournalError(f"{path}: only the twin's own user may read its journal")
        try:
            if not read_only:
                make_private(path)
            where = f"file:{path}?mode={'ro' if read_only else 'rwc'}"
            self._db = sqlite3.connect(where, uri=True, isolation_level=None, timeout=5.0)
            # Before anything is changed: a journal of another version is left as it is.
            if self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                self._check_format()
            elif read_only:
                self._db.close()
                raise JournalError(f"{path}: nothing is recorded yet")
            if not read_only:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                # All tables at once, so that a reader never sees some of them.
                self._db.executescript(
                    f"BEGIN IMMEDIATE; {TABLES}"
                    f"INSERT OR IGNORE INTO meta VALUES ('schema', '{SCHEMA}'); COMMIT;"
                )
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{path}: not a journal that can be used: {error}") from error
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
        """All that is written inside is committed together, or not at all.

        Raises:
            JournalError: the disk is full, or another fault of the file.
        """
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
        """Note the configuration and the versions that all decisions from now on are made with."""
        versions = {
            "hpctwin": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        self._settings = self._insert(
            "settings (at_s, body, versions)", at_s, json.dumps(body), json.dumps(versions)
        )

    def input(self, kind: str, body: str, at_s: float) -> int:
        """Note something that enters the core; its number."""
        self._since_checkpoint += len(body)
        return self._insert("inputs (at_s, kind, body)", at_s, kind, body)

    def checkpoint(self, state: Mapping[str, Any], at_s: float) -> None:
        """Note the core's whole state."""
        packed = zlib.compress(json.dumps(state).encode(), 3)
        self._insert("inputs (at_s, kind, body)", at_s, "checkpoint", packed)
        self._since_checkpoint = 0

    @property
    def checkpoint_due(self) -> bool:
        """Whether so much has come in since the last checkpoint that reading it again takes a while."""
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
        """Note a decision and its kept forecasts; its id."""
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

    def came_true(self, job: str, start_s: float) -> None:
        """A job has started: complete what was forecast of it."""
        self._db.execute(
            "UPDATE forecasts SET came_true_s=? WHERE job=? AND came_true_s IS NULL", (start_s, job)
        )

    def forget(self, job: str) -> None:
        """A job will not start: what was forecast of it cannot come true."""
        self._db.execute("DELETE FROM forecasts WHERE job=? AND came_true_s IS NULL", (job,))

    def intend(self, decision: int, kind: str, job: str, at_s: float) -> int:
        """Note an action before it is sent; its id."""
        return self._insert("actions (decision, kind, job, at_s)", decision, kind, job, at_s)

    def outcome(self, action: int, outcome: Outcome, took_ms: float) -> None:
        """Note what became of an action."""
        self._db.execute(
            "UPDATE actions SET result=?, reason=?, took_ms=? WHERE id=?",
            (outcome.result, outcome.reason, took_ms, action),
        )

    def approve(self, decision: int, approval: str) -> None:
        """Change a decision's approval: ``pending``, ``approved``, ``rejected``, ``lapsed``, ``done``."""
        self._db.execute("UPDATE decisions SET approval=? WHERE id=?", (approval, decision))

    def latest(self, key: str, body: Any, at_s: float) -> None:
        """Replace a record of which only the latest counts."""
        self._db.execute(
            "INSERT OR REPLACE INTO latest VALUES (?,?,?)", (key, at_s, json.dumps(body))
        )

    def delete_before(self, at_s: float) -> None:
        """Delete records older than a time, but nothing that younger decisions need."""
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
        """When it was written, and the record."""
        row = self._one("SELECT at_s, body FROM latest WHERE key=?", key)
        return None if row is None else (row[0], json.loads(row[1]))

    def read_settings(self, settings: int) -> tuple[dict[str, Any], dict[str, str]]:
        """A configuration, and the versions it ran with."""
        row = self._one("SELECT body, versions FROM settings WHERE id=?", settings)
        return json.loads(row[0]), json.loads(row[1])

    def last_settings(self) -> dict[str, Any] | None:
        """The configuration last noted."""
        row = self._one("SELECT body FROM settings ORDER BY id DESC LIMIT 1")
        return None if row is None else json.loads(row[0])

    def read_decision(self, number: int | None = None) -> dict[str, Any] | None:
        """A decision by its id, or the last one; None if it is not there."""
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
        """Future and policy of the what-ifs that did not answer in time, of what `read_decision` gave."""
        row = self._one("SELECT body FROM inputs WHERE id=? AND kind='decide'", decision["input"])
        late = json.loads(row[0]).get("unanswered", ()) if row else ()
        return [(number, policy) for number, policy in late]

    def read_inputs(self, before: int | None = None) -> tuple[dict[str, Any] | None, list[Input]]:
        """The last checkpoint before an input (or at all), and the inputs from there to that one."""
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
        """The inputs after one, by its id, without checkpoints."""
        rows = self._run(
            "SELECT id, at_s, kind, body FROM inputs WHERE id>? AND kind<>'checkpoint' ORDER BY id",
            last,
        ).fetchall()
        return [Input(*row) for row in rows]

    def events_since(self, at_s: float) -> Iterator[str]:
        """Events that came in since a time, by this machine's clock, as JSON text."""
        query = "SELECT body FROM inputs WHERE kind='event' AND at_s>=? ORDER BY id"
        return (row[0] for row in self._run(query, at_s))

    def last_ids(self) -> tuple[int, int]:
        """Ids of the last input, and of the settings last noted; 0 where there is none."""
        inputs = self._one("SELECT coalesce(max(id), 0) FROM inputs")[0]
        return inputs, self._one("SELECT coalesce(max(id), 0) FROM settings")[0]

    def decision_ids(self, limit: int, before: int | None = None) -> list[int]:
        """Ids of the last decisions, newest first.

        Args:
            limit: at most so many.
            before: only those with a smaller id.
        """
        last = 2**62 if before is None else before
        query = "SELECT id FROM decisions WHERE id<? ORDER BY id DESC LIMIT ?"
        return [row[0] for row in self._run(query, last, limit)]

    def decided_after(self, last: int) -> list[tuple[int, str]]:
        """Ids and policies of the decisions after one, oldest first."""
        rows = self._run("SELECT id, policy FROM decisions WHERE id>? ORDER BY id", last)
        return [(int(row[0]), str(row[1])) for row in rows]

    def read_actions(self, *, job: str | None = None, decision: int | None = None) -> list[Action]:
        """The actions of a job or of a decision, oldest first."""
        column, value = ("job", job) if decision is None else ("decision", decision)
        columns = "id, decision, kind, job, at_s, took_ms, result, reason"
        rows = self._run(f"SELECT {columns} FROM actions WHERE {column}=? ORDER BY id", value)
        return [Action(*row) for row in rows.fetchall()]

    def unfinished_actions(self) -> list[Action]:
        """Actions whose outcome was never noted: the twin died while they were on their way."""
        columns = "id, decision, kind, job, at_s, took_ms, result, reason"
        rows = self._run(f"SELECT {columns} FROM actions WHERE result IS NULL ORDER BY id")
        return [Action(*row) for row in rows.fetchall()]

    def read_forecasts(
        self, job: str | None = None, *, decision: int | None = None
    ) -> list[tuple[Forecast, float | None]]:
        """Kept forecasts and when the job started (None: not yet), oldest first.

        Args:
            job: only of this one.
            decision: only those of this decision (its id).
        """
        asked = {"job": job, "decision": decision}
        wanted = {name: value for name, value in asked.items() if value is not None}
        where = "WHERE " + " AND ".join(f"{name}=?" for name in wanted) if wanted else ""
        rows = self._run(
            "SELECT job, made_s, start_s, low_s, high_s, calibrated, nodes, came_true_s"
            f" FROM forecasts {where} ORDER BY id",
            *wanted.values(),
        ).fetchall()
        return [
            (Forecast(r[0], r[1], r[2], r[3], r[4], bool(r[5]), True, r[6]), r[7]) for r in rows
        ]

    def approvals(self, state: str) -> list[tuple[int, float]]:
        """Ids and times of the decisions in a state of approval."""
        return self._run(
            "SELECT id, at_s FROM decisions WHERE approval=? ORDER BY id", state
        ).fetchall()

    def last_choice(self) -> int | None:
        """Id of the last decision in which one policy was better than the others."""
        row = self._one("SELECT max(id) FROM decisions WHERE reason='lowest score'")
        return None if row is None else row[0]

    def starts_by_policy(self) -> dict[str, float]:
        """Share of the starts that were done, by the policy that asked for them."""
        rows = self._run(
            "SELECT policy, count(*) FROM actions JOIN decisions ON decisions.id=decision"
            " WHERE kind='start' AND result='done' GROUP BY policy ORDER BY policy"
        ).fetchall()
        total = sum(count for _, count in rows)
        return {policy: count / total for policy, count in rows}

    def mean_cycle_ms(self) -> float:
        """How long decisions took in the mean."""
        return float(self._one("SELECT coalesce(avg(took_ms), 0) FROM decisions")[0])

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
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
