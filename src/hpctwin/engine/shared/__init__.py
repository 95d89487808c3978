"""Shared nodes: free amounts, placements, allocations and reservations.

This code is compiled only if a job of the workload requests tasks. The free amounts of each node
are updated as they change. The plan is not a table over time, as it is for whole nodes. It consists
of the amounts that running jobs leave free, which only grow, and a list of reservations for each
node. Checking a node therefore takes one step per reservation on it; most nodes have none.
"""
