"""The live twin."""
