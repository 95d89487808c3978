"""Requests of a workload's jobs to a cluster."""
