"""Jobs as PBS's commands and hooks list them, and their parts of vnodes.

The reason why PBS does not start a job comes from its comment, in the words of
`hpctwin.rms.records.records.REASONS`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hpctwin.model.requests.chunks import Tasks, more_tasks_text, neighbors_merged, together
from hpctwin.model.requests.pbs_requests import (
    DEFAULT_PROJECT,
    Chunk,
    amount_said,
    is_consumable,
    memory_gb,
    parse_duration,
    parse_select,
)
from hpctwin.rms.pbs.listing.output import integer, nodes_needed, resources, time_s, vnodes
from hpctwin.rms.records.records import (
    JobRecord,
    JobSpec,
    NodePart,
    NodeRecord,
    held_by_jobs,
    listed_dependencies,
)

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
"""Kinds by pattern; the first match counts.

With an empty kind, the job waits for nodes or for its turn.
"""


def reason_of(comment: str, consumables: Collection[str] = ()) -> str:
    """Return the reason in a scheduler's comment on a queued job; empty without one.

    Args:
        comment: Comment such as ``Not Running: User has reached queue workq running job limit.``
        consumables: Custom resources of the site that modeled vnodes have: a job that lacks them
            waits for nodes.
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


MARK = "hpctwin"
"""Resource by which the hook marks the twin's jobs, with 0.

Operators take a job out with 1.
"""
WAIT = "hpctwin_wait"
"""Resource of which a leased job has 1, so that a limit of the server holds it."""

LONGEST_S = 365 * 86_400.0
"""Stands for a walltime without limit."""

_RUNNING, _WAITING = {"R", "E", "S", "U"}, {"Q", "W", "H", "T"}
STATES = _RUNNING | _WAITING | {"B", "F", "M", "X", "C"}
"""States of jobs.

B is an array of which jobs have started. The states without a group have ended, C in Torque.
"""
_STATE_NUMBERS = dict(zip("0123456789", "TQHWREXBMF", strict=True))
"""Job states as hooks report them."""
_OTHER_WAY = {"before", "beforeany", "beforeok", "beforenotok"}
"""Kinds listed on the job waited for, too; the waiting job has them as after…"""
_MODELLED = {
    "select", "place", "walltime", "ncpus", "mem", "ngpus", "nodect", "mpiprocs", "ompthreads",
    "vmem", "cput", "pcput", "pmem", "pvmem", "file", "nice", "preempt_targets", MARK, WAIT,
}  # fmt: skip
"""Modeled resources, and limits of a process, which keep no job from starting."""


class LargestNode(NamedTuple):
    """Size of the largest node: chunks are combined by it if jobs have whole nodes.

    Args:
        cores, gpus: Amounts; 0 if unknown.
        sharing: How parts of nodes are allocated; None if jobs have whole nodes.
    """

    cores: float = 0.0
    gpus: float = 0.0
    sharing: Sharing | None = None


@dataclass(frozen=True)
class LeaseMark:
    """Mark of a pending job of the twin.

    Args:
        free: Whether an operator has taken it from the twin.
        held: Whether it is held.
        kept: Whether PBS's scheduler skips it, if the limit is set.
    """

    free: bool = False
    held: bool = False
    kept: bool = False


def array_of(job_id: str) -> str:
    """Return the id of a subjob's array, ``17[].vm`` of ``17[3].vm``, or any other id."""
    return re.sub(r"\[\d+\]", "[]", job_id)


def as_subjob(row: dict[str, Any], array: Mapping[str, Any]) -> dict[str, Any]:
    """Return a subjob's attributes.

    A pending subjob is listed as queued, whatever holds its whole array back.
    """
    if state_of(row) not in _WAITING:
        return row
    state = str(array.get("job_state", "Q"))
    of_all = ("Hold_Types", "depend", "Execution_Time", "comment", "max_run_subjobs")
    kept = {name: array[name] for name in of_all if name in array}
    return {**row, **kept, "job_state": "Q" if state == "B" else state}


def job_mark(row: Mapping[str, Any]) -> LeaseMark | None:
    """Return a pending job's mark as the twin's; None without one, or if it runs."""
    state = state_of(row)
    value = str(resources(row.get("Resource_List")).get(MARK, ""))
    if state not in _WAITING or not re.fullmatch(r"\d{1,11}", value):
        return None
    return LeaseMark(int(value) != 0, _is_held(row), _waits(row))


def counts(row: Mapping[str, Any]) -> bool:
    """Return whether a job runs and counts in the limit: it was started past the hook."""
    return state_of(row) in _RUNNING and _waits(row)


def job_record(
    job_id: str,
    row: Mapping[str, Any],
    known: Mapping[str, NodeRecord],
    largest: LargestNode,
    notes: list[str],
) -> JobRecord | None:
    """Return one job from its attributes in qstat or a hook; None if it has ended.

    Args:
        row: Its attributes. Resources may be an object or text, times text or seconds.
        notes: List to which assumptions are added.

    Raises:
        ValueError: A needed attribute is missing.
    """
    state = state_of(row)
    running = state in _RUNNING
    if not running and state not in _WAITING:
        return None
    # A job on its way to its nodes runs already, but has no start time yet.
    start_s = (time_s(row.get("stime")) or time_s(row.get("mtime"))) if running else None
    # A suspended job's parts of shared vnodes belong to other jobs until it resumes.
    holds = running and not (state == "S" and largest.sharing is not None)
    exec_vnode = str(row.get("exec_vnode", "")) if holds else ""
    names = tuple(name for name in vnodes(exec_vnode) if name in known)
    if running and start_s is None:
        raise ValueError("it runs, but its start time is missing")
    run_count = integer(row.get("run_count"))
    spec = _spec(job_id, row, state, len(names), largest, notes)
    held = parts_held(exec_vnode) if spec.shares else {}
    return JobRecord(
        spec=spec,
        start_s=start_s,
        node_names=names,
        parts=tuple(held[name] for name in names) if held else (),
        requeues=max(0, run_count - 1) if running else run_count,
    )


