"""Steps a second of environments that others have, beside ours on the same jobs and as many nodes.

    git clone https://github.com/RakaSP/SPARS-Pub spars
    git clone https://github.com/DIR-LAB/deep-batch-scheduler rlscheduler
    python -m venv peers && peers/bin/pip install numpy torch gymnasium pandas
    python benchmarks/learn_peers.py --python peers/bin/python --spars spars --rlscheduler rlscheduler

In turns in one run, by random choices; processor time of one core, the median of the rounds. Steps and the
beginning of episodes are counted: not on SPARS's side, where it reads its files; on RLScheduler's, as its
environment runs two heuristics through each episode before it begins, and its steps alone besides.

- SPARS: its Gymnasium environment as its runner makes it (``easy_normal``, under which nothing else switches
  nodes, a decision each 30 min; its reward on the CPU), on its platform-nasa-128; ours is
  ``PowerManagementEnv(preset="spars")`` on the same file. The share of nodes is drawn from 0.7 to 1.
- RLScheduler: ``HPCEnv`` of HPCSimPickJobs.py, 256 jobs an episode; ours is ``JobSelectionEnv`` with
  its eight numbers. Any of the jobs in the window. It asks for TensorFlow 1.14 and Gym of its time, of
  which its environment uses a base class, two spaces and random numbers: it is given these, and runs
  under any Python.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hpctwin import Workload, generate
from hpctwin.formats import write_workload
from hpctwin.formats.clusters import read_cluster
from hpctwin.learn import JobSelectionEnv, PowerManagementEnv, many

NODES, TOGETHER = 128, 64

SPARS = """
import json, sys, time
import numpy as np, torch
from SPARS.Gym import config
from SPARS.Gym.gym import HPCGymEnv
from SPARS.Simulator.Simulator import Simulator
torch.set_num_threads(1)
config.CFG["reward"]["params"]["device"] = "cpu"
jobs, platform, steps, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
shares = np.random.default_rng(seed).uniform(0.7, 1.0, steps).astype(np.float32)
def begun():
    found = Simulator(jobs, platform, 0, "easy_normal", "terminate", True, "discrete", 1800)
    found.start_simulator()
    return found
env = HPCGymEnv(begun(), torch.device("cpu"))
env.get_observation()
spent = done = 0
while done < steps:
    begin = time.process_time()
    while done < steps and env.simulator.is_running:
        env.step(torch.tensor([shares[done]]))
        done += 1
    spent += time.process_time() - begin
    env.reset(begun())
print(json.dumps(done / spent))
"""

RLSCHEDULER = """
import json, sys, time, types
import numpy as np

class Box:
    def __init__(self, low, high, shape, dtype): self.shape = shape

class Discrete:
    def __init__(self, n): self.n = n

def module(name, **what):
    sys.modules[name] = found = types.ModuleType(name)
    vars(found).update(what)
    return found

spaces = module("gym.spaces", Box=Box, Discrete=Discrete)
seeding = module("gym.utils.seeding", np_random=lambda seed: (np.random.RandomState(seed), seed))
utils = module("gym.utils", seeding=seeding)
module("gym", Env=object, spaces=spaces, utils=utils)
module("tensorflow")
module("scipy.signal")
module("scipy", signal=sys.modules["scipy.signal"])
sys.path.insert(0, sys.argv[1])
out, sys.stdout = sys.stdout, sys.stderr
from HPCSimPickJobs import HPCEnv
env = HPCEnv()
env.seed(int(sys.argv[4]))
env.my_init(sys.argv[2])
rng = np.random.default_rng(int(sys.argv[4]))
choices, steps, done = rng.random(int(sys.argv[3])), int(sys.argv[3]), 0
within = 0.0
begin = time.process_time()
env.reset()
for number in range(steps):
    there = min(len(env.job_queue), 128)
    start = time.process_time()
    _, _, over, *_ = env.step(int(choices[number] * there))
    within += time.process_time() - start
    if over:
        env.reset()
