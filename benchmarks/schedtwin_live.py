"""SchedTwin's experiment on private Slurm clusters, several at once.

    python benchmarks/schedtwin_live.py [--under fifo backfill small-first schedtwin] [--seeds 0 1 2 3 4]
        [--compress 60] [--at-once 6] [--out out/schedtwin]

Each run has a Slurm of its own: slurmctld and 32 slurmd, as shipped but for the scheduler named, all with
`fast_clock.c`, so that every interval of Slurm's is compressed as the jobs are. The runs are stored for
`hpctwin experiment schedtwin --stored`. Needs root, a C compiler and Slurm's daemons (Debian:
slurmctld slurmd slurm-client munge).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rms.beside_slurm import Beside, job_ends, made_events, made_rule
from tests.rms.slurm_cluster import SlurmCluster

TWIN = "schedtwin"
FIRST_LEASE_S = 1200
PROGRAM = """
import hpctwin.rms.polling.poller as polling, hpctwin.rms.polling.spool as spool
import hpctwin.twin.service.runner as runner, hpctwin.twin.service.status_writer as tell
from hpctwin.cli import main
own = (polling, "READ_S"), (polling, "MOST_OF_THE_TIME"), (spool, "STEP_S"), (tell, "EVERY_S")
for module, name in own:
    setattr(module, name, {compress} * getattr(module, name))
turn = runner.Twin.turn
runner.Twin.turn = lambda twin, timeout_s: turn(twin, {compress} * timeout_s)
main()
"""
"""The twin; its own pauses are those of a plain clock."""
SMALL_FIRST = "PriorityWeightJobSize=100000\nPriorityFavorSmall=YES"
UNDER: dict[str, dict[str, Any]] = {
    "fifo": {"scheduler": "builtin"},
    "backfill": {"scheduler": "backfill"},
    "small-first": {"scheduler": "backfill", "priority": "multifactor", "more": SMALL_FIRST},
    TWIN: {"scheduler": "backfill"},
}
# What waits for the processor takes as long as ever: none of it may look late under a fast clock.
PATIENT = """
MessageTimeout=600
TCPTimeout=120
BatchStartTimeout=1000
UnkillableStepTimeout=6000
SlurmdTimeout=36000
MinJobAge=3600
AuthInfo=cred_expire=36000
"""


def fast_clock(folder: Path, factor: float) -> dict[str, str]:
    """Compile the clock; the environment that makes it run."""
    library = folder / "fast_clock.so"
    source = Path(__file__).with_name("fast_clock.c")
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
    )  # fmt: skip
    now = f"{factor:.0f} {time.time():.9f} {time.monotonic():.9f}"
    return {"LD_PRELOAD": str(library), "FAST_CLOCK": now}


def wrapped(folder: Path, clock: dict[str, str], names: tuple[str, ...]) -> Path:
    """A folder of commands that run under the clock, for programs that pass no environment on."""
    place = folder / "bin"
    place.mkdir()
    for name in names:
        path = place / name
        path.write_text(f'#!/bin/sh\n{_words(clock)} exec /usr/bin/{name} "$@"\n')
        path.chmod(0o755)
    return place


def _words(clock: dict[str, str]) -> str:
    return " ".join(f"{name}='{value}'" for name, value in clock.items())


def begun(folder: Path, under: str, clock: dict[str, str]) -> SlurmCluster:
    """A Slurm as shipped, but for what the method says."""
    options = dict(UNDER[under])
    more = tuple(options.pop("more", "").splitlines())
    if under == TWIN:
        options |= {"rule": rule_of(folder), "events": events_of(folder, clock)}
    slurm = SlurmCluster(folder, parameters="", more=(*PATIENT.split(), *more), **options)
    ours = re.compile(r"^(Slurm(ctl)?dTimeout=[36]0|KillWait=2|MinJobAge=300)\n", re.M)
    slurm.conf.write_text(ours.sub("", slurm.conf.read_text()))
    slurm.env |= clock
    slurm.begin()
    return slurm


def rule_of(folder: Path) -> Path:
    """The submit rule, its seconds as long as they are by a plain clock: the twin is no faster than ever."""
    rule = made_rule(folder, lease=f"{FIRST_LEASE_S}s")
    rule.write_text(rule.read_text().replace("local FRESH_S = 15\n", "local FRESH_S = 900\n"))
    return rule


def events_of(folder: Path, clock: dict[str, str]) -> Path:
    """The event script under the clock: slurmctld passes no environment on."""
    script = made_events(folder)
    inner = script.rename(folder / "events-inner.sh")
    script.write_text(f'#!/bin/sh\nexport {_words(clock)}\nexec {inner} "$@"\n')
    script.chmod(0o755)
    return script


def end(slurm: SlurmCluster) -> None:
    """End its daemons, and what of its jobs is left."""
    slurm.end()
    ours = f"SLURM_CONF={slurm.conf}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if ours in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            continue


def twin_beside(
    slurm: SlurmCluster, clock: dict[str, str], compress: float, pool: list[str]
) -> Beside:
    """The twin in act mode, by leases, under the same clock, in charge."""
    commands = wrapped(slurm.folder, clock, ("squeue", "sinfo", "scontrol"))
    twin = Beside(
        slurm,
        manager={
            "folder": str(commands), "timeout": "10min", "poll_interval": "5min", "min_poll_interval": "18s",
            "first_lease": FIRST_LEASE_S,
        },
        act={"lease": "30min", "max_lease": "10h", "max_staleness": "30min"},
        core={"retry_after": "1min", "start_timeout": "5min"} | ({"pool": pool} if pool else {}),
        heartbeat_interval="1min",
        resync_interval="30min",
    )  # fmt: skip
    twin.program = ("-c", PROGRAM.format(compress=compress))
    twin.environment = slurm.env
    twin.begin()
    # A job before the others, so that the engine is loaded: that takes seconds, here some minutes.
    first = slurm.submit(1, 1, 10)
    slurm.wait(lambda: job_ends(slurm, [first]), 120)
    return twin


class Turns:
    """Lets one run begin at a time: submitting is what takes the processor."""

    def __init__(self, apart_s: float) -> None:
        self._lock = threading.Lock()
        self._apart_s = apart_s
        self._next_s = 0.0

    def wait(self) -> None:
        """Return when it is one's turn."""
        with self._lock:
            time.sleep(max(0.0, self._next_s - time.monotonic()))
            self._next_s = time.monotonic() + self._apart_s


