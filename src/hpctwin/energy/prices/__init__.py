"""Prices and carbon intensities over time."""
