"""Commands that simulate and report."""
