"""The parts that all kinds of simulation have in common."""
