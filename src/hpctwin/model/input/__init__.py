"""Checks of what users pass and write."""
