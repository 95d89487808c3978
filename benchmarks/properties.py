"""Property tests with examples that nobody has seen: rounds with a new seed each, until one fails.

``python benchmarks/properties.py --rounds 20 -n 2 tests/engine tests/energy`` runs all property tests there,
or all there are if no folder is named. A failure is told with the command that shows it again.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders or files of tests")
    parser.add_argument("--rounds", type=int, default=10, help="how often, each with a new seed")
    parser.add_argument("--seed", type=int, help="of the first round; drawn if left out")
    parser.add_argument("-n", dest="processes", default="2", help="processes")
    given = parser.parse_args()
    first = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    environment = {**os.environ, "HPCTWIN_EXAMPLES": "all"}
    for seed in range(first, first + given.rounds):
        command = [
            sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "-n", given.processes,
            "--hypothesis-profile=random", f"--hypothesis-seed={seed}", *given.tests,
        ]  # fmt: skip
        begin = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        print(
            f"seed {seed}: {done.stdout.splitlines()[-1:]}, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        if done.returncode:
            again = f"HPCTWIN_EXAMPLES=all {shlex.join(command)}"
            print(done.stdout, done.stderr, f"again: {again}", sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
