"""
Links that slow jobs down
=========================

Jobs that exchange data on a fat tree whose upper links are thin. On random nodes, they wait for
each other.
"""

import numpy as np

from hpctwin import Cluster, Workload, simulate
from hpctwin.network.profiles import HomogeneousTask

tree = {
    "topology": "fat-tree",
    "children": [8, 4],
    "parents": [1, 1],
    "bandwidth": "2 GB/s",
    "core_speed": "1 Gflop/s",
}
cluster = Cluster(name="tree", nodes=[{"name": "node", "count": 32}], network=tree)
rng = np.random.default_rng(7)
size = 120
walltime = np.full(size, 7200.0)
jobs = Workload.build(
    submit_s=np.sort(rng.uniform(0, 7200, size)),
    nodes=rng.choice([2, 4, 8], size),
    walltime_s=walltime,
    runtime_s=walltime,
    profiles=[
        HomogeneousTask(cpu=1e9 * rng.uniform(100, 600), com=1e9 * rng.uniform(5, 100))
        for _ in range(size)
    ],
    name="exchange",
)
scattered = simulate(jobs, cluster, placement="random", sharing="fair", log=True)

links = scattered.plot.congestion()

# %%
# On neighboring nodes, most traffic stays below one switch:

packed = simulate(jobs, cluster, placement="first-fit", sharing="fair", log=True)

links_packed = packed.plot.congestion()

# %%
# How much longer jobs ran than alone on the same nodes:

for name, result in (("random", scattered), ("first-fit", packed)):
    summary = result.summary()
    print(f"{name}: {summary['mean_contention_slowdown']:.2f} on average")
