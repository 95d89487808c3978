"""Free nodes over future time, and reservations."""
