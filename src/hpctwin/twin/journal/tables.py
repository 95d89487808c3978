"""Tables of the journal, and the rows of some of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SCHEMA", "TABLES", "Action", "Input"]

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
