"""What jobs ask as users write it for Slurm, PBS or Kubernetes, brought to tasks; see `chunks`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from hpctwin.errors import WorkloadError
from hpctwin.model.chunks import GROUP, Tasks, together
from hpctwin.model.consumables import GPU_TYPE, amount_of, check_names
from hpctwin.model.gres import gres_count, parse_gres
from hpctwin.model.pods import is_pods, parse_pods

__all__ = ["Request", "parse_request"]

_SHORT = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "C": "constraint"}
_KNOWN = (
    "nodes", "ntasks", "cpus-per-task", "ntasks-per-node", "mem", "mem-per-cpu", "mem-per-gpu", "gpus",
    "gpus-per-node", "gpus-per-task", "gres", "constraint", "exclusive", "spread-job",
)  # fmt: skip
_UNITS = {"": 1 / 1024, "k": 1 / 1024**2, "m": 1 / 1024, "g": 1.0, "t": 1024.0}
_PLACES = {"free", "pack", "scatter", "excl", "exclhost", "shared"}
_GROUP = re.compile(rf"group=(?!(?:host|vnode)$)({GROUP})")
_PBS_UNITS = {"b": 1 / 1024**3, "kb": 1 / 1024**2, "mb": 1 / 1024, "gb": 1.0, "tb": 1024.0}


@dataclass(frozen=True)
class Request:
    """What one job asks.

    Args:
        nodes: so many at least; of whole nodes, just so many.
        tasks: how many; 0: it asks for whole nodes.
        cores, memory_gb, gpus: of each task.
        tasks_per_node: at most; 0: any number.
        exclusive: 1 if it shares its nodes with no other.
        spread_job: 1 if it lies on as many nodes as it can.
        shared_with: 1 if it shares them with jobs of its user only, 2 with those of its account.
        more: further kinds of tasks, besides those of which the fields above tell.
        features: of its nodes; None for any.
        consumables: names of what each task asks besides, and how much.
        group_by: all of its nodes have one value of this; None for any nodes.
    """

    nodes: int = 1
    tasks: int = 0
    cores: float = 1.0
    memory_gb: float = 0.0
    gpus: float = 0.0
    tasks_per_node: int = 0
    exclusive: int = 0
    features: str | None = None
    shared_with: int = 0
    spread_job: int = 0
    more: tuple[Tasks, ...] = ()
    group_by: str | None = None
    consumables: tuple[tuple[str, float], ...] = ()


def parse_request(text: str) -> Request:
    """What text asks, such as ``-N 2 -n 8 -c 4 --mem-per-cpu=2G`` or ``select=3:ncpus=8 place=scatter``.

    Or ``--replicas=4 --requests=cpu=500m,memory=2Gi``: each pod is a task.

    Raises:
        WorkloadError: it cannot be understood, or asks what is not modelled.
    """
    try:
        words = shlex.split(text.removeprefix("-l ").replace(" -l ", " "))
        if is_pods(words):
            pods = parse_pods(words)
            return Request(1, pods.tasks, *pods.each, consumables=pods.consumables)
        return _pbs(words) if "select=" in text else _slurm(_options(words))
    except ValueError as error:
        raise WorkloadError(f"request {text!r}: {error}") from error


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
        elif re.fullmatch(r"-[A-Za-z].*", word) and word[1] in _SHORT:
            name, value = _SHORT[word[1]], word[2:].removeprefix("=")
            given = value
        else:
            raise ValueError(
                f"{word!r} is no option of Slurm's, nor select= of PBS, nor --requests= of Kubernetes"
            )
        if name not in _KNOWN:
            raise ValueError(f"--{name} is not read; known are {', '.join(_KNOWN)}")
        if not given and name not in ("exclusive", "spread-job"):
            if not left:
                raise ValueError(f"--{name} has no value")
            value = left.pop(0)
        found[name] = value
    return found


def _slurm(asked: Mapping[str, str]) -> Request:
    alone, shared_with = _exclusive(asked)
    # Of a job with --nodes Slurm has just so many.
    spread = int("spread-job" in asked and "nodes" not in asked)
    nodes = _whole(asked, "nodes", 1)
    per_node = _whole(asked, "ntasks-per-node", 0)
    tasks = _whole(asked, "ntasks", nodes * max(per_node, 1))
    cores = float(_whole(asked, "cpus-per-task", 1))
    of_task = _gpus(asked["gpus-per-task"]) if "gpus-per-task" in asked else {}
    if "gpus" in asked:
        of_task = {model: count / tasks for model, count in _gpus(asked["gpus"]).items()}
    gpus_task = sum(of_task.values())
    generic = _generic(asked.get("gres", ""))
    of_node = _gpus(asked["gpus-per-node"]) if "gpus-per-node" in asked else generic.gpus
    on_node = sum(of_node.values())
    memory = cores * _memory(asked.get("mem-per-cpu", "0"), _UNITS)
    memory += gpus_task * _memory(asked.get("mem-per-gpu", "0"), _UNITS)
    features = "&".join(filter(None, (asked.get("constraint"), *generic.types))) or None
    if not on_node and "mem" not in asked and not generic.others:
        return Request(
            nodes, tasks, cores, memory, gpus_task, per_node, alone, features, shared_with, spread,
            consumables=_of_types(of_task),
        )  # fmt: skip
    # What is asked of each node makes one task of all that are on it.
    if "nodes" not in asked and (spread or not per_node):
        raise ValueError("what is asked of each node needs --nodes: say how many there are")
    if "nodes" not in asked:
        nodes = -(-tasks // per_node)
    if tasks % nodes:
        raise ValueError(f"{tasks} tasks are not as many on each of {nodes} nodes")
    here = tasks // nodes
    memory = _memory(asked["mem"], _UNITS) if "mem" in asked else here * memory
    memory += on_node * _memory(asked.get("mem-per-gpu", "0"), _UNITS)
    gpus = {model: count * here for model, count in of_task.items()}
    for model, count in of_node.items():
        gpus[model] = gpus.get(model, 0.0) + count
    return Request(
        nodes, nodes, here * cores, memory, sum(gpus.values()), 1, alone, features, shared_with,
        consumables=(*generic.others.items(), *_of_types(gpus)),
    )  # fmt: skip


@dataclass
class _Generic:
    """What ``--gres`` asks of each node: GPUs by type, and other things by name; and types of these."""

    gpus: dict[str, float]
    types: list[str]
    others: dict[str, float]


def _generic(text: str) -> _Generic:
    found = _Generic({}, [], {})
    for part in filter(None, text.removeprefix("none").split(",")):
        one = next(parse_gres(part), None)
        if one is None or part.endswith(":") or not re.fullmatch(r"[\w.-]*", one.kind):
            raise ValueError(f"--gres={part} is no name and number, such as fpga:1 or gpu:a100:2")
        if one.name == "gpu":
            found.gpus[one.kind] = found.gpus.get(one.kind, 0.0) + one.amount
        else:
            last = part.rpartition(":")[2]
            if last[:1].isdigit() and gres_count(last) is None:
                amount_of(last)  # a mistyped amount: only GPUs have types that begin with a digit
            found.types += [one.kind] if one.kind else []
            check_names([one.name])
            found.others[one.name] = found.others.get(one.name, 0.0) + one.amount
    return found


def _exclusive(asked: Mapping[str, str]) -> tuple[int, int]:
    """Whether a job shares its nodes with no other, and with whose jobs it does."""
    if "exclusive" not in asked:
        return 0, 0
    with_whom = {"": (1, 0), "user": (0, 1), "mcs": (0, 2)}
    if asked["exclusive"] not in with_whom:
        raise ValueError(
            f"--exclusive={asked['exclusive']} is not modelled; known are --exclusive, which shares with "
            "nobody, --exclusive=user and --exclusive=mcs"
        )
    return with_whom[asked["exclusive"]]


def _pbs(words: list[str]) -> Request:
    said = dict(word.partition("=")[::2] for word in words)
    if unknown := set(said) - {"select", "place"}:
        raise ValueError(f"{sorted(unknown)[0]!r} is not read; known are select and place")
    place = set(said.get("place", "free").split(":"))
    groups = [match for word in sorted(place) if (match := _GROUP.fullmatch(word))][:1]
    place -= {match[0] for match in groups}
    if unknown := place - _PLACES:
        raise ValueError(
            f"place={sorted(unknown)[0]} is not modelled; known are {', '.join(sorted(_PLACES))} and "
            "group=RESOURCE, one, and pack for a single host"
        )
    group_by = groups[0][1] if groups else None
    chunks = [_chunk(text) for text in said["select"].split("+")]
    exclusive = int(bool(place & {"excl", "exclhost"}))
    kinds = chunks
    most = int("scatter" in place)
    if "pack" in place:
        kinds, most = [together(chunks)], 0
    first, *more = kinds
    return Request(
        1, first.tasks, *first.each, most, exclusive, more=tuple(more), group_by=group_by,
        consumables=first.consumables,
    )  # fmt: skip


def _chunk(text: str) -> Tasks:
    """How many, and what each asks."""
    first, *parts = text.split(":")
    if "=" in first:
        first, parts = "1", [first, *parts]
    asked = dict(part.partition("=")[::2] for part in parts)
    asked.pop("mpiprocs", None)
    asked.pop("ompthreads", None)
    others = {
        name: asked.pop(name) for name in list(asked) if name not in ("ncpus", "mem", "ngpus")
    }
    consumables = tuple((name, _consumable(name, said)) for name, said in others.items())
    memory = _memory(asked.get("mem", "0b"), _PBS_UNITS)
    each = (asked.get("ncpus", "1"), asked.get("ngpus", "0"))
    known = all(re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number) for number in each)
    if not known or not re.fullmatch(r"0*[1-9]\d{0,8}", first):
        raise ValueError(
            f"{text!r} is no chunk; write how many and what each asks, such as 2:ncpus=8:ngpus=1:mem=4gb"
        )
    cores, gpus = map(float, each)
    if not (cores or memory or gpus or any(amount for _, amount in consumables)):
        raise ValueError(f"chunk {text!r} asks for no cores, memory or GPUs")
    return Tasks(int(first), cores, memory, gpus, consumables)


def _consumable(name: str, said: str) -> float:
    """How much of a resource of the site's a chunk asks for."""
    if name in ("host", "vnode", "arch", "mpiprocs"):
        raise ValueError(f"{name!r} of a chunk is not read: which nodes it names is not modelled")
    try:
        check_names([name])
        return amount_of(said)
    except ValueError as error:
        raise ValueError(
            f"{name}={said} of a chunk is not read: only amounts are, such as ncpus, mem, ngpus, and of the "
            f"site's own resources those that nodes have so much of, such as scratch=100gb ({error})"
        ) from error


