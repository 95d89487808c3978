"""Units, node lists and other texts that people read and write."""
