"""Creation of a simulation's state, and growth of its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.passes import Pass
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state import layout
from hpctwin.engine.state.array_allocation import in_bytes, in_rows
from hpctwin.engine.state.layout import NEVER, UNSUBMITTED, record_type
from hpctwin.engine.state.sim import Sim, records

__all__ = [
    "choose_pass",
    "index_nodes",
    "make_parts",
    "more_log",
    "more_outages",
    "more_room",
    "new_sim",
]

IntArray = npt.NDArray[np.int64]

FREED = 256
"""Number of nodes that are remembered because they last got something back."""


def new_sim(
    known: Mapping[str, npt.NDArray[Any]],
    found: Pass,
    power: PowerPass | None = None,
    *,
    seed: int = 0,
    depths: int = 0,
    waits: bool = False,
    like: Sim | None = None,
) -> Sim:
    """Return the state of a simulation before anything has happened.

    Args:
        known: Arrays of jobs and cluster, see `layout.Known`.
        found: Scheduling pass.
        power: Kind of power policy; None if nodes have no power states.
        seed: Seed of random placement.
        depths: Sleep depths of the nodes; 0 if they have no power states.
        waits: Whether jobs may have to wait for something besides other jobs.
        like: Simulation that shares many of the arrays in ``known``.
    """
    job, pools = known["job"], len(known["pool"])
    size = len(job)
    nodes = sum(known["amount"][:pools].tolist())
    shared, amounts = known["whole"].shape
    limited = max(known["user_limit"].tolist(), default=0) > 0
    tracked = len(known["by_pool"])
    yields = known["yields"]
    suspends = len(yields) > 0 and bool((yields["mode"] == layout.SUSPENDED).any())
    most = size if shared or suspends else min(size, nodes)
    shapes = {
        "clock": (1,),
        "state": (size,),
        "queue": (size,),
        "taken": (size if pools > 1 or suspends else 0, pools),
        "ends": (most,),
        "run": (most + most // 4 + 8,),
        "releases": (size if waits or len(known["tells"]) else 0,),
        "stock": (len(known["amount"]),),
        "user_running": (
            len(known["user_limit"]),
            int(job["user"].max(initial=0)) + 1 if limited else 0,
        ),
        "user_state": (0, 0),
        "held": (len(known["ceiling"]),),
        "used": (sum(known["ceiling"]["used"].tolist()),),
        "rank": (len(known["promised"]) if len(known["tree"]) else 0,),
        "usage": (len(known["promised"]) + 1,),
        "node": (tracked,),
        "spent": (tracked, 2 + 3 * depths if depths else 0),
        "tail": (tracked, 3 + 3 * depths if depths else 0),
        "switching": (2 * tracked if depths else 0,),
        "timeouts": (2 * tracked if depths else 0,),
        "begins": (most if depths else 0,),
        "index": (_sets(depths) if tracked else 0, -(-tracked // 64)),
        "summary": (_sets(depths) if tracked else 0, -(-tracked // 4096)),
        "tally": (pools, _sets(depths) + 2 * (2 + 3 * depths if depths else 0)),
        "outage": (0,),
        "lost": (0,),
        "segment": (0,),
        "log": (0,),
        "sharing": (1,),
        "share": (shared,),
        "left": (shared, amounts),
        "part": (0,),
        "promise": (0,),
        "promise_left": (0, amounts),
        "tried": (len(known["shape"]),),
        "freed": (FREED if shared else 0,),
        "own": (_words(found.own),),
        "kept": (_kept_rows(found, size), _words(found.kept)),
        "power_kept": (tracked if _by_node(power) else 0, _words(_by_node(power))),
        "cut": (len(known["claim"]),),
        "beneath": (
            (tracked, 0 if shared else int(known["yields"]["level"].max())) if suspends else (0, 0)
        ),
    }
    sim = Sim(known, shapes, like)
    clock, state = sim["clock"], sim["state"]
    in_rows(clock)[...] = _blank("clock")
    clock["alive"] = clock["arrival_end"] = size
    clock["random"] = seed
    in_rows(state)[...] = _blank("state")
    if len(known["tells"]):
        state["open"] = np.bincount(known["tells"]["job"], minlength=size)
    sim["stock"]["free"] = known["amount"]
    if tracked:
        node = sim["node"]
        node["job"] = node["next"] = -1
        node["place"][known["by_pool"]] = np.arange(tracked)
        index_nodes(sim)
    sim["beneath"][...] = -1
    if shared:
        sim["left"][...] = known["whole"]
        sim["sharing"]["widest"] = known["shape"]["parts"].max(initial=0)
        sim["sharing"]["owners"] = (known["shape"]["shared_with"] > 0).any()
        if len(known["type_at"]):
            sim["sharing"]["gpus"] = known["type_at"][-1]
            sim["sharing"]["types"] = len(known["type_at"]) - 2
        sim["share"]["part"] = sim["share"]["promise"] = -1
        sim["tried"]["faults"] = -1
    choose_pass(sim, found, power)
    return sim


_BLANK: dict[str, dict[str, Any]] = {
    "clock": {
        **dict.fromkeys(("timer", "wake_at"), NEVER),
        **dict.fromkeys(
            ("stop_job", "bad_job", "bad_node", "only_outages_since", "ranked", "ended"), -1
        ),
    },
    "state": {
        **dict.fromkeys(("eligible", "start", "end", "release", "first_node"), -1),
        "phase": UNSUBMITTED,
    },
}
"""Values that differ from 0 before anything has happened."""


@cache
def _blank(name: str) -> npt.NDArray[np.void]:
    """Return a record before anything has happened, as bytes."""
    return in_rows(records(name, 1, **_BLANK[name]))


def _sets(depths: int) -> int:
    return int(layout.ASLEEP_NODES) + depths if depths else 1


def index_nodes(sim: Sim) -> None:
    """Rebuild the sets of nodes, and queue all nodes for the update after the pass."""
    node, index, tally = sim["node"], sim["index"], sim["tally"]
    if not len(node):
        return
    had = (node["job"] < 0) & (node["down"] == 0)
    free = had & (node["hidden"] == 0)
    sets = len(index)
    bits = np.zeros((sets, 64 * index.shape[1]), np.bool_)
    members = {layout.FREE_NODES: free}
    if sets > 1:
        power = node["power"]
        at_once = (power == layout.ASLEEP) & (node["boot"] == 0)
        members[layout.AWAKE_NODES] = free & ((power <= layout.COMPUTING) | at_once)
        members[layout.IDLE_NODES] = had & (power == layout.IDLE)
        for depth in range(sets - layout.ASLEEP_NODES):
            asleep = (power == layout.ASLEEP) & (node["depth"] == depth)
            members[layout.ASLEEP_NODES + depth] = had & asleep
        rows = np.arange(len(node))
        # Chain of all nodes: each points to the next node, + 2; the last has no next.
        node["touched"] = rows + 3
        node["touched"][-1] = 1
        sim["clock"]["touched"] = 1
        sim["clock"]["timeouts"] = 0
        tally[:, sets:] = _by_state(sim)
    for number, inside in members.items():
        bits[number, node["place"]] = inside
        tally[:, number] = np.bincount(sim["pool_of"][inside], minlength=len(tally))
    index[...] = np.packbits(bits, axis=1, bitorder="little").view("<i8")
    some = np.zeros((sets, 64 * sim["summary"].shape[1]), np.bool_)
    some[:, : index.shape[1]] = index != 0
    sim["summary"][...] = np.packbits(some, axis=1, bitorder="little").view("<i8")


def _by_state(sim: Sim) -> npt.NDArray[np.int64]:
    """Return the part of `sim.tally` for power states, see `node_states.standing_in`."""
    node, pool, spent = sim["node"], sim["pool_of"], sim["spent"]
    row = node["power"].astype(np.int64)
    row += np.where(row > layout.COMPUTING, layout.DEPTH_STATES * node["depth"], 0)
    found = np.zeros((sim.pools, 2, spent.shape[1]), np.int64)
    np.add.at(found, (pool, 0, row), 1)
    np.subtract.at(found, (pool, 1, row), node["since"])
    np.add.at(found[:, 1], pool, spent)
    return found.reshape(sim.pools, -1)


def choose_pass(sim: Sim, found: Pass, power: PowerPass | None = None) -> None:
    """Make empty arrays for the data of a pass and of a power policy.

    Args:
        sim: Simulation.
        found: Scheduling pass.
        power: Kind of power policy; None if nodes have no power states.
    """
    by_node = _by_node(power)
    keeps = found.own or found.kept or found.begin or by_node
    kept_before = sim.size("own") or sim.size("kept") or sim.size("power_kept")
    if not (keeps or kept_before or sim.size("share")):
        return
    own, kept = _rows(found.own, 1), _rows(found.kept, _kept_rows(found, sim.jobs))
    forget_promises(sim)
    if found.begin is not None:
        queue = sim["queue"][: sim["clock"]["queued"][0]]
        found.begin(own, kept, sim["state"], queue)
    sim.reshape(
        own=own.view(np.int64),
        kept=kept.view(np.int64).reshape(len(kept), _words(found.kept)),
        power_kept=np.zeros((len(sim["node"]) if by_node else 0, _words(by_node)), np.int64),
    )


def forget_promises(sim: Sim) -> None:
    """Drop all reservations on shared nodes."""
    sim["share"]["promise"] = -1
    sim["sharing"]["promises"] = sim["sharing"]["spare"] = 0


def _rows(record: type | None, rows: int) -> npt.NDArray[Any]:
    return np.zeros(0, np.int64) if record is None else np.zeros(rows, record_type(record))


def _kept_rows(found: Pass, jobs: int) -> int:
    return jobs + found.more_rows if found.kept is not None else 0


def _by_node(power: PowerPass | None) -> type | None:
    return None if power is None else power.kept


def _words(record: type | None) -> int:
    return 0 if record is None else record_type(record).itemsize // 8


def _grown(table: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return a copy of a table with more rows."""
    wider = np.zeros(rows, table.dtype)
    in_bytes(wider[: len(table)])[...] = in_bytes(table)
    return wider


