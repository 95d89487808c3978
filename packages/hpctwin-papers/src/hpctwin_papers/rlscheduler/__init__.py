"""RLScheduler: mean bounded slowdowns."""
