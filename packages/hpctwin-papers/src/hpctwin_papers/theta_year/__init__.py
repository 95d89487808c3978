"""A year of Theta under several policies."""
