"""Steps of one environment a second of processor time: `python benchmarks/learn.py`.

Random actions (of those that the mask allows) on generated jobs, after one episode that is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from hpctwin import generate
from hpctwin.learn import JobSelection, PolicySelection

NODES = 128


def steps_a_second(
    environment: JobSelection | PolicySelection, choose: Callable[[], int], episodes: int
) -> float:
    """Steps over processor time, resets included."""
    taken, begin = 0, time.process_time()
    for seed in range(episodes):
        environment.reset(seed=seed)
        over = False
        while not over:
            over = environment.step(np.int64(choose()))[2]
            taken += 1
    return taken / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    workload = generate("poisson", jobs=5000, nodes=NODES, seed=1)
    jobs, policies = JobSelection(workload, NODES), PolicySelection(workload, NODES)
    rows = {}
    for name, environment, choose in (
        ("JobSelection", jobs, lambda: int(rng.choice(np.flatnonzero(jobs.action_masks())))),
        ("PolicySelection", policies, lambda: int(rng.integers(len(policies.policies)))),
    ):
        steps_a_second(environment, choose, 1)
        rows[name] = steps_a_second(environment, choose, asked.episodes)
    if asked.json:
        print(json.dumps(rows))
        return
    for name, steps in rows.items():
        print(f"{name:<16} {steps:10,.0f} steps a second")


if __name__ == "__main__":
    main()
