"""ElastiSim's application models: phases of tasks, with amounts that depend on the nodes of a job.

Source:
    https://elastisim.github.io/workload/application-model.html and the pages next to it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, near
from hpctwin.formats.files import read_json
from hpctwin.formats.json.expressions import evaluate
from hpctwin.formats.json.jobs import JsonRecord, not_read
from hpctwin.model.workload.demands import MAX_AMOUNT
from hpctwin.network import profiles
from hpctwin.network.profiles import Profile
from hpctwin.network.rank_tasks import (
    PATTERNS,
    Access,
    Busy,
    Exchange,
    Gpu,
    Idle,
    RankTask,
    RankTasks,
    Repeated,
    bytes_between,
)

FloatArray = npt.NDArray[np.float64]

MOST_NODES = 1e6
_MOST_SECONDS = 1e12
_MOST_REPEATS = 1e9
_MOST_COPIES = 1000
"""Limit of the repetitions of an asynchronous task, which all run at the same time."""
_MOST_DEPTH = 50
_VECTORS = ("all_ranks", "total", "root_only", "even_ranks", "odd_ranks", "uniform", "vector")
_OF_MODELS = ("on_init", "on_reconfiguration", "on_expansion", "phases")
_OF_PHASES = ("iterations", "scheduling_point", "evolving_request", "barrier", "tasks")
_OF_TASKS = (
    "type", "name", "iterations", "synchronized", "flops", "computation_pattern", "bytes",
    "communication_pattern", "coupled", "pattern", "async", "delay", "tasks",
)  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """How a job runs its application model.

    Args:
        nodes: Number of nodes.
        gpus: GPUs on each of them.
        fixed: Whether the job may never have another number of nodes.
        stops: Whether the job waits for all ranks at scheduling points, and at its own requests.
        arguments: Values of its arguments; of others, which are no numbers, the text.
    """

    nodes: int
    gpus: int = 0
    fixed: bool = True
    stops: tuple[bool, bool] = (False, False)
    arguments: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that equal launches share."""
        return self.nodes, self.gpus, self.fixed, self.stops, frozenset(self.arguments.items())


@dataclass(frozen=True)
class _Where:
    """A part of a model that is read, for a job."""

    record: JsonRecord
    launch: Launch
    depth: int = 0

    def inside(self, values: Any, name: str) -> _Where:
        if not isinstance(values, dict):
            raise self.record.fault(name, f"is {values!r:.40}, expected an object")
        record = JsonRecord(self.record.path, f"{self.record.where}, {name}", values)
        return _Where(record, self.launch, self.depth + 1)

    def listed(self, key: str) -> list[_Where]:
        values = self.record.values.get(key)
        if not isinstance(values, list) or not values:
            raise self.record.wrong(key, "a list of objects")
        return [self.inside(one, f"{key}[{number}]") for number, one in enumerate(values)]

    def number(self, key: str, most: float, *, nodes: bool = True) -> float:
        """Return a number, or the value of an expression, from 0 to ``most``."""
        value = self.record.values.get(key)
        if not isinstance(value, str):
            return self.record.number(key, most=most)
        launch = self.launch
        names = {name: one for name, one in launch.arguments.items() if not isinstance(one, str)}
        if nodes:
            names = {
                "num_nodes": float(launch.nodes),
                "num_gpus_per_node": float(launch.gpus),
                "num_gpus": float(launch.nodes * launch.gpus),
                **names,
            }
        try:
            found = evaluate(value, names)
        except ConfigError as error:
            raise self.record.fault(key, f"{value!r:.60} {error}") from error
        if not 0 <= found <= most:
            raise self.record.fault(
                key, f"{value!r:.60} is {found:g}, expected a number from 0 to {most:g}"
            )
        return found

    def times(self, *, nodes: bool = True) -> int:
        """Return the number of iterations."""
        if not self.record.has("iterations"):
            return 1
        return int(self.number("iterations", _MOST_REPEATS, nodes=nodes))

    def one_of(self, key: str, known: Sequence[str]) -> str:
        value = self.record.values.get(key)
        name = value.lower() if isinstance(value, str) else ""
        if name not in known:
            found = "is missing" if value is None else f"is {value!r:.40}"
            raise self.record.fault(
                key, f"{found}; supported are {', '.join(known)}.{near(name, known)}".rstrip(".")
            )
        return name

    def vector(self, key: str, pattern_key: str, most: float = MAX_AMOUNT) -> FloatArray:
        """Return the amount of each rank."""
        pattern = self.one_of(pattern_key, _VECTORS)
        nodes = self.launch.nodes
        if pattern == "vector":
            return self._listed_numbers(key, nodes, f"one for each of the {nodes} nodes", most)
        amount = self.number(key, most)
        amounts = np.zeros(nodes)
        if pattern == "uniform":
            amounts[:] = amount
        elif pattern == "root_only":
            amounts[0] = amount
        else:
            first, step = {"even_ranks": (0, 2), "odd_ranks": (1, 2)}.get(pattern, (0, 1))
            some = amounts[first::step]
            some[:] = amount / max(len(some), 1)
        return amounts

    def matrix(self, patterns: Sequence[str]) -> FloatArray | tuple[str, float]:
        """Return the bytes between ranks."""
        pattern = self.one_of("communication_pattern", patterns)
        if pattern != "matrix":
            return pattern, self.number("bytes", MAX_AMOUNT)
        nodes = self.launch.nodes
        form = f"{nodes} × {nodes}"
        return self._listed_numbers("bytes", nodes * nodes, form, MAX_AMOUNT).reshape(nodes, nodes)

    def _listed_numbers(self, key: str, count: int, form: str, most: float) -> FloatArray:
        if not self.launch.fixed:
            raise self.record.fault(key, "is a list; only rigid jobs have a fixed number of nodes")
        numbers = self.record.numbers(key, most)
        if len(numbers) != count:
            raise self.record.fault(key, f"has {len(numbers)} numbers, expected {form}")
        return numbers


