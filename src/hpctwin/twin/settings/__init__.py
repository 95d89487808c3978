"""Configuration of the live twin, and its checks."""
