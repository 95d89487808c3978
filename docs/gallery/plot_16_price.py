"""
Jobs that may wait for cheaper power
====================================

Each job may begin up to twelve hours later, where its walltime comes cheapest.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpctwin import Cluster, generate, simulate
from hpctwin.energy import Series, cheapest_start_times

day = 0.25 + 0.12 * np.cos((np.arange(24) - 19) / 24 * 2 * np.pi)
price = Series.hourly(day, "EUR")
machine = Cluster.uniform(64, active_w=400, idle_w=100)
jobs = generate("poisson", jobs=600, nodes=64, load=0.4, mean_runtime_s=3600, seed=11)

submit, walltime = jobs.submit_ms / 1000, jobs.walltime_ms / 1000
runs = {}
for hours in (0, 3, 6, 12, 24):
    begins = cheapest_start_times(submit, walltime, np.full(len(jobs), hours * 3600.0), price)
    runs[hours] = simulate(jobs, machine, "fcfs+easy", begin_s=begins, log=True)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.step(range(24), day, where="post")
left.set(xlabel="hour of the day", ylabel="EUR a kWh", ylim=(0, None))
for hours, result in runs.items():
    spent = result.energy.job_costs(price).sum()
    right.plot(result.summary()["mean_wait_s"] / 3600, spent, "o", label=f"may wait {hours} h")
right.set(xlabel="mean wait, h", ylabel="EUR for the jobs' energy")
right.legend(frameon=False)
