"""
Is it better, or was it luck?
=============================

What policies change on the same jobs, over twenty seeds: means of pairs, with their intervals.
"""

from hpctwin import compare, generate
from hpctwin.metrics import paired_differences
from hpctwin.report import plot_differences

policies = ["fcfs+easy", "sjf+easy", "wfp+easy", "fcfs+conservative"]
runs = []
for seed in range(20):
    jobs = generate("poisson", jobs=600, nodes=64, load=0.9, seed=seed)
    results = compare(jobs, 64, policies)
    runs.append({name: result.summary() for name, result in results.items()})

figure = plot_differences(paired_differences(runs))
