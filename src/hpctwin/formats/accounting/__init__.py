"""Accounting of Slurm, PBS and Torque."""
