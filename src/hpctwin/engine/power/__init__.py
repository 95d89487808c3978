"""Power states of nodes, and how power policies switch them."""
