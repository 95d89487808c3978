"""Pending jobs: their order, and which of them are eligible."""
