"""
When will it start?
===================

Forecasts of the start of each waiting job, made at one instant by what users asked for, beside what
came true. Jobs end sooner than asked for, so they start sooner; those that come later pass some of
them.
"""

import matplotlib.pyplot as plt

from hpctwin import generate, simulate
from hpctwin.simulation import Simulation, window

jobs = generate("poisson", jobs=800, nodes=64, load=1.2, overestimate=2, seed=18)
true = simulate(jobs, 64, "wfp+easy").jobs
now = 2 * 86400

# What is known by now: the jobs that are there, their walltimes, and since when some run.
start_ms = (true["start_s"] * 1000).round().cast(int).to_numpy()
there = (jobs.submit_ms <= now * 1000) & (true["end_s"] > now).to_numpy()
known = jobs.replace(runtime_ms=jobs.walltime_ms, recorded_start_ms=start_ms)[there]
part = window(known, now, now + 30 * 86400)
plan = Simulation(part.workload, 64, "wfp+easy", begin_s=part.not_before_s)
forecast = part.run(plan).jobs.select("job_id", told_s="start_s")

both = true.join(forecast, on="job_id")
both = both.filter(both["start_s"] > now)
figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
ax.scatter((both["told_s"] - now) / 3600, (both["start_s"] - now) / 3600, s=18)
longest = max(both["told_s"].max(), both["start_s"].max()) / 3600 - now / 3600
ax.plot([0, longest], [0, longest], color="#999999", linewidth=0.8)
ax.set(xlabel="forecast: starts in h", ylabel="came true: started after h")
