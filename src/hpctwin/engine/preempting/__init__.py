"""Jobs that make room for others, and jobs that go on from a checkpoint: the passes of such machines.

Compiled only where a cluster has preemption, or jobs write checkpoints and nodes fail. Whole nodes, by a plan
over time; the other passes know nothing of this. The rules are in docs/engine.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctwin.engine.passes import Pass

__all__ = ["PREEMPTING_PASSES", "find_preempting_pass"]

PREEMPTING_PASSES = ("none", "first-fit", "easy", "slurm")
"""The backfills that there are where jobs preempt others."""


def find_preempting_pass(name: str) -> Pass:
    """The pass of one of `PREEMPTING_PASSES` where jobs preempt others."""
    from importlib import import_module

    module = import_module(f"{__name__}.passes.{name.replace('-', '_')}")
    found: Pass = module.PASS
    return found
