"""Free capacity of shared nodes, and which jobs certainly fit."""
