"""Scheduling passes of clusters with preemption."""
