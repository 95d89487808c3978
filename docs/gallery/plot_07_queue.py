"""
The queue over time
===================

How many jobs wait, and for how many nodes they ask, under two orderings of the same jobs.
"""

from hpctwin import compare, generate
from hpctwin.report import plot_queue

jobs = generate("lublin", jobs=1500, nodes=128, load=1.0, seed=4)
results = compare(jobs, 128, ["fcfs+easy", "sjf+easy"])

queue = plot_queue({name: result.series for name, result in results.items()})
