"""Read requests of jobs for Slurm, PBS, Torque or Kubernetes; see `chunks`."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpctwin.errors import FormatError, WorkloadError
from hpctwin.model.requests.chunks import GROUP, Tasks, neighbors_merged, together
from hpctwin.model.requests.features import read_constraint
from hpctwin.model.requests.pbs_requests import (
    Chunk,
    memory_gb,
    parse_duration,
    parse_nodes,
    parse_select,
    resources_in,
)
from hpctwin.model.requests.resources import (
    GPU_TYPE,
    amount_of,
    check_names,
    gres_count,
    parse_gres,
)
from hpctwin.model.requests.submit_options import (
    Options,
    is_pods,
    parse_pods,
    read_qsub,
    read_slurm,
)
from hpctwin.model.text import expand

_COMMANDS = ("sbatch", "salloc", "srun", "qsub")
_SIZES = (
    "nodes", "ntasks", "cpus-per-task", "ntasks-per-node", "mem", "mem-per-cpu", "mem-per-gpu", "gpus",
    "gpus-per-node", "gpus-per-task", "gres", "constraint", "exclusive", "spread-job", "cpus-per-gpu",
    "ntasks-per-gpu", "gpus-per-socket", "sockets-per-node", "tres-per-task",
)  # fmt: skip
"""Options of Slurm with the request of each part of a job."""
_LABELS = {"partition": "partition", "account": "account", "qos": "qos", "job-name": "name"}
_UNITS = {"": 1 / 1024, "k": 1 / 1024**2, "m": 1 / 1024, "g": 1.0, "t": 1024.0}
_PLACES = {"free", "pack", "scatter", "excl", "exclhost", "shared", "group=host", "group=vnode"}
_GROUP = re.compile(rf"group=(?!(?:host|vnode)$)({GROUP})")


@dataclass(frozen=True)
class Request:
    """Request of one job.

    Args:
        nodes: Minimum number of nodes; the exact number if it requests whole nodes.
        tasks: Number of tasks; 0 for whole nodes.
        cores, memory_gb, gpus: Request of each task.
        tasks_per_node: Largest number of tasks on a node; 0 for any number.
        exclusive: 1 if it shares its nodes with no other job.
        spread_job: 1 if it is placed on as many nodes as possible.
        shared_with: 1 if it shares nodes only with jobs of its user, 2 with those of its account.
        more: Further kinds of tasks; the fields above describe the first.
        features: Features of its nodes; None for any.
        consumables: Names and amounts of further resources of each task.
        group_by: Resource that has the same value on all its nodes (``place=group=…`` of PBS); None
            for any nodes.
        walltime_s: Time limit, in seconds; None if it requests none.
        partition, account, qos: Labels; None if it names none.
        name: Name of the job.
        dependency: Jobs that it waits for, as in ``--dependency`` or ``depend=``.
        priority: Priority; larger is sooner.
        ignored: Options and parts of options that are read and have no effect.
        sized: Whether it gives a number of nodes, tasks, cores or GPUs, or an amount of memory.
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
    walltime_s: float | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    name: str | None = None
    dependency: str | None = None
    priority: float | None = None
    ignored: tuple[str, ...] = ()
    sized: bool = True


def parse_request(text: str) -> Request:
    """Read a user's request, such as ``-N 2 -n 8 -c 4 --mem-per-cpu=2G``.

    Other forms are:

    - ``select=3:ncpus=8 place=scatter``.
    - ``nodes=2:ppn=8,walltime=1:00:00``.
    - Pods, each of which is a task: ``--replicas=4 --requests=cpu=500m,memory=2Gi``.

    The command, ``#SBATCH`` and ``#PBS`` may precede the options, and a script may follow them.

    Raises:
        WorkloadError: The text cannot be understood.
    """
    try:
        words = _words(text)
        command = words.pop(0) if words and words[0].rpartition("/")[2] in _COMMANDS else ""
        if is_pods(words):
            pods = parse_pods(words)
            return Request(1, pods.tasks, *pods.each, consumables=pods.consumables)
        if command.endswith("qsub") or "#PBS" in text or (not command and _is_pbs(words)):
            return _pbs(read_qsub(words))
        return _slurm(read_slurm(words, srun=command.endswith("srun")))
    except (ValueError, FormatError) as error:
        raise WorkloadError(f"request {text!r}: {error}") from error


