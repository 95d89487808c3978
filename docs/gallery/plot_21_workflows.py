"""
Workflows that share four resources
===================================

Use of CPU, memory, disk and network under the policy of the PAS paper, and under ours.
"""

from hpctwin import compare, generate
from hpctwin.generate.pas import RESOURCES, pas_cluster
from hpctwin.metrics import resource_use
from hpctwin.report import plot_resource_use

jobs = generate("pas", jobs=1000, seed=16)
results = compare(jobs, pas_cluster(), ["pas+pushdown", "adaptive+pack"])
ends = {name: float(result.jobs["end_s"].max()) for name, result in results.items()}
use = {
    name: resource_use(result.jobs, jobs.resources, RESOURCES, until_s=max(ends.values()))
    for name, result in results.items()
}

resources = plot_resource_use(use, ends)
