"""The Standard Workload Format."""
