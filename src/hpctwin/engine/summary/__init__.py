"""Sums over jobs and over time for the summary of a run."""
