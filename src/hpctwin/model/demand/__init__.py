"""What the jobs of a workload ask of a cluster."""
