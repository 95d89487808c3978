"""
Policies compared by their main figures
=======================================
"""

from hpctwin import compare, generate
from hpctwin.report import plot_compare_bars

jobs = generate("lublin", jobs=3000, nodes=256, load=0.9, seed=1)
results = compare(jobs, 256, ["fcfs+easy", "sjf+easy", "wfp+easy", "fcfs+conservative"])

bars = plot_compare_bars({name: result.summary() for name, result in results.items()})
