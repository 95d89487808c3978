"""Slurm as a resource manager of the twin."""
