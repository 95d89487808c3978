"""What-ifs: simulations of the mirror from now on, one per policy."""
