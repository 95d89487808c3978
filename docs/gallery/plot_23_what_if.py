"""
What if, from here on?
======================

A simulation is stopped after two days, and copies of it go on under other policies: what the live
twin does at each decision.
"""

from hpctwin import Simulation, generate
from hpctwin.report import plot_queue

jobs = generate("lublin", jobs=1500, nodes=128, load=1.0, seed=4)
now = Simulation(jobs, 128, "fcfs+easy")
now.advance(2 * 86400)

futures = {"fcfs+easy (goes on)": now.fork().run().series}
for policy in ("sjf+easy", "wfp+easy"):
    futures[policy] = now.fork(policy).run().series

queue = plot_queue(futures, title="Queue, from two days on", start_s=86400, end_s=6 * 86400)
queue.axes[0].axvline(2 * 86400, color="black", linewidth=0.8)
