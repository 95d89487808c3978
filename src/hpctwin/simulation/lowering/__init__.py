"""From workload, cluster and policy to the engine's arrays."""
