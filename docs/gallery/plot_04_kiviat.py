"""
A Kiviat diagram
================

Which policy is good at what: each axis goes from the worst of those compared, in the centre, to the
best, on the rim.
"""

from hpctwin import compare, generate
from hpctwin.report import plot_radar

jobs = generate("lublin", jobs=3000, nodes=256, load=0.9, seed=1)
results = compare(jobs, 256, ["fcfs+easy", "sjf+easy", "wfp+easy", "largest+easy"])

kiviat = plot_radar({name: result.summary() for name, result in results.items()})
