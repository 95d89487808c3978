"""Replay of a trace: jobs start when they did in reality."""
