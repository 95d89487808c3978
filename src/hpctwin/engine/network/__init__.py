"""Parallel tasks that share hosts and links: the sharing of capacities, and the events of tasks."""
