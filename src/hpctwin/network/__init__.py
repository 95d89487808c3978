"""The network of a cluster: hosts, links, routes, and profiles of jobs.

- `platform`: hosts and links as arrays, and routes between hosts.
- `zones`, `topologies`: parts of a network, each with its own way to route.
- `builder`: hosts, links and zones, added one by one, become a platform.
- `profiles`: a job's computation, communication, reads and writes.
- `archive`: platforms and profiles as text and arrays, for saved simulations.
"""
