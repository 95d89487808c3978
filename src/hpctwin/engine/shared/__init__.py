"""Nodes that jobs share: room on them, which a job gets, what is promised of them, and the passes.

Compiled only where a job of the workload asks for tasks. What is free of each node is kept as it changes;
the plan is not a table over time, as for whole nodes, but what running jobs leave free (it only grows) and a
list, on each node, of what is promised there. So looking at one node costs as many steps as it has promises,
which is mostly none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctwin.engine.passes import Pass

__all__ = ["SHARED_PASSES", "find_shared_pass"]

SHARED_PASSES = ("none", "first-fit", "easy", "conservative", "slurm", "pack")
"""The backfills that there are for shared nodes."""


def find_shared_pass(name: str) -> Pass:
    """The pass of one of `SHARED_PASSES` on shared nodes."""
    from importlib import import_module

    module = import_module(f"{__name__}.pass_{name.replace('-', '_')}")
    found: Pass = module.PASS
    return found
