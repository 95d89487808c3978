"""What the page shows, as data."""
