"""Checks of policies written in Python."""
