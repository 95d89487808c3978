"""Free capacity of shared nodes, and jobs that certainly fit."""
