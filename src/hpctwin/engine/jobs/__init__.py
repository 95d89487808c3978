"""Transitions of jobs: start, end, preemption, suspension, resizing."""
