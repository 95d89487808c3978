"""
How long jobs wait under several policies
=========================================

The share of jobs with at most a given wait.
"""

from hpctwin import compare, generate
from hpctwin.report import plot_wait_cdf

jobs = generate("lublin", jobs=3000, nodes=256, load=0.9, seed=1)
results = compare(jobs, 256, ["fcfs+none", "fcfs+easy", "sjf+easy", "wfp+easy"])

waits = plot_wait_cdf({name: result.jobs for name, result in results.items()})
