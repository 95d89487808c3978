"""A placer that kills itself at a point between choosing and submitting, as a process.

``python -m tests.twin.facility.dying_placer CONFIG POINT``: it dies at its second job there, so that one
job went well before. With POINT ``never`` it places all jobs and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hpctwin.rms.emulated.client import EmulatedGate
from hpctwin.rms.pbs.settings import PbsGate
from hpctwin.rms.slurm.settings import SlurmGate
from hpctwin.twin.facility.queue import Queue
from hpctwin.twin.facility.service import LiveFacility, open_placer
from tests.forks import Fork, fork

GATES = (EmulatedGate, PbsGate, SlurmGate)
METHODS: dict[str, tuple[tuple[type, ...], str]] = {
    "intend": ((Queue,), "intend"),
    "submit": (GATES, "submit"),
    "note": ((Queue,), "submitted"),
    "admit": (GATES, "admit"),
    "place": ((Queue,), "placed"),
}
POINTS = [f"{when} {what}" for what in METHODS for when in ("before", "after")]


def arm(point: str) -> None:
    """Die before or after the second call of a method."""
    when, what = point.split()
    owners, name = METHODS[what]
    calls = 0

    def dying(method: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2 and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = method(*arguments, **options)
            if calls == 2 and when == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return called

    for owner in owners:
        setattr(owner, name, dying(getattr(owner, name)))


def begin(config: Path, point: str) -> Fork:
    """A placer as a process of its own."""
    log = config.parent / "placer.log"
    return fork("tests.twin.facility.dying_placer", str(config), point, log=log)


def place(config: Path, point: str) -> int:
    """Let a placer place all jobs, or die; how it ended."""
    code = begin(config, point).wait()
    assert code in (0, -signal.SIGKILL), (config.parent / "placer.log").read_text()[-3000:]
    return code


def main(path: Path, point: str) -> None:
    if point != "never":
        arm(point)
    until = time.monotonic() + 120
    with open_placer(LiveFacility.from_yaml(path)) as placer:
        while placer.queue.entries("queued", "intended", "submitted"):
            assert time.monotonic() < until, placer.queue.entries()
            placer.turn()
            time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
