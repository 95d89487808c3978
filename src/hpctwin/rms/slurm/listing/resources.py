"""Slurm's generic resources, features of jobs, and jobs that preempt others.

A lease would keep a job from preempting, which its partition or QOS was promised. So the twin keeps
no such job waiting.

Source:
    Manual pages gres.conf(5) and sbatch(1), 22.05: ``--constraint``, ``--sockets-per-node``,
    ``--cores-per-socket`` and ``--threads-per-core``, each of which requests a minimum. ``squeue
    --json``, ``sinfo --json`` and other outputs of a Slurm 22.05.8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpctwin.model.cluster.node_group import LYING
from hpctwin.model.requests.features import alternatives, read_constraint
from hpctwin.model.requests.resources import GPU_TYPE, NOT_CONSUMED, check_names, parse_gres
from hpctwin.rms.slurm.listing.values import whole

_MOST_GPUS = 4096
"""Maximum number of GPUs with separate indices on a node."""
MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
"""Units of memory in TRES."""


def gpus_of(gres: Any) -> float | None:
    """Return the number of GPUs in a text; None if it names none.

    The text is, for example, ``gpu:a100:4(S:0-1),shard:8``.
    """
    counts = [one.amount for one in parse_gres(gres) if one.name == "gpu"]
    return sum(counts) if counts else None


def gpus_in_parts(gres: Any) -> frozenset[int]:
    """Return the GPUs of a node that jobs share.

    The text is, for example, ``shard:2(IDX:0),mps:50(IDX:1-2)`` or ``shard:a:3(3/4,0/4)``.

    No job gets one of these whole meanwhile.
    """
    found: set[int] = set()
    for one in parse_gres(gres):
        if one.name not in ("shard", "mps"):
            continue
        if one.detail.startswith("IDX:"):
            for first, last in re.findall(r"(\d{1,4})(?:-(\d{1,4}))?", one.detail):
                found |= set(range(int(first), int(last or first) + 1))
        else:
            used = enumerate(re.findall(r"(\d+)/\d+", one.detail))
            found |= {index for index, amount in used if int(amount)}
    return frozenset(found)


def consumables_of(gres: Any) -> dict[str, float]:
    """Count the consumables of ``gpu:a100:4(S:0-1),fpga:xilinx:2,tmp:800G`` by name.

    A job holds, for example, ``fpga:xilinx(CNT:1),gpu:a100:2(IDX:0,2)``. Resources that jobs do not
    use up (``no_consume``), GPUs and parts of GPUs (``shard``, ``mps``) are no consumables.
    """
    found: dict[str, float] = {}
    for one in parse_gres(gres):
        if one.name in NOT_CONSUMED or not one.consumed:
            continue
        try:
            check_names([one.name])
        except ValueError:
            continue
        found[one.name] = found.get(one.name, 0.0) + one.amount
    return found


def gpu_types(gres: Any) -> frozenset[str]:
    """Name the types of GPUs of a text such as ``gpu:a100:4,gpu:2080ti:2``."""
    return frozenset(one.kind for one in parse_gres(gres) if one.name == "gpu" and one.kind)


def gpus_by_type(gres: Any) -> dict[str, float]:
    """Return the number of GPUs of each type; GPUs without a type are ignored.

    The keys are names of consumables.

    The text is, for example, ``gpu:a100:4(S:0-1),gpu:t4:2`` of a node, or ``gpu:a100:1(IDX:2)`` of
    a job.
    """
    found: dict[str, float] = {}
    for one in parse_gres(gres):
        if one.name == "gpu" and one.kind:
            found[GPU_TYPE + one.kind] = found.get(GPU_TYPE + one.kind, 0.0) + one.amount
    return found


def types_by_index(gres: Any) -> tuple[str, ...]:
    """Return the type of each GPU of a node by index, as in `gpus_by_type`.

    It is empty for a GPU without a type.
    """
    found: list[str] = []
    for one in parse_gres(gres):
        if one.name == "gpu":
            found += [GPU_TYPE + one.kind if one.kind else ""] * int(min(one.amount, _MOST_GPUS))
    return tuple(found)


def kinds_of_consumables(rows: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Name the types of each consumable of rows of nodes."""
    found: dict[str, frozenset[str]] = {}
    for row in rows:
        gres = row.get("gres")
        for name in consumables_of(gres):
            kinds = {one.kind for one in parse_gres(gres) if one.name == name and one.kind}
            found[name] = found.get(name, frozenset()) | kinds
    return found


