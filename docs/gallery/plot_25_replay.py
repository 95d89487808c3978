"""
A log as it was, and under a policy
===================================

Replay starts each job when the log says it started; a simulation starts it when a policy says. What
lies between the two is what the policy would have changed.
"""

from hpctwin import generate, replay, simulate
from hpctwin.report import plot_queue

jobs = generate("poisson", jobs=600, nodes=64, load=0.9, seed=19)
# For want of a real log: what happened is what another policy did.
happened = simulate(jobs, 64, "fcfs+none").jobs["start_s"]
log = jobs.replace(recorded_start_ms=(happened * 1000).round().cast(int).to_numpy())

as_it_was = replay(log, 64)
print(f"{len(as_it_was.conflicts)} starts that could not have been so")
other = simulate(log, 64, "wfp+easy")

queue = plot_queue({"as it was": as_it_was.result.series, "wfp+easy": other.series})
