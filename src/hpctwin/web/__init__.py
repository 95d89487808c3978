"""The web pages of live twins and runs: REST, live updates, metrics, dashboard."""
