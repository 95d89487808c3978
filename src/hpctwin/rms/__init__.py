"""Resource managers: events in, snapshot in, actions out."""
