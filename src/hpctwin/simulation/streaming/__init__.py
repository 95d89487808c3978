"""Workloads that are larger than memory."""
