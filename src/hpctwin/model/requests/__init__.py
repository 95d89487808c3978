"""Requests of jobs, as users write them."""
