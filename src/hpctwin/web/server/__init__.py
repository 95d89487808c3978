"""The web server: access, routes, live updates, metrics endpoint."""
