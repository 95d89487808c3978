"""The configuration of the live twin."""
