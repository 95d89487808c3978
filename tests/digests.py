"""Digests of what the simulator computes, case by case, to compare two states of the source.

    python tests/digests.py > before
    python tests/digests.py > after
    diff before after

A case is a policy on a cluster whose nodes are whole or shared, without more or with one feature such as
preemption. Its digest covers starts, ends, states and nodes of all jobs, the integrals over time, and the
summary. A case that is rejected prints the kind of error.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hpctwin import Cluster, Workload, simulate, simulate_stream
from hpctwin.errors import HpctwinError
from hpctwin.model import Category
from hpctwin.model.workload.dependencies import Dependencies, DependencyKind
from hpctwin.policies import BUILT_IN, Policy, make_policy, parse_policy

NODES, CORES, JOBS = 24, 8, 300
GROUP = {"cores": CORES, "memory_gb": 64, "gpus": 2}
HALVES = [{"name": "a", "count": NODES // 2, **GROUP}, {"name": "b", "count": NODES // 2, **GROUP}]
POWER = {
    "modes": {"base": {"power_w": 220, "idle_w": 95}},
    "sleep": [
        {
            "name": "off",
            "power_w": 4,
            "switch_off": {"time": "1m", "power_w": 95},
            "switch_on": {"time": "3m", "power_w": 180},
        }
    ],
}
TIERS = {"partitions": {"high": {"tier": 2}, "low": {"tier": 1}}}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two groups": {"nodes": HALVES},
    "power": {"nodes": [{"name": "a", "count": NODES, **GROUP, **POWER}]},
    "preempt": {"preemption": {"mode": "requeue", "grace": "30s", "exempt": "2m", **TIERS}},
    "cancel": {"preemption": {"mode": "cancel", **TIERS}},
    "suspend": {"preemption": {"mode": "suspend", **TIERS}},
    "preempt, power": {
        "nodes": [{"name": "a", "count": NODES, **GROUP, **POWER}],
        "preemption": {"mode": "requeue", **TIERS},
    },
    "failures": {"failures": {"mtbf": "3d", "mttr": "2h", "seed": 3}},
    "limits": {
        "limits": [{"partitions": ["low"], "per": "user", "jobs": 3}, {"user": "u1", "nodes": 8}]
    },
    "reservation": {
        "reservations": [{"name": "m", "start": "2h", "end": "5h", "nodes": "0-9"}],
        "cleanup": "45s",
    },
    "depends": {},
    "stream": {},
}
BACKFILLS = (
    "none", "first-fit", "easy", "easy:4", "conservative", "slurm", "slurm, often", "pbs", "pbs, strict",
    "pack", "pushdown",
)  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "slurm, often": {"bf_interval": 40, "bf_max_job_test": 20, "bf_max_job_user": 4},
    "pbs, strict": {"strict_ordering": True, "backfill_depth": 3},
}
POLICIES = (
    *(f"{name}+easy" for name in BUILT_IN if name != "fcfs"),
    *(f"{order}+{backfill}" for order in ("fcfs", "wfp", "multifactor") for backfill in BACKFILLS),
    *(
        f"sjf+{backfill}@{placement}"
        for backfill in ("easy:2", "slurm", "conservative")
        for placement in (
            "best-fit", "contiguous", "spread", "random", "tightest-run", "round-robin", "fragmentation",
        )
    ),
    *(
        f"fcfs+{backfill}~{power}:10m"
        for backfill in ("easy", "conservative", "slurm", "first-fit", "pbs")
        for power in ("psus", "psas-auto", "psas-ipm", "spars-auto")
    ),
)  # fmt: skip


def jobs(*, shared: bool, chained: bool) -> Workload:
    """Return jobs of three users in two partitions, whole nodes or tasks."""
    rng = np.random.default_rng(11)
    runtime = np.round(rng.lognormal(6.5, 1.3, JOBS)) + 1
    nodes = np.minimum(2 ** rng.integers(0, 5, JOBS), NODES // 2)
    more: dict[str, Any] = {}
    if shared:
        more["chunks"] = {
            "tasks": 2 ** rng.integers(0, 5, JOBS),
            "cores_per_task": rng.integers(1, 4, JOBS),
            "memory_gb_per_task": rng.integers(1, 9, JOBS).astype(float),
            "gpus_per_task": (rng.random(JOBS) < 0.2).astype(float),
        }
    if chained:
        edges = [(i, i - 3, DependencyKind.AFTERANY, 0) for i in range(3, JOBS, 7)]
        more["dependencies"] = Dependencies.of(edges)
    return Workload.build(
        submit_s=np.sort(np.round(rng.uniform(0, 40_000, JOBS))),
        runtime_s=runtime,
        walltime_s=np.round(runtime * rng.uniform(1, 3, JOBS)) + 60,
        nodes=np.ones(JOBS) if shared else nodes,
        user=Category.of([f"u{i}" for i in rng.integers(0, 3, JOBS)]),
        partition=Category.of(["high" if one else "low" for one in rng.random(JOBS) < 0.2]),
        **more,
    )


def cluster(feature: str) -> Cluster:
    """Return the cluster with one feature."""
    about = {"name": "c", "nodes": [{"name": "a", "count": NODES, **GROUP}], **FEATURES[feature]}
    groups = [group["name"] for group in about["nodes"]]
    about["partitions"] = [
        {"name": "low", "groups": groups, "default": True},
        {"name": "high", "groups": groups[:1]},
    ]
    return Cluster.model_validate(about)


def policy_of(text: str) -> Policy:
    """Return the policy, whose backfill may be one of `SETTINGS`."""
    order, _, backfill = text.partition("+")
    if backfill not in SETTINGS:
        return parse_policy(text)
    return make_policy(order, backfill.partition(",")[0], settings=SETTINGS[backfill])


def digest(feature: str, text: str, *, shared: bool) -> str:
    """Return the digest of one case; the kind of error if it is rejected."""
    workload = jobs(shared=shared, chained=feature == "depends")
    tables: list[pl.DataFrame | None]
    try:
        policy = policy_of(text)
        if feature == "stream":
            with tempfile.TemporaryDirectory() as folder:
                simulate_stream(workload, cluster(feature), policy, out=folder, batch=90)
                summary = json.loads((Path(folder) / "summary.json").read_text())
                tables = [pl.read_parquet(path) for path in sorted(Path(folder).rglob("*.parquet"))]
        else:
            result = simulate(workload, cluster(feature), policy, seed=5)
            tables, summary = [result.jobs, result.placements], result.summary()
    except HpctwinError as error:
        return type(error).__name__
    found = hashlib.sha256()
    for table in tables:
        if table is not None:
            found.update(table.write_csv().encode())
    summary = {name: value for name, value in summary.items() if name != "engine_s"}
    found.update(json.dumps(summary, default=str, sort_keys=True).encode())
    return found.hexdigest()[:16]


def main() -> None:
    """Print a line for each case, or for those whose name contains one of the arguments."""
    for feature in FEATURES:
        for shared in (False, True):
            for policy in POLICIES:
                name = f"{feature} | {'shared' if shared else 'whole'} | {policy}"
                if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
                    print(f"{name} | {digest(feature, policy, shared=shared)}", flush=True)


if __name__ == "__main__":
    main()
