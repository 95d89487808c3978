"""Acting on a cluster: leases, starts, and the guard that allows them."""
