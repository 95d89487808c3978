"""
An agent against simple rules
=============================

In the environment in which an agent chooses the next job, what simple rules reach on the same held-
out jobs: the bar an agent must clear.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpctwin import generate
from hpctwin.learn import Episodes, JobSelectionEnv

trace = generate("poisson", jobs=1000, nodes=64, load=0.95, seed=1)
env = JobSelectionEnv(Episodes.of(trace, 64, jobs=64), window=32)
rng = np.random.default_rng(1)
rules = {
    "first": lambda seen, mask: int(np.argmax(mask)),
    "shortest": lambda seen, mask: int(np.argmin(np.where(mask, seen[:, 2], np.inf))),
    "anyone": lambda seen, mask: int(rng.choice(np.flatnonzero(mask))),
}
found = {name: [] for name in rules}
for name, choose in rules.items():
    for first in range(100, 900, 100):
        seen, _ = env.reset(options={"first": first})
        over = False
        while not over:
            seen, _, over, _, info = env.step(choose(seen, env.action_masks()))
        found[name].append(info["mean_bounded_slowdown"])

figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
ax.boxplot(found.values(), tick_labels=list(found), orientation="horizontal")
ax.set(xscale="log", xlabel="mean bounded slowdown, eight episodes of 64 jobs")
