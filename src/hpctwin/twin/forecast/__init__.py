"""Forecasts of start times, and how often they came true."""
