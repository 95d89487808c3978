"""SPARS: node power states on the NASA workload, and agents that switch nodes."""
