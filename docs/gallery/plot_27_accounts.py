"""
Who used what
=============

Node-hours, energy and waits by user, of one run.
"""

import matplotlib.pyplot as plt

from hpctwin import Cluster, generate, simulate

jobs = generate("poisson", jobs=800, nodes=64, load=0.9, users=10, seed=20)
result = simulate(jobs, Cluster.uniform(64, active_w=400, idle_w=100), "fairshare+easy")
users = result.accounts("user").table.sort("node_hours")

figure, panels = plt.subplots(1, 3, figsize=(9, 3.4), sharey=True, layout="constrained")
names = [f"user {name}" for name in users["name"]]
panels[0].barh(names, users["node_hours"])
panels[0].set_xlabel("node-hours")
panels[1].barh(names, users["energy_j"] / 3.6e6, color="#E69F00")
panels[1].set_xlabel("energy of jobs, kWh")
panels[2].barh(names, users["mean_wait_s"] / 60, color="#009E73")
panels[2].set_xlabel("mean wait, minutes")
