"""What the journal's tables hold."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SCHEMA", "TABLES", "Action", "Input"]

SCHEMA = 2
"""The version of the tables."""

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
CREATE TABLE IF NOT EXISTS latest (key TEXT PRIMARY KEY, at_s REAL NOT NULL, body TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Input:
    """Something that entered the core.

    Args:
        id: its place in the order.
        at_s: when, by this machine's clock.
        kind: ``event``, ``snapshot``, ``asked``, ``refused``, ``gap``, ``decide``, ``checkpoint``.
        body: JSON text.
    """

    id: int
    at_s: float
    kind: str
    body: str


@dataclass(frozen=True)
class Action:
    """Something that the cluster was asked to do.

    Args:
        id: its number.
        decision: that of the decision that it comes from.
        kind: ``start``, ``set_priority`` and the like.
        job: the job's id.
        at_s: when it was sent, seconds since the epoch.
        took_ms: until the answer came, ms; None while there is none.
        result: ``done``, ``refused`` or ``unknown``; None while nothing is known.
        reason: why not, in the resource manager's words.
    """

    id: int
    decision: int
    kind: str
    job: str
    at_s: float
    took_ms: float | None
    result: str | None
    reason: str | None
