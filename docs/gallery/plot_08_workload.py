"""
What a workload is like
=======================

Sizes, times and arrivals of the model of Lublin and Feitelson.
"""

from hpctwin import generate
from hpctwin.report import plot_workload

jobs = generate("lublin", jobs=5000, nodes=256, seed=1)

workload = plot_workload(jobs)
