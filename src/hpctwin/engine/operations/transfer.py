"""Continuation with other jobs: a simulation keeps some jobs and gets new ones.

Nothing here looks ahead: later jobs change nothing until the first of them is submitted. A
simulation that is stopped before that and then gets these jobs continues as if it had always known
them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.array_allocation import copied, in_bytes
from hpctwin.engine.state.layout import (
    COMPLETED,
    LAYOUT,
    NEVER,
    PAUSES,
    RUNNING,
    SENT_BACK,
    STRETCH,
    UNSUBMITTED,
)
from hpctwin.engine.state.sim import Sim, records

__all__ = [
    "add_pending_dependencies",
    "are_suspended",
    "begun_ms",
    "cut_off",
    "earliest_start_ms",
    "ended_jobs",
    "had_pauses",
    "lengthen_chains",
    "paused_ms",
    "settled_jobs",
    "started_ms",
    "transfer_state",
]  # fmt: skip

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_SAME = (
    "rank", "stock", "spent", "tail", "switching", "timeouts", "index", "summary", "tally", "own",
    "power_kept", "node", "used",
)  # fmt: skip


def ended_jobs(sim: Sim) -> BoolArray:
    """Return which jobs have ended [jobs]."""
    phase = sim["state"]["phase"]
    found: BoolArray = (phase >= COMPLETED) & (phase != UNSUBMITTED)
    return found


def settled_jobs(sim: Sim) -> BoolArray:
    """Return which jobs have ended and will cause no event time any more [jobs].

    If nodes have a power model, their attempts also ended by the last end of any job: energy is
    accounted up to that time.
    """
    clock = sim.clock
    settled = ended_jobs(sim)
    if sim["rules"]["depths"][0] > 0:
        lost = sim["lost"][: clock.lost]
        settled[lost["job"][lost["end"] > clock.ended]] = False
    settled[sim["by_cancel"][clock.cancels_done :]] = False
    waiting = sim["releases"]["job"][: clock.releases]
    settled[np.where(waiting < 0, -1 - waiting, waiting)] = False
    return settled


def are_suspended(sim: Sim) -> BoolArray:
    """Return which jobs were suspended since their last start, and may still be [jobs]."""
    if not len(sim["beneath"]):
        return np.zeros(len(sim["state"]), np.bool_)
    found: BoolArray = sim["cut"]["pauses"] > 0
    return found


def cut_off(sim: Sim) -> npt.NDArray[np.void]:
    """Return the attempts that were cut off; a suspension ends no attempt."""
    lost = sim["lost"][: sim.clock.lost]
    found: npt.NDArray[np.void] = lost[lost["what"] != STRETCH]
    return found


def had_pauses(job: IntArray, start: IntArray, sim: Sim) -> BoolArray:
    """Return whether jobs were suspended in the attempts that began at some times [attempts]."""
    found: BoolArray = are_suspended(sim)[job] & (started_ms(sim)[job] == start)
    before = cut_off(sim)
    before = before[before["what"] == PAUSES]
    if len(before):
        known = set(before[["job", "start"]].tolist())
        found |= np.array([one in known for one in zip(job.tolist(), start.tolist(), strict=True)])
    return found


def started_ms(sim: Sim) -> IntArray:
    """Return when jobs started, ms; -1 if they have not [jobs].

    For requeued jobs it is the last start; -1 while nodes are cleaned up before they are requeued.
    """
    state = sim["state"]
    start: IntArray = state["start"].copy()
    if len(sim["cut"]):
        start -= sim["cut"]["paused"]
    if sim["rules"]["cleanup"][0] > 0:
        cleaned = (state["phase"] == RUNNING) & (state["end"] <= sim.clock.now)
        start[cleaned & (state["outcome"] == SENT_BACK)] = -1
    return start


def paused_ms(sim: Sim) -> IntArray:
    """Return how long jobs have been suspended up to now, ms [jobs]."""
    cut = sim["cut"]
    now = sim.clock.now - started_ms(sim) - cut["ran"]
    paused: IntArray = np.where(cut["suspended"] == 1, now, cut["paused"]) + cut["before"]
    return paused


def begun_ms(sim: Sim) -> IntArray:
    """Return when jobs began for the first time, ms; -1 if they have not [jobs]."""
    state = sim["state"]
    begun: IntArray = np.where(state["started"] == 1, started_ms(sim), -1)
    lost = sim["lost"][: sim.clock.lost][
        ::-1
    ]  # of two attempts of a job, the first one is written last
    begun[lost["job"]] = lost["start"]
    return begun


def earliest_start_ms(sim: Sim, rows: IntArray) -> int:
    """Return when the first attempt of some jobs started, ms; `NEVER` if none has.

    Args:
        sim: Simulation.
        rows: Rows of the jobs.
    """
    start = started_ms(sim)[rows]
    lost = sim["lost"][: sim.clock.lost]
    attempts = lost["start"][np.isin(lost["job"], rows)]
    return int(min(start[start >= 0].min(initial=NEVER), attempts.min(initial=NEVER)))


def transfer_state(old: Sim, new: Sim, rows: IntArray, to: IntArray, *, waits: bool) -> None:
    """Continue one simulation in another, with some of its jobs and further ones.

    Args:
        old: Simulation, between two event times; all jobs that are not settled are transferred.
        new: Arrays of the same cluster and policy, in which nothing has happened. Its new jobs are
            submitted after the present time.
        rows: Rows of the transferred jobs, sorted.
        to: Their rows in ``new``, sorted.
        waits: Whether jobs may have to wait for jobs that are no longer there.
    """
    place = np.full(old.jobs + 1, -1, np.int64)
    place[rows] = to
    lost, segment = (_of_jobs(old, name, place) for name in ("lost", "segment"))
    tables = {
        "outage": old["outage"],
        "lost": _with_room(lost, 2 * old.clock.running),
        "segment": _with_room(segment, 2 * len(old["node"])),
        "log": old["log"],
    }
    if len(old["share"]):
        tables |= _parts_and_promises(old, new, place)
    new.reshape(**tables)
    _carry_clock(old, new, rows)
    new["clock"]["lost"], new["clock"]["segments"] = len(lost), len(segment)
    for name in ("state", "taken", "kept", "cut"):
        if len(new[name]):
            new[name][to] = old[name][rows]
    clock = old.clock
    new["queue"][: clock.queued] = place[old["queue"][: clock.queued]]
    for name, entries in (
        ("ends", old["ends"][: clock.ends]),
        ("run", old.running),
        ("begins", old["begins"][: clock.begins]),
    ):
        new[name][: len(entries)] = entries
        new[name]["job"][: len(entries)] = place[entries["job"]]
    _carry_releases(old, new, place)
    for name in _SAME:
        in_bytes(new[name])[...] = in_bytes(old[name])
    new["node"]["job"] = place[old["node"]["job"]]
    new["beneath"][...] = place[old["beneath"]]
    if len(old["share"]):
        _carry_shared(old, new, _part_rows(old, place), to)
    _carry_labels(old, new)
    if len(new["held"]):
        from hpctwin.engine.queue.limits import count_held

        count_held(new)
    if waits and not len(new["tells"]):
        # The engine checks for failed dependencies only if this table is not empty.
        new.know(tells=records("tells", 1))


def add_pending_dependencies(
    sim: Sim, rows: IntArray, more_open: IntArray, release_ms: IntArray, dead: BoolArray
) -> None:
    """Add the state of missing dependencies to jobs that are not submitted yet.

    The jobs that these depend on are no longer in the simulation.

    Args:
        sim: Simulation.
        rows: Rows of the jobs.
        more_open: Number of further open dependencies of each.
        release_ms: Latest time at which one of them was satisfied; -1 if none was.
        dead: Whether one of them failed.
    """
    state = sim["state"]
    state["open"][rows] += more_open
    state["release"][rows] = np.maximum(state["release"][rows], release_ms)
    state["dead"][rows] |= dead


def lengthen_chains(sim: Sim, rows: IntArray, on: IntArray) -> None:
    """Lengthen the chains behind newly added jobs that other jobs depend on.

    Args:
        sim: Simulation.
        rows: Rows of the dependent jobs.
        on: Row of the job that each depends on.
    """
    state = sim["state"]
    there = (state["phase"][rows] != UNSUBMITTED) & (sim["job"]["thinks"][rows] == 0)
    rows, on = rows[there], on[there]
    np.maximum.at(state["chain"], on, state["chain"][rows] + sim["job"]["expected"][rows])


def _carry_clock(old: Sim, new: Sim, rows: IntArray) -> None:
    there = new["clock"]
    there[...] = old["clock"]
    clock = new.clock
    clock.alive += new.jobs - len(rows)
    clock.arrival_end = new.jobs
    clock.run_first, clock.run_end = 0, clock.running
    clock.arrived = np.count_nonzero(old["state"]["phase"][rows] != UNSUBMITTED)
    clock.cancels_done = np.isin(old["by_cancel"][: clock.cancels_done], rows).sum()


def _carry_releases(old: Sim, new: Sim, place: IntArray) -> None:
    """Copy the heap of releases.

    A job that waits for its nodes is in it only if other jobs wait for its start.
    """
    entries = old["releases"][: old.clock.releases]
    waiting = entries[entries["job"] >= 0].copy()
    waiting["job"] = place[waiting["job"]]
    starting = new["begins"]["job"][: new.clock.begins]
    job = new["job"][starting]
    told = (job["tells_to"] > job["tells_from"]) & (new["state"]["started"][starting] == 0)
    begins = records(
        "releases", told.sum(), time=new["state"]["start"][starting[told]], job=-1 - starting[told]
    )
    heap = np.concatenate([waiting, begins])
    # A sorted table is a valid heap.
    new["releases"][: len(heap)] = heap[np.lexsort((heap["job"], heap["time"]))]
    new.clock.releases = len(heap)


def _with_room(table: npt.NDArray[np.void], more: int) -> npt.NDArray[np.void]:
    """Return a table with spare rows; otherwise all arrays would soon be rebuilt."""
    wider = np.zeros(len(table) + more, table.dtype)
    wider[: len(table)] = table
    return wider


def _part_rows(old: Sim, place: IntArray) -> IntArray:
    """Return the new row of each part on shared nodes.

    -1 for parts of jobs that are gone, and for the entry after the last.
    """
    job = old["part"]["job"][: old["sharing"]["parts"][0]]
    stays = place[job] >= 0
    row = np.full(len(job) + 1, -1, np.int64)
    row[:-1][stays] = np.arange(np.count_nonzero(stays))
    return row


def _parts_and_promises(
    old: Sim, new: Sim, place: IntArray
) -> dict[str, npt.NDArray[np.void] | IntArray]:
    """Return parts and reservations on shared nodes, with the new numbers of kinds."""
    row = _part_rows(old, place)
    part = old["part"][: len(row) - 1][row[:-1] >= 0]
    part["job"] = place[part["job"]]
    part["kind"] = _kinds_now(old, new, part)
    for link in ("next", "after", "before"):
        part[link] = row[part[link]]
    most = new["shape"]["parts"][new["job"]["kind"]].sum()
    promises = int(old["sharing"]["promises"][0])
    promise = old["promise"][:promises].copy()
    promise["job"] = place[promise["job"]]  # free rows may refer to jobs that are gone
    stands = promise["node"] >= 0
    promise["kind"][stands] = _kinds_now(old, new, promise[stands])
    return {
        "part": _with_room(part, min(int(most), 2 * new.jobs)),
        "promise": promise,
        "promise_left": old["promise_left"][:promises],
    }


def _kinds_now(old: Sim, new: Sim, of: npt.NDArray[np.void]) -> IntArray:
    """Return the new kinds of parts or reservations; their job rows are new already."""
    place, _, _ = _places_of_kinds(old)
    _, order, first = _places_of_kinds(new)
    now: IntArray = order[first[new["job"]["kind"][of["job"]]] + place[of["kind"]]]
    return now


def _places_of_kinds(sim: Sim) -> tuple[IntArray, IntArray, IntArray]:
    """Return how kinds are grouped by the kind of job that they are made for.

    Returns:
        Position of each kind in its group; all kinds sorted by group; first index of each group.
    """
    owner = sim["shape"]["of"].astype(np.int64)
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(len(owner)))
    place = np.empty(len(owner), np.int64)
    place[order] = np.arange(len(owner)) - first[owner[order]]
    return place, order, first


def _carry_shared(old: Sim, new: Sim, row: IntArray, to: IntArray) -> None:
    """Copy the state of shared nodes; the data per kind of job (`Tried`) starts empty.

    Args:
        old, new: As in `transfer_state`; the new one has its parts.
        row: Result of `_part_rows`.
        to: Rows of the transferred jobs.
    """
    state = new["state"]
    state["first_node"][to] = row[state["first_node"][to]]
    for name in ("share", "left", "freed"):
        in_bytes(new[name])[...] = in_bytes(old[name])
    new["share"]["part"] = row[old["share"]["part"]]
    of_kinds = {name: new["sharing"][name].copy() for name in ("widest", "owners", "gpus", "types")}
    new["sharing"][...] = old["sharing"]
    parts = np.count_nonzero(row >= 0)
    for name, value in {**of_kinds, "parts": parts}.items():
        new["sharing"][name] = value
    waiting = new["job"]["kind"][new["queue"][: new.clock.queued]]
    new["tried"]["waiting"] = np.bincount(waiting, minlength=len(new["tried"]))


def _carry_labels(old: Sim, new: Sim) -> None:
    """Copy the counts of users and fair-share labels; there may be more of them now."""
    labels = min(len(old["usage"]), len(new["usage"])) - 2
    new["usage"][:labels] = old["usage"][:labels]
    new["usage"][-2:] = old["usage"][-2:]  # jobs without a label, and all jobs
    users = min(old["user_running"].shape[1], new["user_running"].shape[1])
    new["user_running"][:, :users] = old["user_running"][:, :users]
    known = min(len(old["user_state"]), len(new["user_state"]))
    new["user_state"][:known] = old["user_state"][:known]


def _of_jobs(old: Sim, name: str, place: IntArray) -> npt.NDArray[np.void]:
    """Return the rows of a record for transferred jobs."""
    used = {"lost": old.clock.lost, "segment": old.clock.segments}[name]
    table = copied(old[name][:used])
    table["job"] = place[table["job"]]
    kept: npt.NDArray[np.void] = table[table["job"] >= 0].astype(LAYOUT[name][0])
    return kept
