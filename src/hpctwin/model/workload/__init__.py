"""Workloads: jobs as columns."""
