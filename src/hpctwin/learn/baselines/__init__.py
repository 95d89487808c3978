"""Baselines, bounds and the evaluation of agents."""
