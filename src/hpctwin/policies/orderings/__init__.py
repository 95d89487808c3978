"""Orderings: which job is considered first."""
