"""Exports of runs for other programs."""
