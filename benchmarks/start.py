"""What a start costs: processor time of commands that only begin, and of importing what comes with us."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

COMMANDS = {
    "Python alone": ["-c", ""],
    "import hpctwin": ["-c", "import hpctwin"],
    "hpctwin --version": ["-m", "hpctwin", "--version"],
    "hpctwin --help": ["-m", "hpctwin", "--help"],
    "hpctwin simulate --help": ["-m", "hpctwin", "simulate", "--help"],
}
BROUGHT = {
    "numpy": ("numpy", "numpy"),
    "numba, llvmlite": ("numba", "numba llvmlite"),
    "polars": ("polars", "polars polars-runtime-32"),
    "pydantic": ("pydantic", "pydantic pydantic_core"),
    "pyyaml": ("yaml", "pyyaml"),
    "cyclopts": ("cyclopts", "cyclopts"),
    "rich": ("rich.console", "rich pygments"),
    "matplotlib": ("matplotlib.figure", "matplotlib pillow fonttools contourpy kiwisolver"),
    "redis (live)": ("redis", "redis"),
    "psychrolib (energy)": ("psychrolib", "psychrolib"),
    "fmpy (cooling)": ("fmpy", "fmpy lxml"),
    "pyzmq (batsim)": ("zmq", "pyzmq"),
    "gymnasium (learn)": ("gymnasium", "gymnasium cloudpickle"),
    "scikit-learn (learn)": ("sklearn.ensemble", "scikit-learn scipy joblib"),
    "torch, stable-baselines3, sb3-contrib (train)": (
        "sb3_contrib",
        "torch stable_baselines3 sb3_contrib",
    ),
    "optuna (search)": ("optuna", "optuna sqlalchemy alembic"),
    "distributed, dask-jobqueue (dask)": ("distributed", "distributed dask dask-jobqueue"),
    "fastapi, uvicorn, prometheus-client (web)": (
        "fastapi, uvicorn, prometheus_client",
        "fastapi uvicorn prometheus_client starlette",
    ),
    "mcp (mcp)": ("mcp.server.mcpserver", "mcp"),
}
"""What is imported of each, and the packages that come with it and take most of the room."""


def cpu_s(command: list[str], rounds: int, **environment: str) -> float:
    """Processor time of a command, the least of several."""
    took = []
    variables = {**os.environ, **environment}
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *command], env=variables, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def size_mib(package: str) -> float:
    """What its files take, without compiled ones."""
    files = distribution(package).files or []
    places = (Path(str(file.locate())) for file in files if file.suffix != ".pyc")
    return sum(place.stat().st_size for place in places if place.is_file()) / 2**20


def first_simulations(folder: Path, rounds: int) -> None:
    """Print what a simulation takes with the compiled engine, and one that compiles it."""
    trace = str(folder / "jobs.swf")
    cpu_s(["-m", "hpctwin", "workload", "generate", "poisson", trace, "jobs=1000", "nodes=64"], 1)
    simulate = ["-m", "hpctwin", "simulate", trace, "--nodes", "64"]
    print(f"| hpctwin simulate, 1,000 jobs | {1000 * cpu_s(simulate, rounds):.0f} ms |")
    cache = {"NUMBA_CACHE_DIR": str(folder / "cache")}
    print(f"| the first one with an empty cache | {cpu_s(simulate, 1, **cache):.1f} s |")
    print(f"| the second one | {1000 * cpu_s(simulate, rounds, **cache):.0f} ms |")
    print(f"| hpctwin warmup | {cpu_s(['-m', 'hpctwin', 'warmup'], 1, **cache):.0f} s |")


def main() -> None:
    """Print both tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=10)
    rounds = options.parse_args().rounds
    for name, command in COMMANDS.items():
        print(f"| {name} | {1000 * cpu_s(command, rounds):.0f} ms |")
    with tempfile.TemporaryDirectory() as folder:
        first_simulations(Path(folder), rounds)
    bare = cpu_s(["-c", ""], rounds)
    print()
    for name, (module, packages) in BROUGHT.items():
        took = cpu_s(["-c", f"import {module}"], rounds) - bare
        size = sum(map(size_mib, packages.split()))
        print(f"| {name} | {size:.0f} MiB | {1000 * took:.0f} ms |")


if __name__ == "__main__":
    main()