def _whole(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not text.isdigit() or (not int(text) and name in asked):
        raise ValueError(f"--{name} is {text!r}, it must be a whole number above 0")
    return int(text)


def _gpus(text: str) -> dict[str, float]:
    """Count GPUs by type; GPUs of any type under an empty name."""
    found: dict[str, float] = {}
    for part in text.split(","):
        one = next(parse_gres(f"gpu:{part.removeprefix('gpu:')}"), None) if part else None
        if one is None or not re.fullmatch(r"[\w.-]*", one.kind):
            raise ValueError(f"{part!r} is no number of GPUs; write 2, a100:2 or gpu:a100:2")
        found[one.kind] = found.get(one.kind, 0.0) + one.amount
    return found


def _of_types(gpus: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """GPUs by type as consumables.

    Raises:
        ValueError: some are of a type, and others of any.
    """
    types = {model: count for model, count in gpus.items() if count}
    if "" in types and len(types) > 1:
        raise ValueError(
            "some of its GPUs are of a type, and others of any: give all of them a type"
        )
    return tuple((f"{GPU_TYPE}{model}", count) for model, count in types.items() if model)


def _memory(text: str, units: Mapping[str, float]) -> float:
    """In GB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    unit = match[2].lower() if match else "?"
    if match is None or unit not in units:
        raise ValueError(f"{text!r} is no amount of memory, such as 4000, 16G or 16gb")
    return float(match[1]) * units[unit]
