"""
Where should this job go?
=========================

Two clusters of different speed: jobs as drawn by their users, and each where a forecast ends it
first.
"""

from hpctwin import generate
from hpctwin.facility import Facility, compare_strategies
from hpctwin.report import plot_wait_cdf, plot_weeks

facility = Facility.model_validate(
    {
        "name": "two",
        "clusters": [
            {"name": "new", "nodes": 64, "policy": "fcfs+easy"},
            {"name": "old", "nodes": 128, "policy": "fcfs+easy", "factor": 1.5},
        ],
    }
)
jobs = generate("poisson", jobs=1500, nodes=128, load=0.9, mean_runtime_s=14400, seed=17)
results = compare_strategies(facility, jobs, ["user(0.6)", "least-loaded", "sgs-t"])

weeks = plot_weeks({name: result.weeks for name, result in results.items()})

# %%
# And how long jobs waited:

waits = plot_wait_cdf({name: result.jobs for name, result in results.items()})