class ModelReader:
    """Reads the application models of one file of jobs, each file once.

    Args:
        path: File of the jobs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._documents: dict[Path, Any] = {}
        self._read: dict[Path, None] = {}
        self._found: dict[tuple[Any, ...], Profile] = {}
        self.requests: set[Profile] = set()
        """Profiles with evolving requests."""

    def profile(self, job: JsonRecord, launch: Launch) -> Profile:
        """Return what a job does."""
        name = job.text("application_model", "the name of a file")
        key = (name, launch.key)
        if key not in self._found:
            file = self._file(job, name)
            if file not in self._documents:
                self._documents[file] = read_json(file)
            self._found[key] = self._profile(self._model(job, launch, file))
            self._read[file] = None
        return self._found[key]

    def length_s(self, job: JsonRecord, launch: Launch, nodes: int) -> float:
        """Return how long a job that only waits takes on a number of nodes, in seconds."""
        file = self._file(job, job.values["application_model"])
        profile = self._profile(self._model(job, replace(launch, nodes=nodes), file))
        assert profile.length_s is not None
        return profile.length_s

    def _model(self, job: JsonRecord, launch: Launch, file: Path) -> _Where:
        where = _Where(JsonRecord(file, job.where, {}), launch)
        return where.inside(self._documents[file], "the model")

    def not_read(self) -> dict[str, int]:
        """Return a sentence on each field of the models that is not read, with their numbers."""
        models = [JsonRecord(path, "", self._documents[path]) for path in self._read]
        phases = [
            JsonRecord(one.path, "", phase)
            for one in models
            for phase in (one.values.get("on_init"), *one.values["phases"])
            if phase is not None
        ]
        tasks: list[JsonRecord] = []
        inside = phases
        while inside:
            inside = [
                JsonRecord(one.path, "", task)
                for one in inside
                for task in one.values.get("tasks", ())
            ]
            tasks += inside
        return {
            **dict(not_read("an application model", models, _OF_MODELS)),
            **dict(not_read("a phase", phases, _OF_PHASES)),
            **dict(not_read("a task", tasks, _OF_TASKS)),
        }

    def _file(self, job: JsonRecord, name: str) -> Path:
        """Return the file of a model, in the folder of the jobs or below it.

        ElastiSim names it from where it is started: the beginning of the path may not exist here.
        """
        folder = self._path.parent
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        for first in range(len(parts)):
            file = folder.joinpath(*parts[first:])
            try:
                if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
                    return file
            except (OSError, ValueError):
                continue
        raise job.fault(
            "application_model",
            f"is {name[:200]!r}, and there is no such file in the folder of the jobs; copy it there",
        )

    def _profile(self, model: _Where) -> Profile:
        """Return the phases of a job.

        Ranks wait for each other after a phase, unless the next one has no barrier.
        """
        parts: list[Profile] = []
        nodes, (points, requests) = model.launch.nodes, model.launch.stops
        init = model.record.values.get("on_init")
        if init is not None:
            phase = model.inside(init, "on_init")
            tasks, times = _tasks(phase), phase.times(nodes=False)
            if times > 1:
                _check_waits(phase, tasks, "iterations above 1")
                tasks = (Repeated(tasks, repeat=times),)
            parts.append(RankTasks(nodes, tasks if times else ()))
        last: tuple[tuple[RankTask, ...], int] = ((), 0)
        asked = False
        for phase in model.listed("phases"):
            times = phase.times(nodes=False)
            if times < 1:
                raise phase.record.fault("iterations", "is 0, expected a number above 0")
            tasks = _tasks(phase)
            asks = phase.record.values.get("evolving_request") is not None
            asked |= asks
            flag = partial(phase.record.flag, default=True)
            stops = (asks and requests) or (points and flag("scheduling_point"))
            if flag("barrier") or stops:
                parts += _repeated(nodes, *last)
                last = (tasks, times)
                continue
            _check_waits(phase, (*last[0], *tasks), "barrier false")
            parts += _repeated(nodes, last[0], last[1] - 1)
            last = ((*last[0], Repeated(tasks, repeat=times)), 1)
        parts += _repeated(nodes, *last)
        made = profiles.Sequence(tuple(parts))
        if asked:
            self.requests.add(made)
        return made


def _repeated(nodes: int, tasks: tuple[RankTask, ...], times: int) -> list[Profile]:
    """Return repeated tasks; ranks wait for each other after each time."""
    once = RankTasks(nodes, tasks)
    if times < 2:
        return [once] if times == 1 and tasks else []
    return [profiles.Sequence((once,), times)]


def _check_waits(phase: _Where, tasks: Sequence[RankTask], what: str) -> None:
    if any(isinstance(task, Access) and task.asynchronous for task in tasks):
        raise phase.record.fault(
            "tasks",
            f"are asynchronous here or in the phase before; this does not work with {what}: put them "
            "into a task of type 'sequence', or remove 'async'",
        )


def _tasks(where: _Where) -> tuple[RankTask, ...]:
    if where.depth > _MOST_DEPTH:
        raise where.record.fault("tasks", f"are nested more than {_MOST_DEPTH} levels deep")
    return tuple(_task(one) for one in where.listed("tasks"))


def _task(where: _Where) -> RankTask:
    kind = where.one_of("type", tuple(_TASKS))
    times = where.times()
    common: dict[str, Any] = {"repeat": times, "synchronized": where.record.flag("synchronized")}
    made = _TASKS[kind](where, common)
    if times > _MOST_COPIES and isinstance(made, Access) and made.asynchronous:
        raise where.record.fault(
            "iterations",
            f"is {times:,} for an asynchronous task, expected {_MOST_COPIES:,} or less",
        )
    return made


def _delay(kind: type[Idle | Busy]) -> Callable[[_Where, dict[str, Any]], RankTask]:
    return lambda where, common: kind(where.vector("delay", "pattern", _MOST_SECONDS), **common)


def _access(*, write: bool, shared: bool) -> Callable[[_Where, dict[str, Any]], RankTask]:
    return lambda where, common: Access(
        where.vector("bytes", "pattern"),
        write,
        "shared" if shared else "node",
        where.record.flag("async"),
        **common,
    )


def _cpu(where: _Where, common: dict[str, Any]) -> RankTask:
    flops, com = _has_either(where)
    return Exchange(
        where.vector("flops", "computation_pattern") if flops else None,
        where.matrix((*PATTERNS, "matrix")) if com else None,
        where.record.flag("coupled"),
        **common,
    )


def _has_either(where: _Where) -> tuple[bool, bool]:
    """Return whether a task computes, and whether it communicates."""
    found = where.record.has("flops"), where.record.has("bytes")
    if not any(found):
        raise where.record.fault("flops", "is missing, and so is bytes; give one of them")
    return found


def _gpu(where: _Where, common: dict[str, Any]) -> RankTask:
    nodes, gpus = where.launch.nodes, where.launch.gpus
    if not gpus:
        raise where.record.fault(
            "type", "is 'gpu', and the job has no GPUs; give it num_gpus_per_node"
        )
    computes, sends = _has_either(where)
    flops = where.vector("flops", "computation_pattern") / gpus if computes else None
    if not sends:
        return Gpu(gpus, flops, 0.0, None, **common)
    inside = ("all_to_all", "ring", "ring_clockwise", "ring_counter_clockwise")
    found = where.matrix(PATTERNS if gpus == 1 else inside)
    assert isinstance(found, tuple)
    within, between = _of_gpus(*found, nodes, gpus)
    pairs = bytes_between(found[0], within, gpus)
    most = float((pairs + pairs.T).max())
    return Gpu(gpus, flops, most, (found[0], between), **common)


def _of_gpus(pattern: str, amount: float, nodes: int, gpus: int) -> tuple[float, float]:
    """Return the bytes of a pattern of GPUs inside each node, and between nodes."""
    every = nodes * gpus
    if gpus == 1:
        return 0.0, amount
    if pattern == "all_to_all":
        one = amount / (every * (every - 1))
        return gpus * (gpus - 1) * one, every * (every - gpus) * one
    if nodes == 1:
        return amount, 0.0
    return amount / every * (gpus - 1), amount / every * nodes


_TASKS: dict[str, Callable[[_Where, dict[str, Any]], RankTask]] = {
    "cpu": _cpu,
    "gpu": _gpu,
    "pfs_read": _access(write=False, shared=True),
    "pfs_write": _access(write=True, shared=True),
    "bb_read": _access(write=False, shared=False),
    "bb_write": _access(write=True, shared=False),
    "busy_wait": _delay(Busy),
    "idle": _delay(Idle),
    "sequence": lambda where, common: Repeated(_tasks(where), **common),
}
