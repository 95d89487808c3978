"""Output of commands: screen, files and logs."""