spent = time.process_time() - begin
print(json.dumps([steps / spent, steps / within]), file=out)
"""


def theirs(python: Path, program: str, *arguments: Any, cwd: Path) -> Any:
    """What a program prints that is run by another Python."""
    asked = [python.absolute(), "-c", program, *map(str, arguments)]
    done = subprocess.run(asked, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def alone(environment: Any, choose: Callable[[Any], Any], steps: int, seed: int) -> float:
    """Steps a second of one environment, the beginning of episodes among them; choosing is not counted."""
    environment.reset(seed=seed)
    spent = 0.0
    for _ in range(steps):
        choice = choose(environment)
        begin = time.process_time()
        _, _, ended, cut, _ = environment.step(choice)
        if ended or cut:
            environment.reset()
        spent += time.process_time() - begin
    return steps / spent


def together(vector: Any, choose: Callable[[Any], Any], steps: int, seed: int) -> float:
    """As `alone`, of many in one call on one thread."""
    vector.reset(seed=seed)
    spent, calls = 0.0, max(1, steps // vector.num_envs)
    for _ in range(calls):
        choices = choose(vector)
        begin = time.process_time()
        vector.step(choices)
        spent += time.process_time() - begin
    return calls * vector.num_envs / spent


def beside_spars(asked: argparse.Namespace, jobs: Workload, seed: int) -> dict[str, float]:
    """One round of power management, steps a second."""
    platform = (asked.spars / "platforms/platform-nasa-128.json").absolute()
    rng = np.random.default_rng(seed)
    ours = {"cluster": read_cluster(platform), "jobs": len(jobs), "preset": "spars"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.json"
        write_workload(jobs, file)
        peer = theirs(asked.python, SPARS, file, platform, asked.steps, seed, cwd=asked.spars)

    def share(environment: Any) -> Any:
        shape = environment.action_space.shape
        return rng.uniform(0.7, 1.0, shape).astype(np.float32)

    return {
        "SPARS": peer,
        "one PowerManagement": alone(
            PowerManagementEnv(jobs, **ours), share, 5 * asked.steps, seed
        ),
        "many PowerManagement": together(
            many(PowerManagementEnv, jobs, num_envs=TOGETHER, threads=1, **ours),
            share,
            100 * asked.steps,
            seed,
        ),
    }


def beside_rlscheduler(asked: argparse.Namespace, jobs: Workload, seed: int) -> dict[str, float]:
    """One round of job selection, steps a second."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.swf"
        write_workload(jobs, file)
        lines = [line for line in file.read_text().splitlines() if not line.startswith(";")]
        file.write_text("\n".join([f"; MaxNodes: {NODES}", f"; MaxProcs: {NODES}", *lines, ""]))
        whole, within = theirs(
            asked.python, RLSCHEDULER, ".", file, asked.steps, seed, cwd=asked.rlscheduler
        )

    def any_place(environment: Any) -> Any:
        masks = environment.action_masks()
        return (rng.random(masks.shape) * masks).argmax(axis=-1)

    ours = {"cluster": NODES, "observation": "rlscheduler"}
    return {
        "RLScheduler": whole,
        "RLScheduler, steps alone": within,
        "one JobSelection": alone(JobSelectionEnv(jobs, **ours), any_place, 5 * asked.steps, seed),
        "many JobSelection": together(
            many(JobSelectionEnv, jobs, num_envs=TOGETHER, threads=1, **ours),
            any_place,
            200 * asked.steps,
            seed,
        ),
    }


def in_whole_seconds(jobs: Workload) -> Workload:
    """As RLScheduler takes it."""
    return jobs.replace(
        **{
            name: np.ceil(getattr(jobs, name) / 1000).astype(np.int64) * 1000
            for name in ("submit_ms", "runtime_ms", "walltime_ms")
        }
    )


def main() -> None:
    """Run all in turns and tell the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--python", type=Path, required=True, help="a Python that has what they need"
    )
    parser.add_argument("--spars", type=Path, help="its checkout")
    parser.add_argument("--rlscheduler", type=Path, help="its checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000, help="of theirs, in each round")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sides = [
        side
        for side, there in ((beside_spars, asked.spars), (beside_rlscheduler, asked.rlscheduler))
        if there
    ]
    jobs = in_whole_seconds(generate("poisson", jobs=5000, nodes=NODES, seed=1))
    rounds: dict[str, list[float]] = {}
    for number in range(asked.rounds):
        for side in sides:
            for name, rate in side(asked, jobs, number).items():
                rounds.setdefault(name, []).append(rate)
    rates = {name: statistics.median(found) for name, found in rounds.items()}
    if asked.json:
        print(json.dumps(rates))
        return
    for name, rate in rates.items():
        print(f"{name:<28} {rate:12,.0f} steps a second")


if __name__ == "__main__":
    main()
