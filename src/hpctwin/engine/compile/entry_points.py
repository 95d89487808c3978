"""Entry points of the engine by name: the kernels of every pass, power policy and placement.

The module of a kernel is imported only if the kernel must be compiled.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel


def _kernel(name: str, signature: str, *, unrolled: bool = True) -> Kernel:
    return Kernel(f"hpctwin.engine.{name}", signature, unrolled=unrolled)


def placing_kernel(name: str) -> Kernel:
    """Return a kernel that claims a job's nodes: a function below `engine.placement`."""
    return _kernel(f"placement.{name}", "void(int64, Sim)", unrolled=False)


ADVANCE = _kernel("loop.event_loop.advance_at", "int64(int64, int64, int64)")
"""Run `event_loop.advance` at an address: ``(address, until, instants) -> code``."""
INNER_ADVANCE = _kernel("loop.event_loop.advance", "int64(Sim, int64, int64)")
"""The loop itself, which kernels call."""
REORDER = _kernel("loop.event_loop.reorder", "void(int64)")
"""Sort the queue by another ordering: ``(address)``."""

COUNTED = _kernel("fast_passes.counted_passes.pass_counted", "void(Sim)")
"""The pass if counting decides."""
RACE = _kernel("fast_passes.counted_passes.pass_raced", "void(Sim)")
"""The same for long queues."""
LINES = _kernel("fast_passes.score_line_scan.pass_lined", "void(Sim)")
"""The same for shorter queues in an order that changes."""

SCORE = _kernel("queue.order.score_with_state", "void(int64, Sim)", unrolled=False)
"""Score a job by an ordering with state."""
NOTE_START = _kernel("queue.order.note_start", "void(int64, Sim)", unrolled=False)
"""Update the ordering's state for a job that starts."""
NOTE_END = _kernel("queue.order.note_end", "void(int64, Sim)", unrolled=False)
"""Update it for a job that returns its nodes."""

START = _kernel("jobs.transitions.start_taken", "void(int64, Sim)")
START_NOTED = _kernel("jobs.transitions.start_noted", "void(int64, Sim)")
RETURN_NOTED = _kernel("jobs.transitions.return_noted", "void(int64, Sim)")
WITH_STATE = [SCORE, NOTE_START, NOTE_END, START_NOTED, RETURN_NOTED]
"""What an ordering with state needs."""
GAVE_BACK = _kernel("shared.allocation.gave_back", "void(int64, Sim)")
FITS_LATER = _kernel("preempting.fit_after_eviction.fits_later", "void(int64, Sim)")
WAKE = _kernel("jobs.suspended_jobs.wake_uncovered", "void(Sim)")
WAKE_SHARED = _kernel("shared.suspended_jobs.wake_shared", "void(Sim)")

BUILD_PLAN = _kernel("capacity.plan.build_plan", "void(Sim)", unrolled=False)
REACH_PLAN = _kernel("capacity.plan.reach_plan", "void(int64, Sim)", unrolled=False)
PLACE_BY_SCORE = _kernel("placement.ranking.divide_by_score", "void(int64, Sim)")
PLACE_PICKED = _kernel(
    "capacity_models.particular_nodes.place_picked", "void(int64, Sim)", unrolled=False
)

BEFORE = _kernel("power.switching_plan.before_pass", "void(Sim)", unrolled=False)
UNAWARE = _kernel("power.switching_plan.after_pass_unaware", "void(Sim)", unrolled=False)
MANAGED = _kernel("power.switching_plan.after_pass_managed", "void(Sim)", unrolled=False)
MANAGED_SHARED = _kernel("shared.power_management.after_pass_managed_shared", "void(Sim)")
GIVE_ORDERS = _kernel("power.switching_plan.give_orders", "void(int64, int64[::1], int64)")
"""Switch nodes on (1) or off (0) now; request a pass: ``(address, nodes, on)``."""
