"""Jobs that share hosts and links: what they do on their nodes, and when they end.

- `phases`: what a job does, as tables that the engine reads.
- `route_table`: routes between hosts, each computed once.
- `network`: hosts and links with the jobs that run on them.
"""
