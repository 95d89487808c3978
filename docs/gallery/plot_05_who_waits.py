"""
Who waits: mean wait by size and walltime
=========================================

A policy that shortens the mean wait may do so at the expense of some: those that are wide, or long.
"""

from hpctwin import compare, generate
from hpctwin.report import plot_wait_heat

jobs = generate("lublin", jobs=3000, nodes=256, load=0.9, seed=1)
results = compare(jobs, 256, ["fcfs+easy", "sjf+easy"])

heat = plot_wait_heat({name: result.jobs for name, result in results.items()})
