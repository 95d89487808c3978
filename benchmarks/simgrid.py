"""Parallel tasks on explicit hosts, as SimGrid's model ptask_L07 runs them.

python benchmarks/simgrid.py CASES.json --platforms FOLDER [--sharing simgrid|fair]

It prints case, job, start and finish as CSV. A case names a platform, a file `FOLDER/PLATFORM.xml`, and jobs.
A job has an id, a start, hosts (one for each rank; a host may occur again), and a kind:

- H: `cpu` flops on each rank, `com` bytes from each rank to each other;
- M: `cpu` is a list of [rank, flops], `com` a list of [from, to, bytes].

`simgrid_speed.py` compares times and results with SimGrid's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin.contention.network import Network
from hpctwin.contention.phases import PhaseBuilder, Sharing
from hpctwin.formats.simgrid_platform import read_platform
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import HomogeneousTask, ParallelTask, Profile


@cache
def platform_of(path: Path) -> Platform:
    """Read a platform once."""
    return read_platform(path, path.read_text(), {})


def profile_of(job: dict[str, Any]) -> Profile:
    """Return what a job does."""
    if job["kind"] == "H":
        return HomogeneousTask(cpu=float(job["cpu"]), com=float(job["com"]))
    ranks = len(job["hosts"])
    cpu, com = np.zeros(ranks), np.zeros((ranks, ranks))
    for rank, flops in job["cpu"]:
        cpu[rank] += flops
    for source, target, amount in job["com"]:
        com[source, target] += amount
    return ParallelTask(cpu=cpu, com=com)


def pairs_of(profile: Profile, hosts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of hosts between which a job sends."""
    ranks = len(hosts)
    if isinstance(profile, ParallelTask) and profile.com is not None:
        rows, columns = np.nonzero(profile.com)
    else:
        rows, columns = np.nonzero(~np.eye(ranks, dtype=bool))
    return hosts[rows], hosts[columns]


def run(case: dict[str, Any], platform: Platform, sharing: Sharing) -> dict[str, float]:
    """Return when each job of a case ends, s."""
    builder, network = PhaseBuilder(platform, sharing), Network(platform, sharing)
    jobs = []
    for job in sorted(case["jobs"], key=lambda job: job["start"]):
        hosts = np.array([platform.host(name) for name in job["hosts"]], np.int64)
        jobs.append((job["id"], float(job["start"]), profile_of(job), hosts))
    pairs = [pairs_of(profile, hosts) for _, _, profile, hosts in jobs]
    builder.routes.add(*(np.concatenate(column) for column in zip(*pairs, strict=True)))
    ended = []
    for name, start_s, profile, hosts in jobs:
        ended += network.advance(start_s)
        network.start(name, start_s, builder.build(profile, hosts))
    ended += network.advance(float("inf"))
    found = {one.job: one.time_s for one in ended}
    return {str(job["id"]): found.get(job["id"], float("inf")) for job in case["jobs"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("--platforms", type=Path, required=True)
    parser.add_argument("--sharing", choices=("simgrid", "fair"), default="simgrid")
    given = parser.parse_args()
    sys.stdout.write("case,job,start,finish\n")
    for case in json.loads(given.cases.read_text()):
        platform = platform_of(given.platforms / f"{case['platform']}.xml")
        finish = run(case, platform, given.sharing)
        for job in case["jobs"]:
            row = case["case"], job["id"], repr(float(job["start"])), repr(finish[str(job["id"])])
            sys.stdout.write(",".join(row) + "\n")


if __name__ == "__main__":
    main()
