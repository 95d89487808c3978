"""Figures of runs, workloads and sweeps."""
