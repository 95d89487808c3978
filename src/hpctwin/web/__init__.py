"""The web page beside a live twin: REST, live updates, metrics, dashboard."""
