"""CQSim+: jobs among two clusters."""
