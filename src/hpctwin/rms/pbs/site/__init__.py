"""PBS's and Torque's settings: cluster, policy, limits."""
