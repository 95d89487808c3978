"""Advance a simulation: the engine runs in slices, so that Python gets its turn.

Compiled code that Ctrl-C interrupts: the main thread waits for another thread.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np

from hpctwin.engine.compile.entry_points import ADVANCE
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.policies import Policy
from hpctwin.simulation.state.base import SimulationBase

__all__ = [
    "THREAD_NAME",
    "Outcome",
    "advance_contended",
    "advance_engine",
    "asked_again_s",
    "hears_interrupts",
    "not_a_number",
    "run_all",
    "run_interruptible",
]


THREAD_NAME = "hpctwin-engine"
"""Prefix of the names of threads that run compiled code and cannot be stopped."""

T = TypeVar("T")
R = TypeVar("R")

_GRACE_S = 0.3
_LOOK_EVERY_S = 0.1


def hears_interrupts() -> bool:
    """Return whether this thread receives Ctrl-C: the main one, unless it is ignored."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )


def run_interruptible(run: Callable[[], int]) -> tuple[int, bool]:
    """Run a function without Python's lock, such that Ctrl-C ends the wait for it.

    Signals reach the main thread between two steps of Python, and compiled code is one step. In any
    other thread, or if Ctrl-C is ignored as in the workers of a sweep, the function is simply
    called. Handing it to a thread makes the processor wait if there are as many processes as cores.

    Args:
        run: Function to run.

    Returns:
        Its result, and whether Ctrl-C came shortly before it ended.

    Raises:
        KeyboardInterrupt: Ctrl-C came and the function did not end shortly afterwards; it keeps
            running.
    """
    if not hears_interrupts():
        return run(), False
    given: list[int] = []
    raised: list[BaseException] = []
    over = threading.Event()

    def body() -> None:
        try:
            given.append(run())
        except BaseException as error:
            raised.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=body, name=THREAD_NAME, daemon=True)
    thread.start()
    interrupted = False
    try:
        # The system may deliver the signal to the other thread; this thread sees it when it wakes
        # up.
        while not over.wait(_LOOK_EVERY_S):
            pass
    except KeyboardInterrupt:
        interrupted = True
        if not over.wait(_GRACE_S):
            raise
    if raised:
        raise raised[0]
    return given[0], interrupted


