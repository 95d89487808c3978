"""The compiled entry points to the engine that every simulation needs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy.typing as npt

from hpctwin.engine.capacity import plan
from hpctwin.engine.capacity_models import (
    PARTICULAR_NODES,
    PREEMPTING_SHARED,
    PREEMPTING_WHOLE,
    SHARED_NODES,
)
from hpctwin.engine.compile.jit import Compiled, Kernel, prepare
from hpctwin.engine.fast_passes import counted_passes, score_line_scan
from hpctwin.engine.jobs import transitions
from hpctwin.engine.loop import event_loop
from hpctwin.engine.passes import PASSES, Pass
from hpctwin.engine.placement.node_selection import PLACING
from hpctwin.engine.placement.ranking import PLACE_BY_SCORE
from hpctwin.engine.power import switching_plan
from hpctwin.engine.powers import POWER_PASSES, PowerPass
from hpctwin.engine.queue.order import note_end, note_start, score_with_state
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.engine.state.sim import single

__all__ = ["advance", "all_kernels", "hooks", "kernels_of", "reorder", "tournament"]

advance = Kernel(event_loop.advance_at, "int64(int64, int64, int64)")
"""Run `event_loop.advance` at an address: ``(address, until, instants) -> code``."""

inner_advance = Kernel(event_loop.advance, "int64(Sim, int64, int64)")
"""The loop itself, which kernels call."""

race = Kernel(counted_passes.pass_raced, "void(Sim)")
"""The pass for long queues if counting decides."""

lines = Kernel(score_line_scan.pass_lined, "void(Sim)")
"""The pass for shorter queues in an order that changes, if counting decides."""


def tournament(found: Pass) -> Kernel:
    """Return the pass that replaces another if the queue is long."""
    return (found.kernel("raced") if found.model.shared else None) or race


SCORE = Kernel(score_with_state, "void(int64, Sim)", unrolled=False)
"""Score a job by an ordering with state."""

NOTE_START = Kernel(note_start, "void(int64, Sim)", unrolled=False)
"""Update the ordering's state for a job that starts."""

NOTE_END = Kernel(note_end, "void(int64, Sim)", unrolled=False)
"""Update it for a job that returns its nodes."""


reorder = Kernel(event_loop.reorder, "void(int64)")
"""Sort the queue by another ordering: ``(address)``."""


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
    needed += [lines] if lined else []
    needed += [PLACE_BY_SCORE] if place is not None else []
    needed += [placing] if placing is not None else []
    if stateful := started is not None or ended is not None:
        needed += [SCORE, NOTE_START, NOTE_END, transitions.START_NOTED, transitions.RETURN_NOTED]
    prepare([*kernels_of(found, power, shared, planned=planned, counted=counted), *needed])
    by_counting, reserved = _counted(found, counted), _reserved(found, power)
    leaving, later = found.model.kernel("GAVE_BACK"), found.model.kernel("FITS_LATER")
    start = transitions.START if started is None else transitions.START_NOTED
    returning = None if ended is None else transitions.RETURN_NOTED
    before, after = 0, 0
    if power is not None:
        before, after = switching_plan.BEFORE.address, _after(power, shared).address
    return single(
        "hooks",
        (
            ("order", order.address),
            ("candidates", candidates.address),
            ("score", SCORE.address if stateful else 0),
            ("started", 0 if started is None else started.address),
            ("ended", 0 if ended is None else ended.address),
            ("note_start", 0 if started is None else NOTE_START.address),
            ("note_end", 0 if ended is None else NOTE_END.address),
            ("place", 0 if place is None else place.address),
            ("advance", inner_advance.address),
            ("run_pass", _address(found.kernel("run")) if planned else 0),
            ("run_race", tournament(found).address if races else 0),
            ("run_lined", lines.address if lined else 0),
            ("run_counted", _address(by_counting)),
            ("start", 0 if leaving is not None else start.address),
            ("place_nodes", _address(placing)),
            ("place_by_score", 0 if place is None else PLACE_BY_SCORE.address),
            ("build_plan", plan.BUILD_PLAN.address if _plans(power, planned) else 0),
            ("reach_plan", plan.REACH_PLAN.address if _plans(power, planned) else 0),
            ("entered", _address(found.kernel("entered"))),
            ("left", _address(found.kernel("left"))),
            ("reserved", _address(reserved)),
            ("gave_back", _address(leaving or returning)),
            ("choose", _address(shared)),
            ("fits_later", _address(later)),
            ("wake", _address(found.model.kernel("WAKE"))),
            ("before_pass", before),
            ("after_pass", after),
        ),
    )


