"""
What bad walltimes do
=====================

Users ask for more time than their jobs take, and the scheduler plans by what they ask. Jobs that
end early leave holes that short ones fill: the mean wait may even fall, as Mu'alem and Feitelson
found in 2001.
"""

import matplotlib.pyplot as plt

from hpctwin import compare, generate

factors = [1, 1.5, 2, 3, 5, 10]
policies = ["fcfs+easy", "sjf+easy", "fcfs+conservative"]
waits = {name: [] for name in policies}
exact = generate("poisson", jobs=3000, nodes=128, load=0.9, overestimate=1, seed=7)
for factor in factors:
    jobs = exact.replace(walltime_ms=(exact.runtime_ms * factor).astype("int64"))
    for name, result in compare(jobs, 128, policies).items():
        waits[name].append(result.summary()["mean_wait_s"] / 3600)

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for name, values in waits.items():
    ax.plot(factors, values, marker="o", label=name)
ax.set(xlabel="walltime over runtime", ylabel="mean wait, h", ylim=(0, None))
ax.legend(frameon=False)
