"""Runs for other programs' viewers."""
