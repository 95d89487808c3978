"""Metrics of jobs."""
