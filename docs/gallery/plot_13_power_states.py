"""
Nodes that sleep
================

The state of each node, where idle nodes are switched off after twenty minutes and woken as late as
the plan allows.
"""

from hpctwin import Cluster, Simulation, generate
from hpctwin.report import plot_node_states

machine = Cluster.uniform(
    32, active_w=190, idle_w=90, sleep_w=9, off_s=300, off_w=90, on_s=900, on_w=150
)
jobs = generate("poisson", jobs=120, nodes=32, load=0.5, seed=8)
result = Simulation(jobs, machine, "fcfs+easy~psas-ipm:20m", log=True).run()

states = plot_node_states(result.energy)
