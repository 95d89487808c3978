"""Platforms of SimGrid and Batsim in XML: hosts, links and routes, and Batsim's power states."""
