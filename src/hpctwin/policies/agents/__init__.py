"""Trained agents as parts of a policy."""
