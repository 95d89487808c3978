"""
Nodes that fail
===============

Jobs on a node that fails go back into the queue: what they had done is lost (hatched).
"""

from hpctwin import Cluster, generate, simulate

machine = Cluster.uniform(
    48, failures={"mtbf": "20d", "mttr": "4h", "seed": 3, "on_failure": "requeue"}
)
jobs = generate("poisson", jobs=200, nodes=48, load=0.8, mean_runtime_s=7200, seed=14)
result = simulate(jobs, machine, "fcfs+easy", track_nodes=True)

gantt = result.plot.gantt()
