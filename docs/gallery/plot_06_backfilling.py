"""
What backfilling is for
=======================

Nodes in use by the same jobs, without backfilling and with EASY.
"""

from hpctwin import compare, generate
from hpctwin.report import plot_utilization

jobs = generate("poisson", jobs=500, nodes=128, load=1.0, seed=2)
results = compare(jobs, 128, ["fcfs+none", "fcfs+easy"])

used = plot_utilization({name: result.series for name, result in results.items()})
