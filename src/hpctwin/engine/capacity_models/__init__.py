"""Capacity models: whole or shared nodes, with or without preemption.

A backfill is written once, with the operations of `capacity`. Each capacity model is a module that
implements them. `bind` makes the copy of a backfill that calls those of one model.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass
from dis import get_instructions
from functools import cache
from importlib import import_module
from inspect import getsource
from types import FunctionType
from typing import Any, Protocol, cast

from hpctwin.engine.compile.entry_points import (
    FITS_LATER,
    GAVE_BACK,
    PLACE_PICKED,
    WAKE,
    WAKE_SHARED,
)
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.library import check_sources
from hpctwin.engine.state.layout import Arrays

__all__ = [
    "PARTICULAR_NODES", "PREEMPTING_SHARED", "PREEMPTING_WHOLE", "SHARED_NODES", "WHOLE_NODES", "Capacity",
    "CapacityModel", "bind", "capacity", "uses_capacity",
]  # fmt: skip


@dataclass(frozen=True)
class CapacityModel:
    """A capacity model.

    Args:
        name: Module in this package that implements the operations.
        shared: Whether jobs share nodes.
        by_node: Whether reservations are sets of particular nodes.
        preempts: Whether jobs preempt others.
        gave_back: Called when a job returns what it has; None if the event loop does that.
        fits_later: Called to find out whether a job fits at a time; None if plans say so.
        wake: Called to resume suspended jobs; None if none are suspended.
        placing: Claims a job's nodes; None if the placement decides.
    """

    name: str
    shared: bool = False
    by_node: bool = False
    preempts: bool = False
    gave_back: Kernel | None = None
    fits_later: Kernel | None = None
    wake: Kernel | None = None
    placing: Kernel | None = None

    @property
    def operations(self) -> Any:
        """The module, loaded at first use."""
        name = f"{__name__}.{self.name}"
        if name not in sys.modules:
            check_sources()
        return import_module(name)


WHOLE_NODES = CapacityModel("whole_nodes")
PARTICULAR_NODES = CapacityModel("particular_nodes", by_node=True, placing=PLACE_PICKED)
SHARED_NODES = CapacityModel("shared_nodes", shared=True, by_node=True, gave_back=GAVE_BACK)
PREEMPTING_WHOLE = CapacityModel("preempting_whole_nodes", preempts=True, wake=WAKE)
PREEMPTING_SHARED = CapacityModel(
    "preempting_shared_nodes",
    shared=True,
    by_node=True,
    preempts=True,
    gave_back=GAVE_BACK,
    fits_later=FITS_LATER,
    wake=WAKE_SHARED,
)


class Capacity(Protocol):
    """The operations of a capacity model."""

    @staticmethod
    def begin_pass(sim: Arrays) -> None:
        """Begin a scheduling pass: nothing is reserved or blocked."""

    @staticmethod
    def begin_cycle(sim: Arrays) -> None:
        """Begin another cycle in the same pass: nothing is reserved or blocked any more."""

    @staticmethod
    def any_may_start(sim: Arrays) -> bool:
        """Return whether any pending job may start; False is certain. Called often."""

    @staticmethod
    def order_jobs(sim: Arrays) -> int:
        """Put the pending jobs in order, for `job_at`; return how many there are."""

    @staticmethod
    def job_at(i: int, size: int, sim: Arrays) -> int:
        """Return job ``i`` in order; call it for 0, 1, 2 and so on."""

    @staticmethod
    def job_left(i: int, first: int, sim: Arrays) -> int:
        """Return a job of the rest after `job_at` has returned ``first``, in any order."""

    @staticmethod
    def keep_order(sim: Arrays) -> int:
        """Put the pending jobs in order, for `kept_job`; return how many there are.

        The order may be kept from pass to pass.
        """

    @staticmethod
    def kept_job(i: int, size: int, sim: Arrays) -> int:
        """Return job ``i`` in the order of `keep_order`; call it for 0, 1, 2 and so on."""

    @staticmethod
    def list_preemptors(sim: Arrays) -> int:
        """Put pending jobs that may preempt others into ``sim.later``, in order; return how many."""

    @staticmethod
    def sort_by_level(size: int, sim: Arrays) -> None:
        """Sort jobs of ``sim.later``: those come first that may preempt the others."""

    @staticmethod
    def list_startable(sim: Arrays) -> int:
        """Put jobs that may start now into ``sim.later``, in order; return how many."""

    @staticmethod
    def is_sorted(sim: Arrays) -> bool:
        """Return whether ``sim.queue`` is in the order of jobs and of candidates."""

    @staticmethod
    def next_candidate(i: int, sim: Arrays) -> int:
        """Return the first place of ``sim.queue``, from ``i`` on, of a job that may fit.

        Returns:
            That place; the length of the queue if there is none.
        """

    @staticmethod
    def is_too_large(j: int, sim: Arrays) -> bool:
        """Return whether a job does not fit the nodes that are up, even if these are idle."""

    @staticmethod
    def is_skipped(j: int, sim: Arrays) -> bool:
        """Return whether a pass ignores a job: it is too large, or a limit is reached."""

    @staticmethod
    def may_fit(j: int, sim: Arrays) -> bool:
        """Return whether a job may fit what is free, reservations apart; False is certain."""

    @staticmethod
    def fits(j: int, sim: Arrays) -> bool:
        """Return whether a job fits from now on without delaying a reservation.

        `may_fit` is cheaper.
        """

    @staticmethod
    def start_fitting(j: int, sim: Arrays) -> None:
        """Start the job that `fits` has just found to fit."""

    @staticmethod
    def start(j: int, sim: Arrays) -> bool:
        """Start a job if it fits; return whether it did."""

    @staticmethod
    def may_preempt(j: int, sim: Arrays) -> bool:
        """Return whether a job may start by preempting others."""

    @staticmethod
    def start_or_preempt(j: int, sim: Arrays) -> bool:
        """Start a job if it fits, or fits once others are preempted.

        A job that may use a blocked pool preempts no other.

        Returns:
            Whether it started.
        """

    @staticmethod
    def awaits_nodes(j: int, sim: Arrays) -> bool:
        """Return whether jobs that were preempted for a job are still in their grace time."""

    @staticmethod
    def reserve(j: int, not_before: int, sim: Arrays) -> int:
        """Reserve the earliest nodes for a job, not before a time (ms); return the start."""

    @staticmethod
    def reserve_rounded(j: int, last: int, step: int, up: int, wide: bool, sim: Arrays) -> int:
        """Reserve the earliest nodes for a job between multiples of a step, as Slurm does.

        Whole nodes are reserved.

        Args:
            j: Job.
            last: Latest start for which a reservation is made, ms.
            step: Reservations begin and end at multiples of it, ms.
            up: 1 if the end is rounded up, 0 if it is rounded down.
            wide: Whether cluster-wide resources are reserved too.
            sim: Simulation.

        Returns:
            Begin of the reservation; NEVER if none was made.
        """

    @staticmethod
    def earliest_start(j: int, not_before: int, sim: Arrays) -> int:
        """Return the earliest time (ms), not before another, from which a job fits."""

    @staticmethod
    def shortage(j: int, sim: Arrays) -> int:
        """Return the shortage that keeps a job from starting.

        It is -1 for none, 0 for nodes, otherwise 1 + the number of a resource.
        """

    @staticmethod
    def alignment(j: int, sim: Arrays) -> float:
        """Return the sum over nodes and resources of share requested × share free.

        It is -1 if the job does not fit.
        """

    @staticmethod
    def begin_with_held(sim: Arrays) -> None:
        """Begin a pass that keeps the last one's reservations, which `load_held` loads."""

    @staticmethod
    def load_held(sim: Arrays) -> bool:
        """Load the reservations of pending jobs; return False if they no longer fit."""

    @staticmethod
    def hold(j: int, sim: Arrays) -> None:
        """Reserve the earliest nodes for a job, and keep that for later passes (`Held`)."""

    @staticmethod
    def free_held(j: int, sim: Arrays) -> None:
        """Free the reservation of a job, between passes or before `load_held`."""

    @staticmethod
    def finds_again(j: int, sim: Arrays) -> bool:
        """Return whether a held reservation is where a search would put it; may move it there.

        False says nothing.
        """

    @staticmethod
    def give_back_held(j: int, sim: Arrays) -> None:
        """Free the reservation of a job after `load_held`."""

    @staticmethod
    def take_held(j: int, sim: Arrays) -> None:
        """Take a job's reservation out of a plan that considers no reservations."""

    @staticmethod
    def start_held(j: int, sim: Arrays) -> None:
        """Start a job whose reservation begins now."""

    @staticmethod
    def block(j: int, sim: Arrays) -> bool:
        """Keep all that a job could use from later jobs; return whether nodes are left."""


