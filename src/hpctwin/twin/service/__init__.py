"""The live twin as a process."""
