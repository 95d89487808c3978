"""The compiled entries to the engine that every simulation needs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy.typing as npt
from numba import int64, types

from hpctwin.engine.capacity import plan
from hpctwin.engine.compile.jit import Kernel, address_of
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.fast_passes import counted_passes, score_line_scan
from hpctwin.engine.jobs import transitions
from hpctwin.engine.loop import event_loop
from hpctwin.engine.operations.loading import prepare
from hpctwin.engine.passes import PASSES, Pass, SharedPass
from hpctwin.engine.placement.node_selection import PLACING
from hpctwin.engine.placement.ranking import PLACE_BY_SCORE
from hpctwin.engine.power import policy_hooks
from hpctwin.engine.powers import POWER_PASSES, PowerPass
from hpctwin.engine.preempting import PREEMPTING_PASSES, find_preempting_pass
from hpctwin.engine.shared.placements import SHARED_PLACEMENTS
from hpctwin.engine.state.sim import single

__all__ = ["advance", "all_kernels", "hooks", "kernels_of", "reorder"]

advance = Kernel(event_loop.advance_at, int64(int64, int64, int64))
"""`event_loop.advance` of the simulation at an address: ``(address, until, instants) -> code``."""

inner_advance = Kernel(event_loop.advance, event_loop.SIGNATURE)
"""The loop itself, which kernels call."""

race = Kernel(counted_passes.pass_raced, types.void(SIM))
"""The pass where many wait and counting decides."""

lines = Kernel(score_line_scan.pass_lined, types.void(SIM))
"""The pass where fewer wait, in an order that changes with time, and counting decides."""

reorder = Kernel(event_loop.reorder, types.void(int64))
"""Put the queue into the order of another ordering: ``(address)``."""


def hooks(
    order: Any,
    candidates: Any,
    place: Any,
    found: Pass,
    power: PowerPass | None = None,
    *,
    shared: Kernel | None = None,
    placing: Kernel | None = None,
    races: bool = False,
    lined: bool = False,
    planned: bool = True,
    counted: bool = True,
) -> npt.NDArray[Any]:
    """The addresses of what a policy is made of, compiled now if they were not yet.

    Args:
        order: ordering, compiled.
        candidates: ordering of EASY's candidates, compiled.
        place: placement that scores nodes, compiled; None for another.
        found: the scheduling pass.
        power: what switches nodes; None where they have no power states.
        shared: what chooses nodes for a job where nodes are shared; else None.
        placing: what claims a job's nodes where they have identity and are not shared; else None.
        races: whether a tournament of those that wait is needed; False where it cannot be, or as long as
            the loop does not say `layout.NEED_RACE`.
        lined: whether the lines of those that wait are gone through where they are fewer.
        planned: whether the pass is needed; False where counting may decide in its place as long as the loop
            does not say `layout.NEED_PASS`.
        counted: whether counting may decide, where the pass is of that kind.
    """
    needed = [race] if races else []
    needed += [lines] if lined else []
    needed += [PLACE_BY_SCORE] if place is not None else []
    needed += [placing] if placing is not None else []
    prepare([*kernels_of(found, power, shared, planned=planned, counted=counted), *needed])
    by_counting, reserved = _counted(found, counted), _reserved(found, power)
    leaving, later = _leaving(found), _fits_later(found)
    before, after = 0 if found.wake is None else found.wake.address, 0
    if power is not None:
        before, after = policy_hooks.BEFORE.address, _after(power, shared).address
    return single(
        "hooks",
        (
            ("order", address_of(order)),
            ("candidates", address_of(candidates)),
            ("place", 0 if place is None else address_of(place)),
            ("advance", inner_advance.address),
            ("run_pass", found.kernel.address if planned else 0),
            ("run_race", race.address if races else 0),
            ("run_lined", lines.address if lined else 0),
            ("run_counted", 0 if by_counting is None else by_counting.address),
            ("start", 0 if leaving is not None else transitions.START.address),
            ("place_nodes", 0 if placing is None else placing.address),
            ("place_by_score", 0 if place is None else PLACE_BY_SCORE.address),
            ("build_plan", plan.BUILD_PLAN.address if _plans(power, planned) else 0),
            ("reach_plan", plan.REACH_PLAN.address if _plans(power, planned) else 0),
            ("entered", 0 if found.entered is None else found.entered.address),
            ("left", 0 if found.left is None else found.left.address),
            ("reserved", 0 if reserved is None else reserved.address),
            ("gave_back", 0 if leaving is None else leaving.address),
            ("choose", 0 if shared is None else shared.address),
            ("fits_later", 0 if later is None else later.address),
            ("before_pass", before),
            ("after_pass", after),
        ),
    )


def all_kernels() -> list[Kernel]:
    """Every kernel there is, but those of what a publication has wrong."""
    from hpctwin.engine.agents import (
        agent_record,
        delays,
        features,
        jobs,
        linear_agents,
        parallel_steps,
        power_rewards,
        step,
    )
    from hpctwin.engine.agents import power as agents_power
    from hpctwin.engine.containers import number_table
    from hpctwin.engine.jobs import resizing
    from hpctwin.engine.operations import initial_jobs, job_history, lookahead
    from hpctwin.engine.summary import exact_sums, job_figures, level_sums, run_summary

    found = [race, lines, PLACE_BY_SCORE, *PLACING]
    found += [reorder, policy_hooks.give_orders, number_table.READ_LINES]
    found += [
        resizing.STOP,
        initial_jobs.PUT_UNDERWAY,
        exact_sums.ADD_NUMBERS,
        level_sums.SUM_LEVELS,
    ]
    found += [job_history.TELL_COURSE, run_summary.SUM_UP]
    found += job_figures.KERNELS
    found += [lookahead.arrive, lookahead.enter, lookahead.withdraw, lookahead.look_ahead]
    powers = [POWER_PASSES.find(name) for name in POWER_PASSES.own()]
    for name in PASSES.own():
        for power in powers:
            found += kernels_of(PASSES.find(name), power)
    for by_node in filter(None, (PASSES.find(name).on_particular_nodes() for name in PASSES.own())):
        found += kernels_of(by_node, None)
        found += [by_node.placing] if by_node.placing is not None else []
    preempting = [find_preempting_pass(name) for name in PREEMPTING_PASSES]
    for one in preempting:
        found += kernels_of(one, None)
    shared = filter(None, (PASSES.find(name).on_shared_nodes() for name in PASSES.own()))
    places = list(map(SHARED_PLACEMENTS.find, SHARED_PLACEMENTS.own()))
    for cutting in filter(None, (one.on_shared_nodes() for one in preempting)):
        found += kernels_of(cutting, None, places[0])
    for one, place, power in product(shared, places, powers):
        found += kernels_of(one, power, place)
    for module in (
        delays,
        features,
        jobs,
        agents_power,
        power_rewards,
        agent_record,
        step,
        linear_agents,
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
    """The kernels that a simulation needs.

    Args:
        found: the scheduling pass.
        power: what switches nodes; None where they have no power states.
        shared: what chooses nodes for a job where nodes are shared; else None.
        planned: whether the pass itself is, besides counting in its place.
        counted: whether counting may decide, where the pass is of that kind.
    """
    switching = [] if power is None else [policy_hooks.BEFORE, _after(power, shared)]
    choosing = [] if shared is None else [shared]
    planning = [plan.BUILD_PLAN, plan.REACH_PLAN] if _plans(power, planned) else []
    passing = filter(
        None,
        (
            _leaving(found) or transitions.START,
            _counted(found, counted),
            found.kernel if planned else None,
            found.entered, found.left, _reserved(found, power), _fits_later(found), found.wake,
        ),
    )  # fmt: skip
    return [inner_advance, advance, *planning, *passing, *choosing, *switching]


def _plans(power: PowerPass | None, planned: bool) -> bool:
    """Whether a plan may be made: by the pass, or by what switches nodes."""
    return planned or (power is not None and power.after is not policy_hooks.UNAWARE)


def _after(power: PowerPass, shared: Kernel | None) -> Kernel:
    return power.after if shared is None or power.shared is None else power.shared


def _fits_later(found: Pass) -> Kernel | None:
    return found.fits_later if isinstance(found, SharedPass) else None


def _leaving(found: Pass) -> Kernel | None:
    """By what a job leaves shared nodes; None where jobs have whole ones."""
    if not isinstance(found, SharedPass):
        return None
    from hpctwin.engine.shared.allocation import GAVE_BACK

    return GAVE_BACK


def _counted(found: Pass, counted: bool) -> Kernel | None:
    """The pass where counting decides; None where it never does."""
    if found.others is None or not counted:
        return None
    return found.counted or counted_passes.COUNTED


def _reserved(found: Pass, power: PowerPass | None) -> Kernel | None:
    """What takes reservations out of a plan that others make: of what switches nodes, or of shared ones."""
    return None if power is None and not isinstance(found, SharedPass) else found.reserved
