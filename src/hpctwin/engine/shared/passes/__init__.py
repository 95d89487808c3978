"""Scheduling passes on shared nodes."""
