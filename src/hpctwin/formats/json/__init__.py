"""Workloads in JSON: Batsim, SPARS, WfCommons."""
