"""Jobs that preempt others, and jobs that continue from a checkpoint.

Compiled only for clusters with preemption, or if jobs write checkpoints and nodes fail. The rules
are in docs/reference/rules; `capacity_models` has the operations that backfills call.
"""

PREEMPTING_PASSES = ("none", "first-fit", "easy", "slurm")
"""Backfills that support preemption."""