capacity: Capacity = cast("Capacity", object())
"""Stands for the capacity model in the source of a backfill."""


@cache
def bind(function: Callable[..., Any], model: CapacityModel) -> Callable[..., Any]:
    """Return a copy of a function, and those it calls, with `capacity` as one model."""
    if function.__module__.startswith("hpctwin.engine.passes."):
        _import_parts(function.__module__)
    bound: dict[str, Any] = {}
    for name, value in _used(function).items():
        if value is capacity:
            bound[name] = model.operations
        elif uses_capacity(value.py_func):
            bound[name] = jit(bind(value.py_func, model))
    if not bound:
        return function
    copy = FunctionType(function.__code__, {**function.__globals__, **bound}, function.__name__)
    # Numba caches compiled code by this name.
    copy.__qualname__ = f"{function.__name__}_{model.name}"
    copy.__annotations__ = function.__annotations__
    return copy


@cache
def _import_parts(name: str) -> None:
    """Run the imports below ``if TYPE_CHECKING`` in a module of a backfill.

    They are of functions that its kernels call. Without compiling, nothing calls these functions.
    """
    module = import_module(name)
    for block in ast.parse(getsource(module)).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            code = compile(ast.Module(block.body, []), str(module.__file__), "exec")
            check_sources()
            exec(code, vars(module))


@cache
def uses_capacity(function: Callable[..., Any]) -> bool:
    """Return whether a function, or one that it calls, is written with `capacity`."""
    return any(
        value is capacity or uses_capacity(value.py_func) for value in _used(function).values()
    )


def _used(function: Callable[..., Any]) -> dict[str, Any]:
    """Return `capacity` and the compiled functions among a function's globals."""
    steps = get_instructions(function)
    names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    found = {name: function.__globals__.get(name) for name in sorted(names)}
    return {
        name: value
        for name, value in found.items()
        if value is capacity or isinstance(getattr(value, "py_func", None), FunctionType)
    }
