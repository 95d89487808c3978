"""Jobs that share hosts and links: their phases, and the times at which they end.

- `phases`: phases of a job, as tables that the engine reads.
- `mpi`: recorded MPI calls as phases.
- `route_table`: routes between hosts, each computed once.
- `network`: hosts and links with the jobs that run on them.
"""
