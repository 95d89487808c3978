"""
Before a maintenance
====================

Half of the machine is away from hour 20 to 26, and everybody knows. No job starts that would not
end in time; short ones fill the gap.
"""

from hpctwin import Cluster, generate, simulate

machine = Cluster.uniform(
    64, reservations=[{"name": "cooling loop", "start": "20h", "end": "26h", "nodes": "0-31"}]
)
jobs = generate("poisson", jobs=400, nodes=64, load=0.9, mean_runtime_s=3600, seed=13)
result = simulate(jobs, machine, "fcfs+easy", track_nodes=True)

gantt = result.plot.gantt(start_s=8 * 3600, end_s=32 * 3600)
