"""Experiments, each a configuration and a function."""
