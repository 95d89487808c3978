"""What the figures of a report mean, in a sentence each; in full in docs/metrics.md and docs/energy.md."""

from __future__ import annotations

__all__ = ["DEFINITIONS"]

DEFINITIONS = {
    "mean_wait_s": "from submission to start, time spent on open dependencies included; over jobs that "
    "started and ended, as all figures of jobs",
    "median_wait_s": "half of the jobs waited at most so long",
    "p95_wait_s": "95 % of the jobs waited at most so long",
    "max_wait_s": "no job waited longer",
    "mean_slowdown": "turnaround (submission to end) divided by run time (Feitelson et al. 1997)",
    "mean_bounded_slowdown": "as slowdown, with run times below 10 s counted as 10 s, and at least 1 "
    "(Feitelson et al. 1997)",
    "utilization": "node time in use divided by node time in use or free, from the first submission to "
    "the last end; what is down does not count",
    "utilization_loaded": "the same, over the times with a queue only",
    "fragmentation_loss": "node time idle while jobs wait, divided by node time there (Zhang et al. 2000)",
    "makespan_s": "from the first submission to the last end",
    "total_energy_j": "what all nodes drew, whatever they did",
    "wasted_energy_j": "what idle and switching nodes drew; sleeping ones waste nothing (SPARS)",
    "emissions_kg": "carbon dioxide by the carbon intensity of the moment that energy was drawn at",
    "pue": "what machine and cooling took together, divided by what the machine took",
    "jain_fairness_user": "Jain's index of mean bounded slowdowns of users: 1 if all fare alike",
}
"""By the key of the summary."""
