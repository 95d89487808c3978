"""Nodes that jobs share: room on them, which a job gets, what is promised of them, and the passes.

Compiled only where a job of the workload asks for tasks. What is free of each node is kept as it changes;
the plan is not a table over time, as for whole nodes, but what running jobs leave free (it only grows) and a
list, on each node, of what is promised there. So looking at one node costs as many steps as it has promises,
which is mostly none.
"""
