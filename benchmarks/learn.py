"""Steps of environments a second of processor time: `python benchmarks/learn.py`.

One environment through Gymnasium's plain API, and many in one compiled call on one thread: so many on each
core. With --wall, on an idle machine, by the wall clock: many on one thread and on all cores, and how much a
plain compiled loop gains by as many threads, which is what the machine can give.
Random choices (of those that are there), made before. The environments are at different places of their
episodes, so that what it costs to begin new ones is counted in each round. The best of several rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numba
import numpy as np

from hpctwin import Cluster, generate
from hpctwin.learn import (
    BackfillingEnv,
    JobSelectionEnv,
    PolicySelectionEnv,
    PowerManagementEnv,
    many,
)
from hpctwin.model import Mode, NodeGroup, Sleep, Transition

NODES, TOGETHER = 128, 64


def machine() -> Cluster:
    """128 nodes that can be off."""
    off = Sleep(
        power_w=10.0,
        switch_off=Transition(time=60.0, power_w=80.0),
        switch_on=Transition(time=300.0, power_w=150.0),
    )
    modes = {"base": Mode(power_w=200.0, idle_w=100.0)}
    group = NodeGroup(name="all", count=NODES, modes=modes, sleep=(off,))
    return Cluster(name="powered", nodes=(group,))


def alone(environment: Any, choice: Any, rounds: int, steps: int) -> float:
    """Steps a second of one environment, by a constant choice."""
    environment.reset(seed=0)
    best = 0.0
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(steps):
            _, _, ended, cut, _ = environment.step(choice)
            if ended or cut:
                environment.reset()
        best = max(best, steps / (time.process_time() - begin))
    return best


def choices(vector: Any, rng: np.random.Generator, infos: Any) -> Any:
    """A random share for each, or a random one of the places that are allowed."""
    if isinstance(vector.single_action_space, gymnasium.spaces.Box):
        return rng.uniform(0.7, 1.0, (vector.num_envs, 1)).astype(np.float32)
    drawn = rng.random((vector.num_envs, vector.task.width)) * infos["action_mask"]
    return drawn.argmax(axis=1)


def spread_out(vector: Any, rng: np.random.Generator) -> Any:
    """Have environments be at different places of their episodes; what is told of them."""
    _, infos = vector.reset(seed=0)
    length, over = 0, False
    while not over:
        *_, ended, cut, infos = vector.step(choices(vector, rng, infos))
        length, over = length + 1, (ended | cut).any()
    begun = 0
    for step in range(length):
        while begun * length <= step * vector.num_envs and begun < vector.num_envs:
            vector.batch.begin(begun)
            begun += 1
        infos = vector.step(choices(vector, rng, {"action_mask": vector.action_masks()}))[-1]
    return infos


def together(
    kind: Any,
    cluster: Any,
    rounds: int,
    steps: int,
    *,
    threads: int = 1,
    clock: Callable[[], float] = time.process_time,
    held: int = 1,
    **options: Any,
) -> float:
    """Steps a second of so many environments for each thread; choices stay for so many steps."""
    workload = generate("poisson", jobs=5000, nodes=NODES, seed=1)
    count = TOGETHER * threads
    vector = many(kind, workload, cluster, num_envs=count, threads=threads, **options)
    rng = np.random.default_rng(1)
    infos = spread_out(vector, rng)
    best = 0.0
    for _ in range(rounds):
        taken = 0.0
        for step in range(steps):
            if step % held == 0:
                actions = choices(vector, rng, infos)
            begin = clock()
            infos = vector.step(actions)[-1]
            taken += clock() - begin
        best = max(best, count * steps / taken)
    vector.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--wall", action="store_true", help="on one thread and on all cores")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    workload = generate("poisson", jobs=5000, nodes=NODES, seed=1)
    rounds, steps = asked.rounds, asked.steps
    if asked.wall:
        show(by_the_wall_clock(rounds, steps), asked.json)
        return
    on = np.ones(1, np.float32)
    rows = {
        "one JobSelection": alone(JobSelectionEnv(workload, NODES), 0, rounds, 30 * steps),
        "one PowerManagement, 1 min": alone(
            PowerManagementEnv(workload, machine(), every_s=60.0), on, rounds, 30 * steps
        ),
        "one PolicySelection": alone(PolicySelectionEnv(workload, NODES), 0, rounds, steps),
        "many JobSelection": together(JobSelectionEnv, NODES, rounds, steps),
        "many JobSelection, backfilling": together(
            JobSelectionEnv, NODES, rounds, steps, backfilling=True
        ),
        "many JobSelection, RLScheduler's eight": together(
            JobSelectionEnv, NODES, rounds, steps, observation="rlscheduler"
        ),
        "many Backfilling": together(BackfillingEnv, NODES, rounds, steps),
        "many PowerManagement, 1 min": together(
            PowerManagementEnv, machine(), rounds, steps, every_s=60.0
        ),
        "many PowerManagement, 1 min, for 30": together(
            PowerManagementEnv, machine(), rounds, steps, every_s=60.0, held=30
        ),
        "many PowerManagement, instants": together(
            PowerManagementEnv, machine(), rounds, steps, every_s=None
        ),
        "many PowerManagement, 30 min": together(PowerManagementEnv, machine(), rounds, steps),
    }
    show(rows, asked.json)


def by_the_wall_clock(rounds: int, steps: int) -> dict[str, float]:
    """Steps a second in all, on one thread and on all cores; and turns of a plain loop."""
    rows = {}
    cores = os.cpu_count() or 1
    for threads in (1, cores):
        rows[f"a plain loop, {threads} threads"] = turns(threads, rounds)
    for name, kind, cluster, options in (
        ("JobSelection", JobSelectionEnv, NODES, {}),
        ("PowerManagement, 1 min", PowerManagementEnv, machine(), {"every_s": 60.0}),
        (
            "PowerManagement, 1 min, for 30",
            PowerManagementEnv,
            machine(),
            {"every_s": 60.0, "held": 30},
        ),
    ):
        for threads in (1, cores):
            rows[f"many {name}, {threads} threads"] = together(
                kind, cluster, rounds, steps, threads=threads, clock=time.perf_counter, **options
            )
    return rows


def turns(threads: int, rounds: int) -> float:
    """Turns a second of a loop that needs nothing but a core."""
    count = 20_000_000
    plain_loop(count)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            begin = time.perf_counter()
            list(pool.map(plain_loop, [count] * threads))
            best = max(best, threads * count / (time.perf_counter() - begin))
    return best


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def plain_loop(count: int) -> float:
    """Numbers that each need the one before."""
    found = 1.0
    for _ in range(count):
        found = found * 1.0000001 + 1e-9
    return found


def show(rows: dict[str, float], as_json: bool) -> None:
    """Print them."""
    if as_json:
        print(json.dumps(rows))
        return
    for name, rate in rows.items():
        print(f"{name:<40} {rate:10,.0f} steps a second")


if __name__ == "__main__":
    main()
