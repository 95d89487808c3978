"""Data structures of compiled code: heaps, node sets, stacks, tables of numbers."""
