"""
A Kiviat diagram
================

Which policy is good at what: the best policy of an axis is on the rim, and a policy half as good is
half way.
"""

from hpctwin import compare, generate
from hpctwin.report import plot_radar

jobs = generate("lublin", jobs=3000, nodes=256, load=0.9, seed=1)
results = compare(jobs, 256, ["fcfs+easy", "sjf+easy", "wfp+easy", "largest+easy"])

kiviat = plot_radar({name: result.summary() for name, result in results.items()})
