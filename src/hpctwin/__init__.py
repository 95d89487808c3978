"""hpctwin."""
