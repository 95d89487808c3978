"""News of resource managers: polled, or pushed through a spool or Redis."""
