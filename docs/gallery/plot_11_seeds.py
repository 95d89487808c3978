"""
Is it better, or was it luck?
=============================

The difference between two policies on the same jobs, over twenty seeds: each point is a pair.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpctwin import compare, generate

differences = {"sjf+easy": [], "wfp+easy": [], "fcfs+conservative": []}
for seed in range(20):
    jobs = generate("poisson", jobs=600, nodes=64, load=0.9, seed=seed)
    results = compare(jobs, 64, ["fcfs+easy", *differences])
    before = results["fcfs+easy"].summary()["mean_wait_s"]
    for name, found in differences.items():
        found.append((results[name].summary()["mean_wait_s"] - before) / 60)

figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for row, found in enumerate(differences.values()):
    mean, half = np.mean(found), 2.09 * np.std(found, ddof=1) / np.sqrt(len(found))
    ax.plot(found, np.full(len(found), row), "|", color="#999999", markersize=14)
    ax.errorbar(mean, row, xerr=half, fmt="o", capsize=4)
ax.axvline(0, color="#222222", linewidth=0.8)
ax.set(yticks=range(len(differences)), yticklabels=differences, ylim=(-0.6, 2.6))
ax.set_xlabel("mean wait against fcfs+easy, minutes, with the mean's 95 % interval")