def _spec(
    job_id: str,
    row: Mapping[str, Any],
    state: str,
    holds: int,
    largest: LargestNode,
    notes: list[str],
) -> JobSpec:
    asks = resources(row.get("Resource_List"))
    select = selected(row)
    if select is None and "ncpus" in asks:
        select = f"ncpus={asks['ncpus']}"
    if select is None and not holds:
        raise ValueError("its Resource_List.select is missing")
    chunks = parse_select(str(select)) if select is not None else ()
    submit_s = time_s(row.get("qtime")) or time_s(row.get("ctime"))
    if submit_s is None:
        raise ValueError("its submit time is missing")
    dependencies = listed_dependencies(
        row.get("depend"), job_id, notes, lambda name: name.partition("@")[0], mirrored=True
    )
    not_before_s = time_s(row.get("Execution_Time")) if state in ("W", "H") else None
    modelled = frozenset[str]() if largest.sharing is None else largest.sharing.consumables
    constraints = _constraints(asks, chunks, modelled)
    priority = str(row.get("Priority", "0"))
    about: dict[str, Any] = {
        "nodes": holds
        or nodes_needed(chunks, str(asks.get("place", "free")), largest.cores, largest.gpus),
        "cores": max((chunk.cores for chunk in chunks), default=0.0),
        "gpus": max((chunk.gpus for chunk in chunks), default=0.0),
        "memory_gb": max((chunk.memory_gb for chunk in chunks), default=0.0),
    }
    if largest.sharing is not None and chunks:
        about = tasks_asked(chunks, str(asks.get("place", "free")), largest.sharing, [])
    project = str(row.get("project", ""))
    owner = row.get("euser") or str(row.get("Job_Owner", "")).partition("@")[0]
    return JobSpec(
        id=job_id,
        submit_s=submit_s,
        **about,
        walltime_s=min(parse_duration(asks.get("walltime")) or LONGEST_S, LONGEST_S),
        not_before_s=not_before_s,
        user=str(owner)[:128],
        account=str(row.get("Account_Name") or project.replace(DEFAULT_PROJECT, ""))[:128],
        partition=str(row.get("queue", ""))[:128],
        priority=float(priority) if re.fullmatch(r"-?\d{1,6}", priority) else 0.0,
        dependencies=dependencies if state not in _RUNNING else (),
        held=_is_held(row),
        reason=reason_of(str(row.get("comment", "")), modelled) if state == "Q" else "",
        constraints=constraints,
    )


def roughly(row: Mapping[str, Any], sharing: Sharing | None) -> str:
    """Return a request on nodes, chunks or array that is not modeled; empty if none."""
    asks, notes = resources(row.get("Resource_List")), list[str]()
    if str(row.get("max_run_subjobs", "")) not in ("", "0"):
        return f"max_run_subjobs={row['max_run_subjobs']}"
    select = selected(row)
    if sharing is None and "group=" in str(asks.get("place", "")):
        return f"place={asks['place']}"
    if sharing is not None and select is not None:
        try:
            chunks = parse_select(str(select))
        except ValueError:
            return f"select={select}"[:60]
        tasks_asked(chunks, str(asks.get("place", "free")), sharing, notes)
    return notes[0] if notes else ""


def selected(row: Mapping[str, Any]) -> Any:
    """Return the chunks by which PBS places a job, with ``default_chunk`` if reported."""
    return row.get("schedselect") or resources(row.get("Resource_List")).get("select")


def how_it_lies(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return a job's select and place."""
    return str(selected(row)), str(resources(row.get("Resource_List")).get("place", "free"))


def _is_held(row: Mapping[str, Any]) -> bool:
    """Return whether a user or operator holds it.

    A hold of the system keeps it from starting before the jobs it waits for.
    """
    holds = set(str(row.get("Hold_Types", "n"))) - {"n"}
    kinds = {part.partition(":")[0] for part in str(row.get("depend", "")).split(",")}
    return bool(holds - {"s"}) or ("s" in holds and not kinds - _OTHER_WAY - {""})


def _waits(row: Mapping[str, Any]) -> bool:
    return integer(resources(row.get("Resource_List")).get(WAIT)) > 0


def state_of(row: Mapping[str, Any]) -> str:
    """Return the letter of its state."""
    state = str(row.get("job_state", ""))
    return _STATE_NUMBERS.get(state, state)


def _constraints(
    asks: Mapping[str, Any], chunks: tuple[Chunk, ...], modelled: Collection[str]
) -> str:
    """Return requests that no model of nodes covers, such as licenses."""
    modelled = _MODELLED | set(modelled)
    others = [f"{name}={value}" for name, value in asks.items() if name not in modelled]
    pairs = (pair for chunk in chunks for pair in chunk.others)
    others += [pair for pair in pairs if pair.partition("=")[0] not in modelled]
    return ",".join(dict.fromkeys(others))[:128]


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