def _words(text: str) -> list[str]:
    """Return the words as a shell splits them, without ``#SBATCH`` and comments."""
    found: list[str] = []
    for line in re.split(r"[\r\n]+|(?=#SBATCH\s|#PBS\s)", text):
        if line.startswith("##") or (
            line.startswith("#") and not line.startswith(("#SBATCH", "#PBS"))
        ):
            continue
        plain = re.sub(r"[\u201c\u201d]", '"', re.sub(r"^#(SBATCH|PBS)\s", "", line))
        found += shlex.split(re.sub(r"\s#.*$", "", plain))
    return found


def _is_pbs(words: Sequence[str]) -> bool:
    """Return whether words are of ``qsub``: a resource list, or an attribute of a job."""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if re.match(r"(-[lW])?[A-Za-z][\w.]*=", word) or (word in ("-l", "-W") and "=" in after):
            return True
    return False


def _slurm(parts: Sequence[Options]) -> Request:
    """Return the request of all parts of a job; a heterogeneous job has several."""
    ignored: list[str] = []
    about: dict[str, str] = {}
    found = []
    for options in parts:
        sizes: dict[str, str] = {}
        for name, value in options:
            if name in _SIZES:
                sizes[name] = value
            elif name in (*_LABELS, "time", "dependency", "priority", "nodelist"):
                about.setdefault(name, value)
            else:
                ignored.append("script" if name == "script" else f"--{name}")
        if "nodelist" in about:
            ignored.append("--nodelist (the names)")
            names = about.pop("nodelist")
            sizes.setdefault("nodes", str(max(1, len(expand(names)))) if "/" not in names else "1")
        found.append(_part(sizes, ignored))
    first, *others = found
    if others:
        first = _together(first, others, ignored)
    labels: dict[str, Any] = {key: about[name] for name, key in _LABELS.items() if about.get(name)}
    if "," in labels.get("partition", ""):
        labels["partition"] = labels["partition"].split(",")[0]
        ignored.append("--partition (all but the first)")
    number = about.get("priority", "")
    if "priority" in about and not number.isdecimal():
        ignored.append("--priority")
    return replace(
        first,
        **labels,
        walltime_s=_slurm_time(about.get("time", ""), ignored),
        dependency=about.get("dependency"),
        priority=float(number) if number.isdecimal() else None,
        ignored=tuple(dict.fromkeys(ignored)),
        sized=any(name in _SIZES and name != "constraint" for part in parts for name, _ in part),
    )


def _together(first: Request, others: Sequence[Request], ignored: list[str]) -> Request:
    """Return the parts of a heterogeneous job as one job with several kinds of tasks."""
    kinds = [
        Tasks(one.tasks, one.cores, one.memory_gb, one.gpus, one.consumables)
        for one in (first, *others)
    ]
    alike = len({(one.features, one.exclusive) for one in (first, *others)}) == 1
    ignored.append(
        f"heterogeneous parts (merged into one job{'' if alike else ', without their constraints'})"
    )
    return replace(
        first,
        nodes=1,
        more=tuple(kinds[1:]),
        tasks_per_node=1 if all(one.tasks == one.nodes for one in (first, *others)) else 0,
        features=first.features if alike else None,
        exclusive=max(one.exclusive for one in (first, *others)),
        spread_job=0,
    )


def _slurm_time(text: str, ignored: list[str]) -> float | None:
    """Return the seconds of a time limit; None for no limit.

    Forms are minutes, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` and ``D-H:M:S``.
    """
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,6}))?(?::(\d{1,6}))?", text.strip())
    if match is None or not re.search("[1-9]", text):
        if text:
            ignored.append(
                "--time" if text.upper() in ("UNLIMITED", "INFINITE", "0") else f"--time={text}"
            )
        return None
    days, *clock = match.groups()
    numbers = [int(one) for one in clock if one is not None]
    units = (
        {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}[len(numbers)] if days is None else (3600, 60, 1)
    )
    return 86400.0 * int(days or 0) + sum(n * unit for n, unit in zip(numbers, units, strict=False))


