"""What-ifs: the mirror simulated ahead under each policy."""
