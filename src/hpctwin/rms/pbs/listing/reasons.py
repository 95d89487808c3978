"""Why PBS does not start a job: its comment, in the words of `hpctwin.rms.records.records.REASONS`."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["reason_of"]

_SAID = re.compile(r"(?:Not Running|Can Never Run): (.*)", re.DOTALL)

_NODES = "ncpus|mem|ngpus|naccelerators|vmem|mpiprocs|ompthreads|nodect|host|vnode|arch"
"""Resources that nodes have: a job that lacks them waits for nodes."""

_KINDS = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"hpctwin: |limit on resource hpctwin_wait", ""),
        (rf"Insufficient amount of resource: ({_NODES})\b", ""),
        (r"would interfere with a confirmed reservation", "reservation"),
        (r"top job|strict sorted order|free nodes|enough free resources|preempt enough", ""),
        (r"Not enough of the right type of nodes|No available resources on nodes", ""),
        (r"exclusive node and node is in use|too few free resources|pack placement", ""),
        (r"Node has reached (job|user|group) run limit|Nodes? (is )?not available", ""),
        (r"Queue not started|Queue not an execution queue", "partition"),
        (r"limit", "limit"),
        (r"Insufficient amount", "licence"),
        (r"reservation|dedicated time|primetime|cross into", "reservation"),
        (r"node|fit in the largest placement set|does not exist|provision", "nodes"),
        (r"zero shares", "account"),
    )
)
"""The first that is found counts; an empty kind: it waits for nodes or for its turn."""


def reason_of(comment: str, consumables: Collection[str] = ()) -> str:
    """What a comment of PBS's scheduler on a queued job says; empty where it is no reason of its own.

    Args:
        comment: such as ``Not Running: User has reached queue workq running job limit.``
        consumables: resources of the site's that the picture's vnodes have: who lacks them waits for nodes.
    """
    said = _SAID.match(comment)
    if said is None:
        return ""
    words = " ".join(said[1].split())
    kind = next((kind for pattern, kind in _KINDS if pattern.search(words)), "policy")
    lacks = re.search(r"Insufficient amount of resource: ([\w-]+)", words)
    if lacks is not None and lacks[1] in consumables:
        kind = ""
    if comment.startswith("Can Never Run") and not kind:
        kind = "nodes"
    return f"{kind}: {words}"[:128] if kind else ""
