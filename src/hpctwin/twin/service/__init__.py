"""The live twin as a long-running process, and the answers that it gives."""
