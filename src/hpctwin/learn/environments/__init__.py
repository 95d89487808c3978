"""Environments to train agents in."""
