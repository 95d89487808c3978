"""Energy accounts by node, job, user and account."""
