"""The cluster: node groups, partitions, limits, caps."""