def not_used_up(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return resources that running jobs requested but hold none of.

    Slurm does not report that nodes have them as ``no_consume``.

    Args:
        rows: Rows of the jobs, as in ``squeue --json``.
    """
    found: dict[str, bool] = {}
    for row in rows:
        detail = row.get("gres_detail")
        held = ",".join(map(str, detail)) if isinstance(detail, list) else ""
        for name, amount in consumables_of(held).items():
            asked = re.search(
                rf"(?<![\w.\-]){re.escape(name)}(?![\w.\-])", str(row.get("tres_per_node"))
            )
            if amount or asked:
                found[name] = found.get(name, True) and not amount
    return frozenset(name for name, unused in found.items() if unused)


def tres_of(text: Any) -> dict[str, float]:
    """Return the amounts of ``cpu=6,mem=600M,node=1,billing=6``; memory in MB."""
    found = {}
    for key, value, unit in re.findall(
        r"([\w/:.-]+)=(\d{1,15}(?:\.\d+)?)([KMGTP]?)", text if isinstance(text, str) else ""
    ):
        found[key] = float(value) * MB[unit]
    return found


def gres_asked(
    text: Any, kinds: Mapping[str, frozenset[str]], notes: list[str]
) -> dict[str, float]:
    """Count a job's requests by name: ``gres:gpu:a100:2,gres/fpga=1``.

    A resource that no node has is noted, and so is one of several types. CPUs are ignored: since
    23.02 ``--cpus-per-task`` becomes ``cpu=2``, and other fields have it. GPUs of a type that is
    counted are counted under that type, too.

    Args:
        kinds: Existing types of each resource, by name.
        notes: List to which approximations of the request are added.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if isinstance(text, str) and text else ():
        one = next(parse_gres(part), None)
        if one is not None and one.name == "cpu" and not part.startswith("gres"):
            continue
        if one is None or one.name not in kinds:
            notes.append(part[:40])
            continue
        of_type = f"{GPU_TYPE}{one.kind}"
        if one.name == "gpu" and of_type in kinds:
            found[of_type] = found.get(of_type, 0.0) + one.amount
        elif one.kind and kinds[one.name] != {one.kind}:
            notes.append(part[:40])
        found[one.name] = found.get(one.name, 0.0) + one.amount
    return found


_ASKED = dict(zip(LYING, ("sockets_per_node", "cores_per_socket", "threads_per_core"), strict=True))
"""Fields of a job, by the matching field of nodes."""


def features_asked(
    rows: Sequence[Mapping[str, Any]], lying: Mapping[str, Collection[int]]
) -> str | None:
    """Return a job's request as text of features; None if that is impossible.

    `hpctwin.model.requests.features` reads the text.

    Args:
        rows: Rows of ``squeue --json``, one for each part of a heterogeneous job.
        lying: Numbers of sockets, of cores per socket and of threads per core that nodes have.
    """
    texts = {_understood(row) for row in rows}
    if len(texts) > 1 or None in texts:
        return None
    asked = [text for text in texts if text]
    for field, key in _ASKED.items():
        least = max(whole(row.get(key)) for row in rows)
        there = sorted(lying.get(field, ()))
        if least > 0 and any(number < least for number in there):
            enough = [number for number in there if number >= least] or [least]
            asked.append("|".join(f"{field}={number}" for number in enough))
    if len(asked) == 1:
        return asked[0]
    return "&".join(f"({one})" if "|" in one and "&" not in one else one for one in asked)


def _understood(row: Mapping[str, Any]) -> str | None:
    """Return a row's features; None if its constraint says more than they do."""
    # A preference (--prefer) keeps no job waiting.
    text = "" if row.get("prefer") else str(row.get("features") or "")
    features, lost = read_constraint(text, whole(row.get("node_count")) or None)
    return None if lost else features


def names_asked(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return all features that jobs request by name."""
    texts = {text for row in rows if (text := _understood(row))}
    return {name.lstrip("!") for text in texts for some in alternatives(text) for name in some}


def features_of(row: Mapping[str, Any], asked: Collection[str]) -> tuple[str, ...]:
    """Return the features of a node, a row of ``sinfo --json``, that any job requests."""
    said = row.get("active_features") or row.get("features")
    names = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    return tuple(sorted({str(name).strip() for name in names} & set(asked)))


def lying_of(row: Mapping[str, Any], cores: float | None) -> tuple[int | None, ...]:
    """Return a node's core layout as in `LYING`; None if it is impossible.

    See `model.cluster.node_group.LYING`.
    """
    told = tuple(whole(row.get(key)) or None for key in ("sockets", "cores", "threads"))
    if None in told or (cores or 0.0) > math.prod(number or 0 for number in told):
        return (None,) * len(LYING)
    return told


@dataclass(frozen=True)
class Preempting:
    """Partitions and QOS whose jobs preempt others.

    Args:
        partitions: Names of partitions.
        qos: Names of QOS; None if the query failed, so that any may be one.
    """

    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] | None = frozenset()

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Return whether Slurm may preempt for a job, a row of ``squeue --json``."""
        if self.qos is None or str(row.get("qos") or "") in self.qos:
            return True
        return not self.partitions.isdisjoint(str(row.get("partition") or "").split(","))


def preempting_partitions(
    members: Mapping[str, Sequence[str]], tiers: Mapping[str, float]
) -> frozenset[str]:
    """Return partitions with a higher ``PriorityTier`` than another on the same nodes."""
    return frozenset(
        name
        for name, groups in members.items()
        if any(
            tiers.get(other, 0.0) < tiers.get(name, 0.0) and set(groups) & set(members[other])
            for other in members
        )
    )


def preempting_qos(said: bytes) -> frozenset[str]:
    """Return the QOS that may preempt others.

    The text is the output of ``sacctmgr -nP show qos format=Name,Preempt``.
    """
    rows = (line.partition("|") for line in said.decode(errors="replace").splitlines())
    return frozenset(name.strip() for name, _, others in rows if others.strip())