TURNS = Turns(18.0)


def run(under: str, seed: int, compress: float, pool: list[str], out: Path, keep: Path) -> str:
    """One run on a cluster of its own; what it says."""
    TURNS.wait()
    with tempfile.TemporaryDirectory(prefix=f"{under}-{seed}-") as name:
        folder = Path(name)
        clock = fast_clock(folder, compress)
        slurm = twin = None
        words = [
            "--on",
            "slurm",
            "--compress",
            f"{compress:g}",
            "--only-seed",
            str(seed),
            "--out",
            str(out),
        ]
        try:
            slurm = begun(folder, under, clock)
            if under == TWIN:
                twin = twin_beside(slurm, clock, compress, pool)
                words += ["--twin", str(twin.config)]
            else:
                words += ["--under", under]
            done = subprocess.run(
                [sys.executable, "-m", "hpctwin", "experiment", "schedtwin", *words],
                env=slurm.env, capture_output=True, text=True, check=False,
            )  # fmt: skip
            return f"{under} {seed}: {(done.stdout + done.stderr).strip()}"
        finally:
            if twin is not None:
                twin.end()
            if slurm is not None:
                end(slurm)
            keep.mkdir(parents=True, exist_ok=True)
            for log in ("slurmctld.log", "twin.log", "journal.sqlite"):
                if (folder / log).exists():
                    os.replace(folder / log, keep / f"{under}-{seed}-{log}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--under", nargs="+", choices=UNDER, default=list(UNDER))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--compress", type=float, default=60.0)
    parser.add_argument("--pool", nargs="+", default=[], help="the twin's policies, if not its own")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("out/schedtwin"))
    asked = parser.parse_args()
    with ThreadPoolExecutor(asked.at_once) as workers:
        runs = [
            workers.submit(
                run, under, seed, asked.compress, asked.pool, asked.out, asked.out / "logs"
            )
            for under in asked.under
            for seed in asked.seeds
        ]
        for one in runs:
            print(one.result(), flush=True)


if __name__ == "__main__":
    main()
