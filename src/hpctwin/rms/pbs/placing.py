"""Which vnodes a job is to run on, as ``qrun -H`` takes it.

PBS's server then asks no scheduler and does not look whether there is room: the hook does (`rooms_watched`).

Source:
    qrun(8B), pbs_resources(7B); ``req_runjob.c`` and ``node_manager.c`` of OpenPBS 23.06.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection
from pathlib import Path

from hpctwin.rms.manager import Where
from hpctwin.rms.pbs.leasing import LIFTS_WITHIN_S, lifting_file

__all__ = ["rooms_watched", "vnodes_text"]

_OF_CHUNKS = ("ncpus", "mem", "ngpus")
_OF_TASKS = ("mpiprocs", "ompthreads")
"""What a chunk says of its processes, and has nothing of a vnode for."""


def vnodes_text(select: str, place: str, where: Where, consumables: Collection[str]) -> str:
    """Such as ``(n1:ncpus=2:mem=4gb)+(n2:ncpus=1)``: each chunk, and the vnode that it is to have.

    Args:
        select: the job's chunks, as the server completes them.
        place: how they lie.
        where: its vnodes, and how many of its tasks of each kind are on each; chunks that are alike and
            follow each other are of one kind, with ``pack`` all are one task.
        consumables: resources of the site's that vnodes have, and jobs use up.

    Raises:
        ValueError: a chunk asks for what the picture of the vnodes has nothing of, or there are not as many
            places as chunks.
    """
    chunks = [one for part in select.split("+") for one in _chunks(part, consumables)]
    kinds = max(len(tasks) for _, tasks in where)
    names = [name for kind in range(kinds) for name, tasks in where for _ in range(tasks[kind])]
    if "pack" in re.split(r"[:\s]+", place) and len(names) == 1:
        names *= len(chunks)
    if len(names) != len(chunks):
        raise ValueError(f"{len(chunks)} chunks have {len(names)} places")
    return "+".join(f"({name}{chunk})" for name, chunk in zip(names, chunks, strict=True))


def _chunks(part: str, consumables: Collection[str]) -> list[str]:
    """What each of so many equal chunks uses up, of ``2:ncpus=8:mem=4gb``."""
    first, *others = part.strip().split(":")
    count, pairs = (int(first), others) if first.isdigit() else (1, [first, *others])
    asked = dict(pair.partition("=")[::2] for pair in pairs)
    strange = asked.keys() - {*_OF_CHUNKS, *_OF_TASKS, *consumables}
    if strange:
        raise ValueError(f"chunks ask for {', '.join(sorted(strange))}")
    asked = {"ncpus": asked.get("mpiprocs", "1"), **asked}
    used = (f":{name}={said}" for name, said in asked.items() if name not in _OF_TASKS)
    return ["".join(used)] * count


def rooms_watched(heartbeat: Path | None) -> bool:
    """Whether the hook lets no job run where there is no room: its periodic part says so.

    Args:
        heartbeat: the twin's; the hook's sign of life is beside it.
    """
    if heartbeat is None:
        return False
    try:
        shown = json.loads(lifting_file(heartbeat).read_bytes())
        return shown["rooms"] is True and abs(time.time() - shown["time_s"]) < LIFTS_WITHIN_S
    except (OSError, ValueError, KeyError, TypeError):
        return False