def more_room(sim: Sim) -> None:
    """Grow the plan, and nearly full records of lost attempts and node use."""
    nodes = len(sim["node"])
    clock = sim["clock"][0]
    lost = clock["lost"] + clock["running"] + (clock["queued"] if len(sim["cut"]) else 0)
    lost += clock["running"] if len(sim["beneath"]) else 0
    needs = {"lost": lost, "segment": clock["segments"] + nodes}
    short = {name: rows for name, rows in needs.items() if nodes and rows > len(sim[name])}
    if short:
        sim.reshape(
            **{name: _grown(sim[name], 2 * max(int(rows), nodes)) for name, rows in short.items()}
        )
    _more_parts(sim)
    sim.make_room()


def _more_parts(sim: Sim) -> None:
    """Grow the tables of parts and reservations on shared nodes for all pending jobs."""
    if not len(sim["share"]):
        return
    clock = sim.clock
    waiting = sim["job"]["kind"][sim["queue"][: clock.queued]]
    asked = int(sim["shape"]["parts"][waiting].sum())
    if len(sim["cut"]):
        widest = int(sim["sharing"]["widest"][0])
        asked = (2 * int(clock.queued) + int(clock.running)) * widest
    parts = int(sim["sharing"]["parts"][0])
    # Large enough for the rest of the run, if future jobs have as many parts as past ones.
    more = int(1.1 * parts / max(clock.starts, 1) * (clock.alive - clock.running))
    make_parts(sim, parts + asked, min(asked, int(sim["rules"]["promises"][0])), parts + more)


