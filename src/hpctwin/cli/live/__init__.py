"""Commands of the live twin."""
