"""
Who ran where: a Gantt chart
============================

Each rectangle is a job on its nodes. The lighter, the longer it waited.
"""

from hpctwin import Cluster, generate, simulate

jobs = generate("poisson", jobs=150, nodes=32, load=1.0, seed=3)
result = simulate(jobs, Cluster.uniform(nodes=32), "fcfs+easy@contiguous")

gantt = result.plot.gantt(color_by="wait")
