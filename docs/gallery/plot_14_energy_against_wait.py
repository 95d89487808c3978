"""
Energy against waiting
======================

Each point is a power policy with its timeout; a line joins those that none is better than in both.
"""

from hpctwin import Cluster, compare, generate
from hpctwin.report import plot_pareto

machine = Cluster.uniform(
    64, active_w=190, idle_w=90, sleep_w=9, off_s=300, off_w=90, on_s=900, on_w=150
)
jobs = generate("poisson", jobs=600, nodes=64, load=0.5, seed=9)
policies = ["fcfs+easy"]
policies += [f"fcfs+easy~{power}:{t}m" for power in ("psus", "psas-ipm") for t in (5, 20, 60)]
results = compare(jobs, machine, policies)

points = {
    name.removeprefix("fcfs+easy~"): (result.energy.total_j, result.summary()["mean_wait_s"])
    for name, result in results.items()
}
pareto = plot_pareto(points)
