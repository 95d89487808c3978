"""
An ordering of one's own
========================

A function of the time and a job, compiled into the engine; the smallest score comes first. Here:
long waits count more and more.
"""

from hpctwin import compare, generate, make_policy, ordering
from hpctwin.report import plot_wait_cdf


@ordering
def patient(now, job):
    """Short jobs first, but after a day of waiting whoever waited longest."""
    if job.wait > 86400:
        return -1e9 - job.wait
    return job.expected * job.nodes


jobs = generate("lublin", jobs=3000, nodes=256, load=0.95, seed=5)
results = compare(jobs, 256, ["fcfs+easy", "smallest-area+easy", make_policy(patient, "easy")])

waits = plot_wait_cdf({name: result.jobs for name, result in results.items()})

# %%
# The longest wait is what it was made for:

for name, result in results.items():
    print(f"{name:20} {result.summary()['max_wait_s'] / 3600:6.1f} h")
