"""Vnodes that a job should run on, in the syntax of ``qrun -H``.

PBS's server then asks no scheduler and does not check the capacity: the hook does
(`rooms_watched`).

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
"""Resources that describe a chunk's processes and take nothing of a vnode."""


def vnodes_text(select: str, place: str, where: Where, consumables: Collection[str]) -> str:
    """Return each chunk with its vnode, such as ``(n1:ncpus=2:mem=4gb)+(n2:ncpus=1)``.

    Args:
        select: Chunks of the job, as the server completes them.
        place: Placement of the chunks.
        where: Vnodes of the job, each with the number of its tasks of each kind. Equal chunks that
            follow each other are of one kind; with ``pack`` all are one task.
        consumables: Custom resources of the site that vnodes have and jobs use up.

    Raises:
        ValueError: A chunk requests a resource that the model of the vnodes lacks, or the number of
            places is not that of the chunks.
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
    """Return what each of several equal chunks uses up, from ``2:ncpus=8:mem=4gb``."""
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
    """Return whether the hook refuses jobs that do not fit; its periodic part says so.

    Args:
        heartbeat: Heartbeat of the twin; the hook's own file is next to it.
    """
    if heartbeat is None:
        return False
    try:
        shown = json.loads(lifting_file(heartbeat).read_bytes())
        return shown["rooms"] is True and abs(time.time() - shown["time_s"]) < LIFTS_WITHIN_S
    except (OSError, ValueError, KeyError, TypeError):
        return False
