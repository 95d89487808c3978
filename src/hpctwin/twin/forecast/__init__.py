"""Forecasts of start times, and their accuracy."""
