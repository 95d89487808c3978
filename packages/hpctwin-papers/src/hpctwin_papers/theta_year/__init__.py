"""A year of Theta under a handful of policies."""
