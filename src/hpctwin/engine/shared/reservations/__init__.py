"""Reservations on shared nodes: from when on, and where, a job fits next to those of others."""
