"""Acting on a cluster: whether the twin may, when it decides, and sending leases and starts."""