def make_parts(sim: Sim, parts: int, promises: int, likely: int = 0) -> None:
    """Grow the tables of parts and reservations on shared nodes, if they are small.

    Args:
        sim: Simulation.
        parts: Parts needed.
        promises: Reservations needed.
        likely: Parts expected in the whole run, if known.
    """
    if parts > len(sim["part"]):
        sim.reshape(part=_grown(sim["part"], max(likely, parts + parts // 4)))
    if promises > len(sim["promise"]):
        table = _grown(sim["promise"], 2 * promises)
        left = np.zeros((len(table), sim["left"].shape[1]), np.int64)
        left[: len(sim["promise_left"])] = sim["promise_left"]
        sim.reshape(promise=table, promise_left=left)


def more_log(sim: Sim) -> None:
    """Grow the record of power states for all that one event time can add."""
    rows = int(sim["clock"]["logged"][0]) + 6 * len(sim["node"])
    if rows > len(sim["log"]):
        sim.reshape(log=_grown(sim["log"], 2 * rows))


def more_outages(sim: Sim, node: IntArray, start: IntArray, end: IntArray) -> None:
    """Add outages; none may begin before the present time.

    Args:
        sim: Simulation.
        node: Node numbers.
        start: Times of failure, ms.
        end: Times of repair, ms.
    """
    size = len(node)
    fails = records("outage", size, time=start, node=node, sign=-1)
    returns = records("outage", size, time=end, node=node, sign=1)
    coming = sim["outage"][sim["clock"]["outages_done"][0] :]
    table = np.concatenate([coming, fails, returns])
    order = np.lexsort((table["node"], table["sign"], table["time"]))
    sim["clock"]["outages_done"] = 0
    sim.reshape(outage=table[order])