def all_kernels() -> list[Kernel]:
    """Return all kernels, without kernels that reproduce errors of publications."""
    from hpctwin.engine.agents import (
        agent_record,
        delays,
        jobs,
        parallel_steps,
        step,
    )
    from hpctwin.engine.agents import power as agents_power
    from hpctwin.engine.containers import number_table
    from hpctwin.engine.jobs import moving_ends, resizing
    from hpctwin.engine.network import flows, meter, running
    from hpctwin.engine.operations import initial_jobs, job_history, lookahead
    from hpctwin.engine.summary import job_figures

    found = [race, lines, PLACE_BY_SCORE, *PLACING]
    found += [SCORE, NOTE_START, NOTE_END, transitions.START_NOTED, transitions.RETURN_NOTED]
    found += [reorder, switching_plan.give_orders, number_table.READ_LINES]
    found += [
        moving_ends.PUT_END,
        resizing.STOP,
        initial_jobs.PUT_UNDERWAY,
        job_figures.ADD_NUMBERS,
        job_figures.SUM_LEVELS,
    ]
    found += [job_history.TELL_COURSE, *job_figures.KERNELS]
    found += [flows.ADD_FLOWS, meter.SETTLE_METER, running.ADVANCE, running.START, running.STOP]
    found += [running.COUNT, running.SHARE, running.PAUSE, running.CONTINUE]
    found += [lookahead.arrive, lookahead.enter, lookahead.withdraw, lookahead.look_ahead]
    powers = [POWER_PASSES.find(name) for name in POWER_PASSES.own()]
    places = list(map(SHARED_PLACEMENTS.find, SHARED_PLACEMENTS.own()))
    for one in map(PASSES.find, PASSES.own()):
        for power in powers:
            found += kernels_of(one, power)
        if one.by_node:
            found += kernels_of(one.on(PARTICULAR_NODES), None)
            found += filter(None, [PARTICULAR_NODES.kernel("PLACING")])
        if one.works_on(SHARED_NODES):
            found.append(tournament(one.on(SHARED_NODES)))
            for place, power in product(places, powers):
                found += kernels_of(one.on(SHARED_NODES), power, place)
        if one.works_on(PREEMPTING_WHOLE):
            found += kernels_of(one.on(PREEMPTING_WHOLE), None)
            found += kernels_of(one.on(PREEMPTING_SHARED), None, places[0])
    for module in (
        delays,
        jobs,
        agents_power,
        agent_record,
        step,
        parallel_steps,
    ):
        found += [value for value in vars(module).values() if isinstance(value, Kernel)]
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
    switching = [] if power is None else [switching_plan.BEFORE, _after(power, shared)]
    choosing = [] if shared is None else [shared]
    planning = [plan.BUILD_PLAN, plan.REACH_PLAN] if _plans(power, planned) else []
    passing = filter(
        None,
        (
            found.model.kernel("GAVE_BACK") or transitions.START,
            _counted(found, counted),
            found.kernel("run") if planned else None,
            found.kernel("entered"), found.kernel("left"), _reserved(found, power),
            found.model.kernel("FITS_LATER"), found.model.kernel("WAKE"),
        ),
    )  # fmt: skip
    return [inner_advance, advance, *planning, *passing, *choosing, *switching]


def _plans(power: PowerPass | None, planned: bool) -> bool:
    """Return whether the pass or the power policy may need a plan."""
    return planned or (power is not None and power.after is not switching_plan.UNAWARE)


def _after(power: PowerPass, shared: Kernel | None) -> Kernel:
    return power.after if shared is None or power.shared is None else power.shared


def _address(kernel: Kernel | None) -> int:
    return 0 if kernel is None else kernel.address


def _counted(found: Pass, counted: bool) -> Kernel | None:
    """Return the pass that counts; None if counting never decides."""
    if found.others is None or not counted:
        return None
    return found.kernel("counted") or counted_passes.COUNTED


def _reserved(found: Pass, power: PowerPass | None) -> Kernel | None:
    """Return the kernel that takes reservations out of a plan made by others.

    Plans for power policies and plans of shared nodes need it.
    """
    return None if power is None and not found.model.shared else found.kernel("reserved")
