"""
Which policy for which load
===========================

The same jobs, closer and closer together. Each policy is the best somewhere, or nowhere.
"""

import matplotlib.pyplot as plt

from hpctwin import compare, generate

month = generate("lublin", jobs=2000, nodes=256, seed=6)
loads = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
policies = ["fcfs+none", "fcfs+easy", "fcfs+conservative", "wfp+easy", "sjf+easy"]

found = {name: [] for name in policies}
for load in loads:
    for name, result in compare(month.scale(load=load, nodes=256), 256, policies).items():
        found[name].append(result.summary()["mean_bounded_slowdown"])

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for name, values in found.items():
    ax.plot(loads, values, marker="o", label=name)
ax.set(xlabel="offered load", ylabel="mean bounded slowdown", yscale="log")
ax.legend(frameon=False)
