"""PBS jobs on parts of vnodes: requests, allocations, and checks of the totals.

Source:
    PBS Professional Reference Guide 2022.1, pbs_resources(7B); outputs of OpenPBS 23.06.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpctwin.model.requests.chunks import Tasks, more_tasks_text, neighbors_merged, together
from hpctwin.model.requests.pbs_requests import Chunk, amount_said, is_consumable, memory_gb
from hpctwin.rms.pbs.listing.output import integer, resources
from hpctwin.rms.records.records import JobRecord, NodePart, held_by_jobs

_KB_PER_GB = 2**20


@dataclass(frozen=True)
class Sharing:
    """How PBS allocates parts of vnodes.

    Args:
        several: Whether hosts have several vnodes, over which PBS may spread a chunk.
        consumables: Custom resources of the site that vnodes have and jobs use up.
    """

    several: bool = False
    consumables: frozenset[str] = frozenset()


def how_shared(rows: Mapping[str, dict[str, Any]]) -> tuple[Sharing | None, str]:
    """Return how vnodes are shared, None for whole ones, and why it is not modeled.

    The reason is empty if it is modeled.
    """
    large = [row for row in rows.values() if integer(_has(row).get("ncpus")) > 1]
    alone = [
        row for row in large if "excl" in str(row.get("sharing", "")).replace("ignore_excl", "")
    ]
    if len(alone) == len(large):
        return None, ""
    ways = {str(row.get("sharing", "default_shared")) for row in large}
    why = "" if ways == {"default_shared"} else f"vnodes with sharing={', '.join(sorted(ways))}"
    several = any(integer(row.get("in_multivnode_host")) for row in large)
    return Sharing(several), why


def tasks_asked(
    chunks: tuple[Chunk, ...], place: str, sharing: Sharing, notes: list[str]
) -> dict[str, Any]:
    """Return a job's request as fields of `JobSpec`.

    Args:
        notes: List to which approximations of the request are added.
    """
    words = {word for word in re.split(r"[:\s]+", place) if word}
    if sharing.several and "vscatter" not in words:
        notes.append(f"place={place} on hosts of several vnodes")
    if words & {"exclhost"} or any(word.startswith("group=") for word in words):
        notes.append(f"place={place}")
    kinds = [
        Tasks(
            one.count,
            one.cores,
            one.memory_gb,
            one.gpus,
            tuple(pair for pair in one.consumables if pair[0] in sharing.consumables),
        )
        for one in chunks
    ]
    if "pack" in words:
        kinds = [together(kinds)]
    for number, kind in enumerate(kinds):
        if not any((*kind.each, *(amount for _, amount in kind.consumables))):
            notes.append("chunks without a request")
            kinds[number] = replace(kind, cores=1.0)
    first, *more = neighbors_merged(kinds)
    count = sum(kind.tasks for kind in (first, *more))
    scattered = bool(words & {"scatter", "vscatter"})
    return {
        "tasks": first.tasks,
        "nodes": count if scattered and not more else 1,
        "tasks_per_node": 1 if scattered and count > 1 else 0,
        "cores_per_task": first.cores,
        "memory_gb_per_task": first.memory_gb,
        "gpus_per_task": first.gpus,
        "consumables": dict(first.consumables),
        "more_tasks": more_tasks_text(more),
        "exclusive": bool(words & {"excl", "exclhost"}),
    }


def parts_held(exec_vnode: str) -> dict[str, NodePart]:
    """Return the parts of vnodes that a running job holds.

    The text is, for example, ``(a:ncpus=2:mem=4kb)+(b:ncpus=1)``.
    """
    found: dict[str, NodePart] = {}
    for piece in re.split(r"[()+]+", exec_vnode):
        name, *pairs = piece.strip().split(":")
        if not name:
            continue
        asked = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        known = found.get(name, NodePart())
        found[name] = NodePart(
            cores=known.cores + integer(asked.get("ncpus")),
            memory_gb=known.memory_gb + (memory_gb(asked.get("mem", "0")) or 0.0),
            gpus=known.gpus + integer(asked.get("ngpus")),
            consumables=_more(known.consumables, asked),
        )
    return found


def _more(known: Mapping[str, float], asked: Mapping[str, str]) -> dict[str, float]:
    """Return the consumables held plus those of one more chunk."""
    found = dict(known)
    for name, said in asked.items():
        if is_consumable(name, said):
            found[name] = found.get(name, 0.0) + (amount_said(said) or 0.0)
    return found


def unequal(
    rows: Mapping[str, dict[str, Any]], jobs: Iterable[JobRecord], consumables: Sequence[str] = ()
) -> dict[str, str]:
    """Return vnodes where the amounts of jobs differ from PBS's totals, and how.

    Args:
        jobs: Jobs; running ones hold parts of vnodes.
    """
    held, alone = held_by_jobs(jobs, consumables)
    found = {}
    for name, row in rows.items():
        if name in alone:
            continue
        cores, memory, gpus, *others = held[name]
        assigned = resources(row.get("resources_assigned"))
        for unit, ours, theirs in (
            ("ncpus", cores, float(integer(assigned.get("ncpus")))),
            ("kb", memory * _KB_PER_GB, (memory_gb(assigned.get("mem", "0")) or 0.0) * _KB_PER_GB),
            ("ngpus", gpus, float(integer(assigned.get("ngpus")))),
            *(
                (one, ours, amount_said(assigned.get(one, "0")) or 0.0)
                for one, ours in zip(consumables, others, strict=True)
            ),
        ):
            if abs(ours - theirs) > 0.5:
                found[name] = f"jobs hold {ours:g} {unit}, PBS reports {theirs:g}"
                break
    return found


def _has(row: Mapping[str, Any]) -> dict[str, Any]:
    return resources(row.get("resources_available"))
