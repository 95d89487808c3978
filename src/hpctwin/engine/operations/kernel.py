"""The compiled entry points to the engine that every simulation needs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy.typing as npt

from hpctwin.engine.capacity_models import (
    PARTICULAR_NODES,
    PREEMPTING_SHARED,
    PREEMPTING_WHOLE,
    SHARED_NODES,
)
from hpctwin.engine.compile import entry_points as entry
from hpctwin.engine.compile.jit import Compiled, Kernel, prepare
from hpctwin.engine.passes import PASSES, Pass
from hpctwin.engine.powers import POWER_PASSES, PowerPass
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import single

__all__ = ["all_kernels", "hooks", "kernels_of", "placing", "tournament"]

_PREFERRED = {
    int(layout.LOWEST): entry.placing_kernel("node_selection.place_lowest"),
    int(layout.SOONEST): entry.placing_kernel("node_selection.place_soonest"),
    int(layout.LEAST_DRAW): entry.placing_kernel("node_selection.place_least_draw"),
}
_BY_PLACEMENT = {
    int(layout.CONTIGUOUS): entry.placing_kernel("node_selection.place_contiguous"),
    int(layout.SPREAD): entry.placing_kernel("node_selection.place_evenly"),
    int(layout.RANDOM): entry.placing_kernel("node_selection.place_anywhere"),
    int(layout.SCORED): entry.placing_kernel("ranking.place_ranked"),
    int(layout.WHOLE_BLOCKS): entry.placing_kernel("node_selection.place_whole_blocks"),
    int(layout.FEWEST_SWITCHES): entry.placing_kernel("node_selection.place_fewest_switches"),
    int(layout.COMMUNICATION_AWARE): entry.placing_kernel("node_selection.place_by_communication"),
}


def placing(placement: int, preferred: int) -> Kernel | None:
    """Return the kernel that claims a job's nodes; None if the power policy does.

    Args:
        placement: Number of the placement in the engine.
        preferred: Which nodes of a pool first and best fit take, see `engine.powers.PowerPass`.
    """
    if placement in (layout.FIRST_FIT, layout.BEST_FIT) or preferred not in _PREFERRED:
        return _PREFERRED.get(preferred)
    return _BY_PLACEMENT[placement]


def tournament(found: Pass) -> Kernel:
    """Return the pass that replaces another if the queue is long."""
    return (found.kernel("raced") if found.model.shared else None) or entry.RACE


def hooks(
    order: Compiled,
    candidates: Compiled,
    place: Compiled | None,
    found: Pass,
    power: PowerPass | None = None,
    *,
    started: Compiled | None = None,
    ended: Compiled | None = None,
    shared: Kernel | None = None,
    placing: Kernel | None = None,
    races: bool = False,
    lined: bool = False,
    planned: bool = True,
    counted: bool = True,
) -> npt.NDArray[Any]:
    """Return the addresses of a policy's kernels; compile missing ones.

    Args:
        order: Compiled ordering.
        candidates: Compiled ordering of EASY's candidates.
        place: Compiled placement that scores nodes; None for another placement.
        found: Scheduling pass.
        power: Kind of power policy; None if nodes have no power states.
        started, ended: Compiled functions that update the ordering's state; None without them.
        shared: Kernel that chooses shared nodes for a job; None if nodes are not shared.
        placing: Kernel that claims a job's nodes; None if nodes are shared or have no identity.
        races: Whether a tournament of pending jobs is needed. False if it is impossible, or until
            the loop returns `layout.NEED_RACE`.
        lined: Whether shorter queues are scanned by lines.
        planned: Whether the pass is needed. False if counting may decide instead, until the loop
            returns `layout.NEED_PASS`.
        counted: Whether counting may decide, if the pass is of that kind.
    """
    needed = [tournament(found)] if races else []
    needed += [entry.LINES] if lined else []
    needed += [entry.PLACE_BY_SCORE] if place is not None else []
    needed += [placing] if placing is not None else []
    if stateful := started is not None or ended is not None:
        needed += entry.WITH_STATE
    prepare([*kernels_of(found, power, shared, planned=planned, counted=counted), *needed])
    by_counting, reserved = _counted(found, counted), _reserved(found, power)
    leaving = found.model.gave_back
    start = entry.START if started is None else entry.START_NOTED
    returning = None if ended is None else entry.RETURN_NOTED
    before, after = 0, 0
    if power is not None:
        before, after = entry.BEFORE.address, _after(power, shared).address
    return single(
        "hooks",
        (
            ("order", order.address),
            ("candidates", candidates.address),
            ("score", entry.SCORE.address if stateful else 0),
            ("started", 0 if started is None else started.address),
            ("ended", 0 if ended is None else ended.address),
            ("note_start", 0 if started is None else entry.NOTE_START.address),
            ("note_end", 0 if ended is None else entry.NOTE_END.address),
            ("place", 0 if place is None else place.address),
            ("advance", entry.INNER_ADVANCE.address),
            ("run_pass", _address(found.kernel("run")) if planned else 0),
            ("run_race", tournament(found).address if races else 0),
            ("run_lined", entry.LINES.address if lined else 0),
            ("run_counted", _address(by_counting)),
            ("start", 0 if leaving is not None else start.address),
            ("place_nodes", _address(placing)),
            ("place_by_score", 0 if place is None else entry.PLACE_BY_SCORE.address),
            ("build_plan", entry.BUILD_PLAN.address if _plans(power, planned) else 0),
            ("reach_plan", entry.REACH_PLAN.address if _plans(power, planned) else 0),
            ("entered", _address(found.kernel("entered"))),
            ("left", _address(found.kernel("left"))),
            ("reserved", _address(reserved)),
            ("gave_back", _address(leaving or returning)),
            ("choose", _address(shared)),
            ("fits_later", _address(found.model.fits_later)),
            ("wake", _address(found.model.wake)),
            ("before_pass", before),
            ("after_pass", after),
        ),
    )


def all_kernels() -> list[Kernel]:
    """Return all kernels, without kernels that reproduce errors of publications."""
    from hpctwin.engine.agents import agent_record, delays, jobs, parallel_steps, step
    from hpctwin.engine.agents import power as agents_power
    from hpctwin.engine.containers import number_table
    from hpctwin.engine.jobs import moving_ends, resizing
    from hpctwin.engine.network import flows, meter, running
    from hpctwin.engine.operations import initial_jobs, job_history, lookahead
    from hpctwin.engine.summary import job_figures

    modules = [entry, delays, jobs, agents_power, agent_record, step, parallel_steps, number_table]
    modules += [moving_ends, resizing, flows, meter, running, initial_jobs, job_history, lookahead]
    modules += [job_figures]
    values = [value for module in modules for value in vars(module).values()]
    values += [*_PREFERRED.values(), *_BY_PLACEMENT.values()]
    found = [value for value in values if isinstance(value, Kernel)]
    powers = [POWER_PASSES.find(name) for name in POWER_PASSES.own()]
    places = list(map(SHARED_PLACEMENTS.find, SHARED_PLACEMENTS.own()))
    for one in map(PASSES.find, PASSES.own()):
        for power in powers:
            found += kernels_of(one, power)
        if one.by_node:
            found += kernels_of(one.on(PARTICULAR_NODES), None)
        if one.works_on(SHARED_NODES):
            found.append(tournament(one.on(SHARED_NODES)))
            for place, power in product(places, powers):
                found += kernels_of(one.on(SHARED_NODES), power, place)
        if one.works_on(PREEMPTING_WHOLE):
            found += kernels_of(one.on(PREEMPTING_WHOLE), None)
            found += kernels_of(one.on(PREEMPTING_SHARED), None, places[0])
    return list(dict.fromkeys(found))


def kernels_of(
    found: Pass,
    power: PowerPass | None,
    shared: Kernel | None = None,
    *,
    planned: bool = True,
    counted: bool = True,
) -> list[Kernel]:
    """Return the kernels that a simulation needs.

    Args:
        found: Scheduling pass.
        power: Kind of power policy; None if nodes have no power states.
        shared: Kernel that chooses shared nodes for a job; None if nodes are not shared.
        planned: Whether the pass itself is needed, in addition to counting.
        counted: Whether counting may decide, if the pass is of that kind.
    """
    switching = [] if power is None else [entry.BEFORE, _after(power, shared)]
    choosing = [] if shared is None else [shared]
    planning = [entry.BUILD_PLAN, entry.REACH_PLAN] if _plans(power, planned) else []
    passing = filter(
        None,
        (
            found.model.gave_back or entry.START,
            _counted(found, counted),
            found.kernel("run") if planned else None,
            found.kernel("entered"), found.kernel("left"), _reserved(found, power),
            found.model.fits_later, found.model.wake,
        ),
    )  # fmt: skip
    return [entry.INNER_ADVANCE, entry.ADVANCE, *planning, *passing, *choosing, *switching]


def _plans(power: PowerPass | None, planned: bool) -> bool:
    """Return whether the pass or the power policy may need a plan."""
    return planned or (power is not None and power.after is not entry.UNAWARE)


def _after(power: PowerPass, shared: Kernel | None) -> Kernel:
    return power.after if shared is None or power.shared is None else power.shared


def _address(kernel: Kernel | None) -> int:
    return 0 if kernel is None else kernel.address


def _counted(found: Pass, counted: bool) -> Kernel | None:
    """Return the pass that counts; None if counting never decides."""
    if found.others is None or not counted:
        return None
    return found.kernel("counted") or entry.COUNTED


def _reserved(found: Pass, power: PowerPass | None) -> Kernel | None:
    """Return the kernel that takes reservations out of a plan made by others.

    Plans for power policies and plans of shared nodes need it.
    """
    return None if power is None and not found.model.shared else found.kernel("reserved")
