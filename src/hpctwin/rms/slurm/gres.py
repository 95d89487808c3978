"""Generic resources of Slurm: what its texts say of nodes and jobs.

Source:
    Manual pages gres.conf(5) and sbatch(1), 22.05; outputs of a Slurm 22.05.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hpctwin.model.consumables import GPU_TYPE, NOT_CONSUMED, amount_of, check_names

__all__ = [
    "MB",
    "consumables_of",
    "gpu_types",
    "gpus_by_type",
    "gpus_in_parts",
    "gpus_of",
    "gres_asked",
    "kinds_of_consumables",
    "not_used_up",
    "tres_of",
    "types_by_index",
]


MB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
"""Units of memory in TRES."""


def gpus_of(gres: Any) -> float | None:
    """GPUs that a text such as ``gpu:a100:4(S:0-1),shard:8`` counts; None if it names none."""
    counts = re.findall(r"(?<![\w.\-])gpu(?::[\w.\-]+)*?:(\d{1,6})", _plain(gres))
    return float(sum(map(int, counts))) if counts else None


def gpus_in_parts(gres: Any) -> frozenset[int]:
    """Which GPUs of a node are used in parts, of ``shard:2(IDX:0),mps:50(IDX:1-2)``, ``shard:a:3(3/4,0/4)``.

    Nobody is given one of these whole meanwhile.
    """
    found: set[int] = set()
    for name, _, more in _parts(gres):
        if name not in ("shard", "mps"):
            continue
        if more.startswith("IDX:"):
            for first, last in re.findall(r"(\d{1,4})(?:-(\d{1,4}))?", more):
                found |= set(range(int(first), int(last or first) + 1))
        else:
            used = enumerate(re.findall(r"(\d+)/\d+", more))
            found |= {index for index, amount in used if int(amount)}
    return frozenset(found)


def consumables_of(gres: Any) -> dict[str, float]:
    """How much of consumables is told, of ``gpu:a100:4(S:0-1),fpga:xilinx:2,tmp:800G``.

    Of what a job holds it is such as ``fpga:xilinx(CNT:1),gpu:a100:2(IDX:0,2)``. Those that jobs do not use
    up (``no_consume``) are none, nor are parts of GPUs (``shard``, ``mps``).
    """
    found: dict[str, float] = {}
    for name, said, more in _parts(gres):
        if name in NOT_CONSUMED or "no_consume" in said:
            continue
        counted = re.match(r"CNT:(\d+)", more)
        last = counted[1] if counted else said[-1] if said else ""
        try:
            check_names([name])
            amount = amount_of(last) if last[:1].isdigit() else 1.0
        except ValueError:
            continue
        found[name] = found.get(name, 0.0) + amount
    return found


def _plain(gres: Any) -> str:
    """Without the kinds of what has none, as in ``gpu:(null):2(IDX:0-1)``."""
    return gres.replace("(null):", "") if isinstance(gres, str) else ""


def _parts(gres: Any) -> Iterable[tuple[str, list[str], str]]:
    """Name, kind and count, and what stands in brackets, of each generic resource."""
    for part in re.split(r",(?![^(]*\))", _plain(gres)):
        says, _, more = part.strip().partition("(")
        name, *said = says.split(":")
        if name:
            yield name, said, more


def gpu_types(gres: Any) -> frozenset[str]:
    """The kinds of GPUs that a text such as ``gpu:a100:4,gpu:h100:2`` names."""
    found = re.findall(r"gpu:([\w.\-]*[A-Za-z_][\w.\-]*):\d", gres) if isinstance(gres, str) else []
    return frozenset(found)


def gpus_by_type(gres: Any) -> dict[str, float]:
    """How many GPUs of each type a text counts, by the names of consumables; those of none are left out.

    Such as ``gpu:a100:4(S:0-1),gpu:t4:2`` of a node, or ``gpu:a100:1(IDX:2)`` of what a job holds.
    """
    found: dict[str, float] = {}
    for name, said, _ in _parts(gres):
        if name == "gpu" and len(said) > 1 and said[-1].isdigit():
            found[GPU_TYPE + said[0]] = found.get(GPU_TYPE + said[0], 0.0) + float(said[-1])
    return found


def types_by_index(gres: Any) -> tuple[str, ...]:
    """The type of each GPU of a node by its index, as `gpus_by_type` names them; empty of one of none."""
    found: list[str] = []
    for name, said, _ in _parts(gres):
        if name == "gpu":
            count = int(said[-1]) if said and said[-1].isdigit() else 1
            found += [GPU_TYPE + said[0] if len(said) > 1 else ""] * count
    return tuple(found)


def kinds_of_consumables(rows: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """The kinds of each consumable that rows of nodes name."""
    found: dict[str, frozenset[str]] = {}
    for row in rows:
        gres = row.get("gres")
        for name in consumables_of(gres):
            kinds = re.findall(rf"(?:^|,){re.escape(name)}:([A-Za-z_][\w.\-]*):\d", str(gres))
            found[name] = found.get(name, frozenset()) | frozenset(kinds)
    return found


def not_used_up(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """What jobs that run have asked for, and have none of: nodes are not told to be ``no_consume``.

    Args:
        rows: of the jobs, as ``squeue --json`` has them.
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
    """Of ``cpu=6,mem=600M,node=1,billing=6``; memory in MB."""
    found = {}
    for key, value, unit in re.findall(
        r"([\w/:.-]+)=(\d{1,15}(?:\.\d+)?)([KMGTP]?)", text if isinstance(text, str) else ""
    ):
        found[key] = float(value) * MB[unit]
    return found


def gres_asked(
    text: Any, kinds: Mapping[str, frozenset[str]], notes: list[str]
) -> dict[str, float]:
    """Of ``gres:gpu:a100:2,gres/fpga=1`` how much of each by name.

    What nodes have not is noted, and one of several kinds; GPUs of a type that is counted are told by it too.

    Args:
        text: as Slurm writes it.
        kinds: those that there are of each, by name.
        notes: what is only nearly as asked for is appended.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if isinstance(text, str) and text else ():
        match = re.fullmatch(
            r"(?:gres[:/])?([\w.\-]+)(?::([\w.\-]*[A-Za-z_][\w.\-]*))??(?:[:=](\d{1,15}[KMGTPkmgtp]?))?",
            part,
        )
        if match is None or match[1] not in kinds:
            notes.append(part[:40])
            continue
        of_type = f"{GPU_TYPE}{match[2]}"
        if match[1] == "gpu" and of_type in kinds:
            found[of_type] = found.get(of_type, 0.0) + amount_of(match[3] or "1")
        elif match[2] and kinds[match[1]] != {match[2]}:
            notes.append(part[:40])
        found[match[1]] = found.get(match[1], 0.0) + amount_of(match[3] or "1")
    return found
