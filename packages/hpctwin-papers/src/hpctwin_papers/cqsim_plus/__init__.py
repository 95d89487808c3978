"""CQSim+: jobs distributed to two clusters."""
