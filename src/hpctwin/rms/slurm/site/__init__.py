"""Slurm's settings: cluster, policy, limits, reservations."""
