"""Many environments stepped together."""
