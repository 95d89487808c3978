"""Jobs that preempt others, and jobs that go on from a checkpoint.

Compiled only where a cluster has preemption, or jobs write checkpoints and nodes fail. The rules are in
docs/engine.md; `capacity_models` has the operations that backfills call.
"""

PREEMPTING_PASSES = ("none", "first-fit", "easy", "slurm")
"""The backfills that work where jobs preempt others."""