def run_all(
    function: Callable[[T], R], items: Iterable[T], *, threads: int, stop: Callable[[], None]
) -> list[R]:
    """Run a function for each item in threads; Ctrl-C ends the wait for them.

    Args:
        function: Function to run.
        items: Its arguments; they are started in this order.
        threads: Largest number of threads.
        stop: Function called after an error or Ctrl-C, to make running calls end; they are not
            waited for.

    Returns:
        Results in the order of the items.
    """
    waiting = list(items)
    given: dict[int, R] = {}
    raised: list[BaseException] = []
    left = iter(enumerate(waiting))  # Python's lock gives each item to one thread

    def work() -> None:
        try:
            for number, item in left:
                if raised:
                    break
                given[number] = function(item)
        except BaseException as error:
            raised.append(error)

    workers = [
        threading.Thread(target=work, name=f"{THREAD_NAME}_{number}")
        for number in range(min(threads, len(waiting)))
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive() and not raised:
                worker.join(_LOOK_EVERY_S)
    except BaseException as error:
        raised.append(error)
    if raised:
        stop()
        raise raised[0]
    return [given[number] for number in range(len(waiting))]


Outcome = Literal["done", "reached", "stepped"]

SLICE_S = 0.02
"""Approximate duration of an engine call before Python gets its turn, in seconds."""
MANY_WAITING = 5_000
"""Number of pending jobs below which no pass takes so long that Ctrl-C is missed."""
MANY_PLANNED = 500
"""The same number where each job has a reservation, or nodes are shared."""
MANY_LOOKS = 1 << 20
"""Jobs examined in a slice, over all passes, below which Ctrl-C is not missed."""

_NAMES: dict[int, Outcome] = {
    layout.DONE: "done",
    layout.REACHED: "reached",
    layout.STEPPED: "stepped",
}


def advance_engine(
    simulation: SimulationBase, until_s: float | None = None, *, instants: int | None = None
) -> Outcome:
    """Advance the engine; arguments, result and errors as for `Simulation.advance`."""
    if simulation.broken:
        raise SimulationError(f"simulation cannot continue: {simulation.broken}")
    until = NEVER_MS if until_s is None else to_ms(until_s)
    sim = simulation.state
    simulation.compiled_policy()
    begin = time.perf_counter()
    first = 0 if instants is None else int(sim.clock.instants)
    while True:
        if simulation.stopped:
            raise SimulationError("simulation was stopped from another thread")
        left = simulation.slice
        if instants is not None:
            left = min(left, first + instants - int(sim.clock.instants))
        entered = time.perf_counter()
        call = partial(ADVANCE, sim.address, until, left)
        interrupted = False
        try:
            if _may_take_long(simulation, until, left) and hears_interrupts():
                code, interrupted = run_interruptible(call)
            else:
                code = call()
        except KeyboardInterrupt:
            simulation.broken = "it was interrupted within an event time"
            raise
        except Exception as error:
            simulation.broken = f"a function of its policy failed: {error!r}"
            raise PolicyError(
                f"a function of policy {simulation.policy.name!r} failed: {error!r}"
            ) from error
        if interrupted:
            raise KeyboardInterrupt
        if simulation.provide(code):
            continue
        # Adapt the slice so that a call takes about SLICE_S.
        if code == layout.STEPPED and _sliced(simulation, first, instants):
            took = time.perf_counter() - entered
            if took < SLICE_S / 2:
                simulation.slice *= 8 if took < SLICE_S / 16 else 2
            elif took > 2 * SLICE_S:
                simulation.slice = max(1, simulation.slice // 2)
        else:
            break
    simulation.engine_s += time.perf_counter() - begin
    # A fork without arrivals has jobs that are still to come.
    simulation.over = bool(code == layout.DONE and sim.clock.arrived == len(simulation.workload))
    if code == layout.NOT_A_NUMBER:
        what = not_a_number(simulation.policy, sim)
        simulation.broken = f"{what} returned a value that is not a number"
        job = simulation.workload.job_id[sim.clock.bad_job]
        raise PolicyError(
            f"{what} returned NaN for job {job} at {simulation.now_s:g} s; it must return "
            "a number for every pending job"
        )
    return _NAMES[code]


def asked_again_s(simulation: SimulationBase, next_call_s: Any, where: str) -> float | None:
    """Return when a user's function wants to be called again, seconds, to the millisecond.

    Args:
        simulation: that is advanced.
        next_call_s: what the function gave.
        where: which function, and when, for messages.

    Raises:
        PolicyError: it is no time after the present.
    """
    if next_call_s is None:
        return None
    if isinstance(next_call_s, bool) or not isinstance(next_call_s, (int, float, np.number)):
        raise PolicyError(f"{where}: next_call_s is {next_call_s!r}; it must be seconds or None")
    wanted: Any = next_call_s
    again_ms = to_ms(wanted) if abs(wanted) < NEVER_MS / MS_PER_S else NEVER_MS
    if not simulation.now_s < again_ms / MS_PER_S < NEVER_MS / MS_PER_S:
        raise PolicyError(
            f"{where}: next_call_s is {wanted:g}; it must be later than the present, "
            f"{simulation.now_s:g} s"
        )
    return again_ms / MS_PER_S


def not_a_number(policy: Policy, sim: Sim) -> str:
    """Name the policy's function that gave NaN, and the node if it scores nodes."""
    node, placed = int(sim.clock.bad_node), policy.placement.score
    if node < 0 or placed is None:
        return f"ordering {policy.order.name!r}"
    return f"{placed.label}, called for node {node},"


def _may_take_long(simulation: SimulationBase, until: int, instants: int) -> bool:
    """Return whether a slice may take long because of many pending jobs.

    Running a slice in a thread costs as much as hundreds of event times with short queues.
    """
    instants = max(instants, 1)
    few = min(MANY_PLANNED, max(MANY_LOOKS // instants, 1))
    if len(simulation.workload) < few:
        return False
    sim = simulation.state
    clock = sim.clock
    if int(clock.alive) < few:
        return False
    plans = simulation.passes()[0].reserved is not None or bool(len(sim["share"]))
    many = min(MANY_PLANNED if plans else MANY_WAITING, max(MANY_LOOKS // instants, 1))
    arrived, more = int(clock.arrived), many - int(clock.queued)
    if more <= 0:
        return True
    if int(clock.arrival_end) - arrived < more:
        return False
    submit, coming = sim["job"]["submit"], sim["by_submit"][arrived : arrived + more]
    if int(submit[coming[-1]]) > until:
        return False
    # Each submit time is a separate event time. A sample of them decides if there are many.
    some = submit[coming[:: max(1, more // (4 * instants))]]
    return int(np.count_nonzero(np.diff(some))) < instants


def _sliced(simulation: SimulationBase, first: int, instants: int | None) -> bool:
    """Return whether the kernel returned only to give Python its turn."""
    clock = simulation.state.clock
    job = int(clock.stop_job)
    if job >= 0 and layout.RUNNING <= simulation.column("phase")[job] < layout.UNSUBMITTED:
        return False
    return instants is None or int(clock.instants) - first < instants


def advance_contended(
    simulation: SimulationBase,
    advance: Callable[..., Outcome],
    until_s: float | None = None,
    *,
    instants: int | None = None,
) -> Outcome:
    """Advance one event time after another, with ends of jobs from the network.

    The engine never passes a time at which something happens on the network. There, the network
    advances first, so that all ends of this time are known when the engine applies its events.

    Args:
        simulation: Simulation that is advanced; it has jobs on a network.
        advance: Function that advances the simulation without the network.
        until_s: As for `Simulation.advance`.
        instants: As for `Simulation.advance`.
    """
    sim, jobs = simulation.state, simulation.network
    assert jobs is not None
    until_ms = NEVER_MS if until_s is None else to_ms(until_s)
    left = instants
    if sim.clock.pass_due:
        advance(until_s, instants=0)
    jobs.follow(sim)
    while left is None or left > 0:
        next_ms = jobs.next_ms(sim)
        stop_ms = min(until_ms, next_ms - 1)
        outcome = advance(None if stop_ms >= NEVER_MS else stop_ms / MS_PER_S, instants=1)
        jobs.follow(sim)
        if outcome == "done":
            return "done"
        if outcome == "stepped":
            left = None if left is None else left - 1
        elif stop_ms == until_ms:
            return "reached"
        else:
            jobs.advance(sim, next_ms)
    return "stepped"
