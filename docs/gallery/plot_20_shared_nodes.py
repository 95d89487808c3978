"""
Jobs that share nodes
=====================

How much of each node's cores, memory and GPUs is held, and what is free but of no use to the jobs
that wait.
"""

import numpy as np

from hpctwin import Cluster, Workload, simulate

rng = np.random.default_rng(15)
size = 600
gpus = rng.choice([0, 0, 0, 1, 2, 4], size)
runtime = rng.lognormal(8, 0.8, size)
jobs = Workload.build(
    submit_s=np.sort(rng.uniform(0, 86400, size)),
    runtime_s=runtime,
    walltime_s=runtime * 2,
    nodes=np.ones(size, int),
    chunks={
        "tasks": np.ones(size, int),
        "cores_per_task": rng.choice([1, 2, 4, 8, 16, 32], size),
        "memory_gb_per_task": rng.choice([4, 16, 64, 128], size),
        "gpus_per_task": gpus,
    },
    name="mixed",
)
group = {"name": "gpu", "count": 12, "cores": 64, "memory_gb": 512, "gpus": 4}
result = simulate(jobs, Cluster.model_validate({"nodes": [group]}), "fcfs+easy")

held = result.plot.heatmap()

# %%
# Free, and of no use:

unusable = result.plot.fragmentation()