def _part(asked: dict[str, str], ignored: list[str]) -> Request:
    """Return the request of one part of a job."""
    _by_tres(asked, ignored)
    alone, shared_with = _exclusive(asked, ignored)
    # A job with --nodes gets exactly that number of nodes.
    spread = int("spread-job" in asked and "nodes" not in asked)
    if re.search(r"[-,:]", asked.get("nodes", "")):
        ignored.append("--nodes (the maximum)")
        asked["nodes"] = re.split(r"[-,:]", asked["nodes"])[0]
    nodes = _whole(asked, "nodes", 1)
    per_node = _whole(asked, "ntasks-per-node", 0)
    counted = _gpus(asked["gpus"]) if "gpus" in asked else {}
    tasks = _whole(asked, "ntasks", nodes * max(per_node, 1))
    if "ntasks-per-gpu" in asked and "ntasks" not in asked and counted:
        tasks = int(sum(counted.values())) * _whole(asked, "ntasks-per-gpu", 1)
    elif "ntasks-per-gpu" in asked and "ntasks" in asked and not counted:
        counted = {"": float(max(1, tasks // _whole(asked, "ntasks-per-gpu", 1)))}
    cores = float(_whole(asked, "cpus-per-task", 1))
    of_task = _gpus(asked["gpus-per-task"]) if "gpus-per-task" in asked else {}
    generic = _generic(asked.get("gres", ""))
    of_node = _gpus(asked["gpus-per-node"]) if "gpus-per-node" in asked else generic.gpus
    if "gpus-per-socket" in asked and "sockets-per-node" in asked:
        sockets = _whole(asked, "sockets-per-node", 1)
        of_node = {model: n * sockets for model, n in _gpus(asked["gpus-per-socket"]).items()}
    else:
        ignored += [f"--{one}" for one in ("gpus-per-socket", "sockets-per-node") if one in asked]
    nodes = min(nodes, tasks)  # as Slurm: "can't run 2 processes on 4 nodes"
    if counted:
        before = tasks
        tasks, cores = _by_gpus(tasks, cores, sum(counted.values()), nodes)
        per_node = max(min(per_node, 1), per_node * tasks // before)
        of_task = {model: count / tasks for model, count in counted.items()}
    gpus_task, on_node = sum(of_task.values()), sum(of_node.values())
    if "cpus-per-gpu" in asked and "cpus-per-task" not in asked and (gpus_task or on_node):
        each = _whole(asked, "cpus-per-gpu", 1)
        cores = each * (gpus_task or on_node * nodes / tasks)
    memory = cores * _memory(asked.get("mem-per-cpu", "0"))
    memory += gpus_task * _memory(asked.get("mem-per-gpu", "0"))
    features = _features(asked.get("constraint", ""), nodes, generic.types, ignored)
    if asked.get("mem") in ("0", "0K", "0M", "0G"):
        ignored.append("--mem=0")
    if not on_node and "mem" not in asked and not generic.others:
        return Request(
            nodes, tasks, cores, memory, gpus_task, per_node, alone, features, shared_with, spread,
            consumables=_of_types(of_task),
        )  # fmt: skip
    # If amounts are requested per node, all tasks on a node become one task.
    if "nodes" not in asked:
        nodes = -(-tasks // per_node) if per_node else 1
        if tasks > 1 and not per_node:
            ignored.append("--ntasks without --nodes, with per-node amounts (treated as one node)")
    here, further = divmod(tasks, nodes)

    def on_one_node(tasks_here: int, count: int) -> Tasks:
        gpus = {model: each * tasks_here for model, each in of_task.items()}
        for model, each in of_node.items():
            gpus[model] = gpus.get(model, 0.0) + each
        there = _memory(asked["mem"]) if "mem" in asked else tasks_here * memory
        there += on_node * _memory(asked.get("mem-per-gpu", "0"))
        consumables = (*generic.others.items(), *_of_types(gpus))
        return Tasks(count, tasks_here * cores, there, sum(gpus.values()), consumables)

    kinds = [on_one_node(here + 1, further)] if further else []
    first, *more = [*kinds, on_one_node(here, nodes - further)]
    return Request(
        1 if further else nodes, first.tasks, *first.each, 1, alone, features, shared_with,
        more=tuple(more), consumables=first.consumables,
    )  # fmt: skip


def _by_tres(asked: dict[str, str], ignored: list[str]) -> None:
    """Turn ``--tres-per-task=cpu=2,gres/gpu:a100=1`` into the equivalent options."""
    for one in asked.pop("tres-per-task", "").split(","):
        match = re.fullmatch(r"(?:(cpu)|gres[/:]gpu(?::([\w.-]+?))?)[=:](\d+)", one.strip())
        if match and match[1]:
            asked.setdefault("cpus-per-task", match[3])
        elif match:
            asked.setdefault("gpus-per-task", f"{match[2]}:{match[3]}" if match[2] else match[3])
        elif one:
            ignored.append(f"--tres-per-task={one}")


def _by_gpus(tasks: int, cores: float, gpus: float, nodes: int) -> tuple[int, float]:
    """Return tasks with whole GPUs, and their cores.

    Tasks that share a GPU become one.
    """
    common = math.gcd(tasks, int(gpus))
    if not gpus % tasks or not common or common < nodes:
        return tasks, cores
    return common, cores * tasks / common


def _features(constraint: str, nodes: int, types: Sequence[str], ignored: list[str]) -> str | None:
    features, lost = read_constraint(constraint, nodes)
    if lost:
        ignored.append(f"--constraint: {lost}")
    texts = [
        f"({one})" if types and "|" in one and "&" not in one else one for one in (features, *types)
    ]
    return "&".join(filter(None, texts)) or None


@dataclass
class _Generic:
    """Request of ``--gres`` per node.

    It has GPUs by type, other resources by name, and the types of these.
    """

    gpus: dict[str, float]
    types: list[str]
    others: dict[str, float]


def _generic(text: str) -> _Generic:
    found = _Generic({}, [], {})
    for part in filter(None, text.removeprefix("none").split(",")):
        one = next(parse_gres(part), None)
        if one is None or part.endswith(":") or not re.fullmatch(r"[\w.-]*", one.kind):
            raise ValueError(
                f"--gres={part} is not a name and number, such as fpga:1 or gpu:a100:2"
            )
        if one.name == "gpu":
            found.gpus[one.kind] = found.gpus.get(one.kind, 0.0) + one.amount
        else:
            last = part.rpartition(":")[2]
            if last[:1].isdecimal() and gres_count(last) is None:
                amount_of(last)  # a mistyped amount: only GPUs have types that begin with a digit
            found.types += [one.kind] if one.kind else []
            check_names([one.name])
            found.others[one.name] = found.others.get(one.name, 0.0) + one.amount
    return found


def _exclusive(asked: Mapping[str, str], ignored: list[str]) -> tuple[int, int]:
    """Return ``exclusive`` and ``shared_with`` of a job."""
    if "exclusive" not in asked:
        return 0, 0
    with_whom = {"user": (0, 1), "mcs": (0, 2)}
    if asked["exclusive"] not in ("", *with_whom):
        ignored.append(f"--exclusive={asked['exclusive']} (treated as --exclusive)")
    return with_whom.get(asked["exclusive"], (1, 0))


_QSUB_LABELS = {"q": "partition", "A": "account", "N": "name"}


def _pbs(options: Options) -> Request:
    """Return the request in options of ``qsub``."""
    ignored: list[str] = []
    resources: dict[str, str] = {}
    about: dict[str, str] = {}
    for name, value in options:
        if name == "l":
            resources |= resources_in(value)
        elif name == "W":
            for key, said in resources_in(value).items():
                if key == "depend":
                    about["depend"] = said
                else:
                    ignored.append(f"-W {key}")
        elif name in _QSUB_LABELS or (name == "p" and re.fullmatch(r"[+-]?\d{1,5}", value)):
            about[name] = value
        elif name == "n":
            resources.setdefault("place", "excl")
        else:
            ignored.append(name if name == "script" else f"-{name}")
    labels: dict[str, Any] = {
        key: about[name] for name, key in _QSUB_LABELS.items() if about.get(name)
    }
    if "partition" in labels:
        labels["partition"] = labels["partition"].partition("@")[0]
    asked = set(resources)
    found = _of_chunks(resources, ignored)
    walltime = parse_duration(resources.pop("walltime", None))
    if walltime == 0:
        walltime = None
    return replace(
        found,
        **labels,
        walltime_s=walltime,
        dependency=about.get("depend"),
        priority=float(about["p"]) if "p" in about else None,
        ignored=tuple(dict.fromkeys((*ignored, *(f"-l {name}" for name in resources)))),
        sized=bool({"select", "nodes", "procs", "ncpus", "ngpus", "mem"} & asked),
    )


def _of_chunks(resources: dict[str, str], ignored: list[str]) -> Request:
    """Return the request in resources; used ones are removed from them."""
    select, nodes = resources.pop("select", None), resources.pop("nodes", None)
    place = {word.removeprefix("v") for word in resources.pop("place", "free").split(":")}
    features = None
    if select is not None:
        inside = re.search(r":walltime=(\d+(?::\d+){0,2}(?:\.\d+)?)", select)
        if inside:  # a resource of the whole job, in any chunk
            select = select.replace(inside[0], "")
            resources.setdefault("walltime", inside[1])
        chunks = parse_select(select)
    elif nodes is not None:
        chunks, features = _of_nodes(nodes, resources)
        place = (place - {"free"}) | {"scatter"}
        place |= {"excl"} if "#excl" in nodes or "ppn=all" in nodes else set()
    else:
        chunks = _of_job(resources)
    for chunk in chunks:
        what = "select" if nodes is None else "nodes"
        ignored += [
            f"{what} {one.partition('=')[0]}"
            for one in chunk.others
            if one.partition("=")[0] not in dict(chunk.consumables)
            and one not in (features or "").split("&")
        ]
    return replace(_placed(chunks, place, ignored), features=features)


def _of_nodes(nodes: str, resources: dict[str, str]) -> tuple[tuple[Chunk, ...], str | None]:
    """Return the chunks of Torque's ``nodes=``, and the properties common to all.

    Each chunk is one node.
    """
    chunks = parse_nodes(nodes)
    count = sum(chunk.count for chunk in chunks)
    each = _size(resources.pop("pmem", None))
    whole = _size(resources.pop("mem", None))
    resources.pop("ncpus", None)
    chunks = tuple(
        replace(chunk, memory_gb=chunk.memory_gb or each * chunk.cores or whole / count)
        for chunk in chunks
    )
    named = {chunk.properties for chunk in chunks}
    return chunks, "&".join(named.pop()) or None if len(named) == 1 else None


def _of_job(resources: dict[str, str]) -> tuple[Chunk, ...]:
    """Return the chunks of a job that gives only sums.

    Examples are ``ncpus=8,mem=16gb``, and Torque's ``procs=16``.
    """
    procs, cores = resources.pop("procs", None), resources.pop("ncpus", None)
    gpus = resources.pop("ngpus", resources.pop("gpus", None))
    whole, each = _size(resources.pop("mem", None)), _size(resources.pop("pmem", None))
    for name, said in (("procs", procs), ("ncpus", cores), ("ngpus", gpus)):
        if said is not None and not re.fullmatch(r"\d{1,9}", said):
            raise ValueError(f"{name} is {said!r}; it must be a whole number")
    count = max(1, int(procs or 1))
    cores_each = float(cores or 1)
    return (Chunk(count, cores_each, float(gpus or 0), each * cores_each or whole / count),)


def _size(said: str | None) -> float:
    """Return the GB of a PBS size; 0 if none is given."""
    found = memory_gb(said or "0")
    if found is None:
        raise ValueError(f"{said!r} is not an amount of memory, such as 4000, 16G or 16gb")
    return found


def _placed(chunks: Iterable[Chunk], place: set[str], ignored: list[str]) -> Request:
    """Return a request for chunks with a placement."""
    groups = [match for word in sorted(place) if (match := _GROUP.fullmatch(word))][:1]
    place = place - {match[0] for match in groups}
    ignored += [f"place={word}" for word in sorted(place - _PLACES)]
    kinds = [
        Tasks(chunk.count, chunk.cores, chunk.memory_gb, chunk.gpus, chunk.consumables)
        for chunk in chunks
    ]
    for kind in kinds:
        if not any((*kind.each, *(amount for _, amount in kind.consumables))):
            raise ValueError(f"a chunk of {kind.tasks} requests no cores, memory or GPUs")
    most = int("scatter" in place)
    if place & {"pack", "group=host", "group=vnode"}:
        kinds, most = [together(kinds)], 0
    first, *more = neighbors_merged(kinds)
    return Request(
        1, first.tasks, *first.each, most, int(bool(place & {"excl", "exclhost"})), more=tuple(more),
        group_by=groups[0][1] if groups else None, consumables=first.consumables,
    )  # fmt: skip


def _whole(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not text.isdecimal() or (not int(text) and name in asked):
        raise ValueError(f"--{name} is {text!r}; it must be a whole number above 0")
    return int(text)


def _gpus(text: str) -> dict[str, float]:
    """Count GPUs by type; GPUs of any type have an empty name."""
    found: dict[str, float] = {}
    for part in text.split(","):
        one = next(parse_gres(f"gpu:{part.removeprefix('gpu:')}"), None) if part else None
        if one is None or not re.fullmatch(r"[\w.-]*", one.kind):
            raise ValueError(f"{part!r} is not a number of GPUs; write 2, a100:2 or gpu:a100:2")
        found[one.kind] = found.get(one.kind, 0.0) + one.amount
    return found


def _of_types(gpus: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return GPUs by type as consumables."""
    types = {model: count for model, count in gpus.items() if count}
    if "" in types and len(types) > 1:
        raise ValueError("some of its GPUs have a type and others do not: give all of them a type")
    return tuple((f"{GPU_TYPE}{model}", count) for model, count in types.items() if model)


def _memory(text: str) -> float:
    """Return an amount of memory in GB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    unit = match[2].lower() if match else "?"
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is not an amount of memory, such as 4000, 16G or 16gb")
    return float(match[1]) * _UNITS[unit]
