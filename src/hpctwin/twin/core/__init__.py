"""The pure core: events and snapshots in, decisions out."""
