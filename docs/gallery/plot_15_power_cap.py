"""
A power cap by night and day
============================

What all nodes draw, without a cap and with one that is lower by day.
"""

from hpctwin import Cluster, compare, generate
from hpctwin.report import plot_power

jobs = generate("poisson", jobs=500, nodes=32, load=1.7, mean_runtime_s=3600, seed=10)
machine = Cluster.uniform(64, active_w=400, idle_w=100)
capped = Cluster.uniform(64, active_w=400, idle_w=100, cap="24kW,08:00-18:00=16kW")

free = compare(jobs, machine, ["fcfs+easy"], log=True)["fcfs+easy"]
bound = compare(jobs, capped, ["fcfs+easy"], log=True)["fcfs+easy"]
power = plot_power({"no cap": free.energy, "24 kW, by day 16 kW": bound.energy})
