"""Commands for workloads, clusters, data sets and accounts."""
