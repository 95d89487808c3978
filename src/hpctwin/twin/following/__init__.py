"""Following a cluster over the bus."""
