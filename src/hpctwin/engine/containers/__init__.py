"""Data structures of compiled code: heaps, sets of nodes, stacks, tables of numbers."""
