"""Core of the twin: events and snapshots in, decisions out."""
