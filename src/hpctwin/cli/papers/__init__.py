"""Commands that reproduce papers."""
