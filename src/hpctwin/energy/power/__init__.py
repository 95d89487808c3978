"""Power of nodes and of what feeds them."""
