"""What jobs ask for, as users write it."""
