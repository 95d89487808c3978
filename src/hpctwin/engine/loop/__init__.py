"""The event loop: all events of one time, then a scheduling pass."""
