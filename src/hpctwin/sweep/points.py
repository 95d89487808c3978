"""Points of a sweep: worlds (jobs on a cluster) by policies, with result keys."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

import hpctwin
from hpctwin.errors import ConfigError
from hpctwin.generate import find_generator
from hpctwin.generate.resampling import check_users
from hpctwin.generate.walltimes import check_walltimes
from hpctwin.model import Cluster, Workload
from hpctwin.model.text import count_text
from hpctwin.simulation.state.arguments import as_cluster
from hpctwin.sweep.settings import Source, Span, SweepSettings, Values, fill, names_in

__all__ = ["Inputs", "Plan", "Point", "World", "code_version", "plan_of"]

Parameters = tuple[tuple[str, Any], ...]
Filled = tuple[str, str, Parameters]
"""A policy, its text in the settings, and the parameters inserted into it."""


@dataclass(frozen=True, slots=True)
class World:
    """Jobs and a cluster, the same for all policies.

    Args:
        key: Hash of all inputs.
        source: Source of the jobs, with parameters inserted.
        trace: Key of the jobs in `Inputs.workloads`, if they come from a trace.
        replicate: Number of the trace among those of its source, if there are several.
        span, load, runtimes, widths, walltimes, shift_s, seed: Changes of the jobs.
        cluster: Key in `Inputs.clusters`; empty for the number of nodes in the workload.
        cluster_name: Name of the cluster in tables.
        parameters: Parameters inserted into the jobs or the cluster.
    """

    key: str
    source: Source
    trace: str | None
    replicate: int | None
    span: Span | None
    load: float | None
    runtimes: float
    widths: float
    walltimes: str
    shift_s: float
    seed: int
    cluster: str
    cluster_name: str
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation of a sweep.

    Args:
        number: Index of the point.
        world: Jobs and cluster.
        policy: Text of the policy.
        written: Text of the policy in the settings, with placeholders.
        parameters: Parameters inserted into the policy or the world.
        key: Key of its result: hash of inputs and version.
    """

    number: int
    world: World
    policy: str
    written: str
    parameters: Parameters
    key: str


@dataclass(frozen=True)
class Inputs:
    """Inputs that a worker gets once.

    Args:
        workloads, clusters: Workloads and clusters by the hash of their content.
        run: Options of each simulation.
    """

    workloads: Mapping[str, Workload]
    clusters: Mapping[str, Cluster]
    run: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """All points of a sweep.

    Args:
        inputs: Inputs of the points.
        parts: Worlds that share policies, and these policies with their inserted parameters.
    """

    inputs: Inputs
    parts: Sequence[tuple[Sequence[World], Sequence[Filled]]]

    def __len__(self) -> int:
        return sum(len(worlds) * len(policies) for worlds, policies in self.parts)

    def __iter__(self) -> Iterator[Point]:
        number = itertools.count()
        about = f"{code_version()} {json.dumps(self.inputs.run, sort_keys=True)}"
        for worlds, policies in self.parts:
            for world in worlds:
                for policy, written, parameters in policies:
                    key = _digest(f"{about} {world.key} {_content_of(policy)}")
                    merged = dict(world.parameters + parameters)
                    yield Point(next(number), world, policy, written, tuple(merged.items()), key)


def plan_of(settings: SweepSettings, given: Mapping[str, Workload | Cluster] | None = None) -> Plan:
    """Read the inputs of a sweep, and return its points.

    Args:
        settings: Settings of the sweep.
        given: Workloads and clusters that the settings name and that are not in files.

    Raises:
        ConfigError, UnknownNameError, PolicyError, TraceError: Something named does not exist or is
            not valid.
    """
    from hpctwin.policies import parse_policy

    for source in settings.workloads:
        if source.generate is not None:
            find_generator(source.generate, source.options)
    reading = _Reading(dict(given or {}))
    outside = [str(value) for one in settings.workloads for value in one.options.values()]
    outside += [str(one) for one in settings.clusters]
    shared = {name for text in outside for name in names_in(text)}
    # Values of a world, with the values of policies in it.
    by_world: dict[Parameters, list[dict[str, Any]]] = {}
    for values in _assignments(settings):
        own = tuple((name, values[name]) for name in values if name in shared)
        by_world.setdefault(own, []).append(values)
    seen: set[str] = set()
    parts: list[tuple[list[World], list[Filled]]] = []
    for own, several in by_world.items():
        policies: dict[str, Filled] = {}
        for values, text in itertools.product(several, settings.policies):
            used = tuple((name, values[name]) for name in names_in(text))
            filled = str(fill(text, values))
            policies.setdefault(filled, (filled, text, used))
        worlds = [one for one in _worlds(settings, dict(own), reading) if one.key not in seen]
        seen |= {one.key for one in worlds}
        parts.append((worlds, list(policies.values())))
    for text in dict.fromkeys(one[0] for _, policies in parts for one in policies):
        parse_policy(text)
    if settings.draw is not None:
        parts = _drawn(parts, settings.draw, settings.sample_seed)
    run = settings.run.options()
    return Plan(Inputs(reading.workloads, reading.clusters, run), parts)


def _assignments(settings: SweepSettings) -> Iterator[dict[str, Any]]:
    """Yield each combination of listed values with each draw of values between bounds."""
    listed = {k: v for k, v in settings.parameters.items() if not isinstance(v, Values)}
    bounds = {k: v for k, v in settings.parameters.items() if isinstance(v, Values)}
    rng = np.random.default_rng(settings.sample_seed)
    count = settings.samples or 1
    drawn = {name: _latin(one, count, rng) for name, one in bounds.items()}
    for number in range(count):
        for values in itertools.product(*listed.values()):
            yield {
                **dict(zip(listed, values, strict=True)),
                **{name: several[number] for name, several in drawn.items()},
            }


def _latin(values: Values, count: int, rng: np.random.Generator) -> list[float | int]:
    """Return one value in each of ``count`` equal parts, in random order.

    Source:
        Latin hypercube sampling: McKay, Beckman, Conover 1979.
    """
    share = (rng.permutation(count) + rng.random(count)) / count
    if values.whole:
        span = values.high - values.low + 1
        if values.log:
            ratio = (values.high + 1) / values.low
            found = np.floor(values.low * ratio**share)
        else:
            found = np.floor(values.low + share * span)
        return [int(one) for one in np.clip(found, values.low, values.high)]
    if values.log:
        return [float(one) for one in values.low * (values.high / values.low) ** share]
    return [float(one) for one in values.low + share * (values.high - values.low)]


def _worlds(
    settings: SweepSettings, values: Mapping[str, Any], reading: _Reading
) -> Iterator[World]:
    none: tuple[Any, ...] = (None,)
    contents = {one: check_walltimes(one) for one in settings.walltimes}
    members = [
        (source, number if source.traces else None, path)
        for source in settings.workloads
        for number, path in enumerate(source.paths or none)
    ]
    for (
        member,
        cluster,
        span,
        load,
        runtimes,
        widths,
        walltimes,
        shift_s,
        seed,
    ) in itertools.product(
        members,
        settings.clusters or none,
        settings.windows or none,
        settings.loads or none,
        settings.runtimes,
        settings.widths,
        settings.walltimes,
        settings.shifts,
        settings.seeds,
    ):
        source, replicate, path = member
        options = {name: fill(value, values) for name, value in source.options.items()}
        filled = source.model_copy(update={"options": options})
        machine = fill(cluster, values)
        mentioned = {n for text in map(str, source.options.values()) for n in names_in(text)}
        mentioned |= set(names_in(str(cluster)))
        trace = None if path is None else reading.workload(filled, path)
        address = "" if machine is None else reading.cluster(machine)
        about = [
            trace or [source.generate, options], source.resample,
            None if span is None else [span.begin, span.end], load, runtimes, widths,
            contents[walltimes], shift_s, seed, address,
        ]  # fmt: skip
        yield World(
            _digest(json.dumps(about, sort_keys=True, default=str)),
            filled, trace, replicate, span, load, runtimes, widths, walltimes, shift_s, seed, address,
            "walltimes of the workload" if machine is None else reading.names[address],
            tuple((name, value) for name, value in values.items() if name in mentioned),
        )  # fmt: skip


def _drawn(
    parts: list[tuple[list[World], list[Filled]]], count: int, seed: int
) -> list[tuple[list[World], list[Filled]]]:
    total = sum(len(worlds) for worlds, _ in parts)
    if count > total:
        raise ConfigError(f"draw is {count:,}, but only {total:,} are available")
    chosen = set(np.random.default_rng(seed).choice(total, count, replace=False).tolist())
    number = itertools.count()
    kept = [([one for one in worlds if next(number) in chosen], of) for worlds, of in parts]
    return [(worlds, of) for worlds, of in kept if worlds]


class _Reading:
    """Reader that reads each file once; contents are known by their hash."""

    def __init__(self, given: dict[str, Workload | Cluster]) -> None:
        self.given = given
        self.workloads: dict[str, Workload] = {}
        self.clusters: dict[str, Cluster] = {}
        self.names: dict[str, str] = {}
        self._read: dict[str, str] = {}

    def workload(self, source: Source, path: str) -> str:
        from hpctwin.formats import SwfRules, read_workload

        asked = f"{path} {source.options} {source.resample}"
        if asked not in self._read:
            made = self.given.get(path)
            if not isinstance(made, Workload):
                try:
                    rules = SwfRules(**source.options)
                except TypeError as error:
                    known = ", ".join(one.name for one in dataclasses.fields(SwfRules))
                    raise ConfigError(
                        f"{source.label}: {error}; options for reading a trace: {known}"
                    ) from error
                made = read_workload(path, rules=rules)
            if source.resample == "users":
                check_users(made)
            address = _digest_of(dataclasses.replace(made, name="", notes=None, header=()))  # type: ignore[arg-type]
            self.workloads[address] = made
            self._read[asked] = address
        return self._read[asked]

    def cluster(self, machine: Any) -> str:
        asked = f"cluster {machine}"
        if asked not in self._read:
            made = self.given.get(str(machine))
            if not isinstance(made, Cluster):
                made = as_cluster(machine)
            address = _digest_of(made)
            self.clusters[address] = made
            number = isinstance(machine, int)
            self.names[address] = count_text(machine, "node") if number else Path(str(machine)).stem
            self._read[asked] = address
        return self._read[asked]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest_of(value: Any) -> str:
    """Return the hash of the content of a workload or a cluster."""
    found = hashlib.blake2b(digest_size=16)
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode())
        plain: npt.NDArray[Any] = np.ascontiguousarray(value)
        found.update(repr(plain.tolist()).encode() if plain.dtype == object else plain.data)
    elif isinstance(value, BaseModel):
        _feed(found, dict(value))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            found.update(field.name.encode())
            _feed(found, getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name, one in value.items():
            found.update(str(name).encode())
            _feed(found, one)
    elif isinstance(value, tuple | list):
        found.update(f"{len(value)}".encode())
        for one in value:
            _feed(found, one)
    else:
        found.update(repr(value).encode() + b"\0")


@cache
def _content_of(policy: str) -> str:
    """Return a policy's text, with hashes of the Python files that it names."""
    files = [Path(name) for name in re.findall(r"[^+@~/:]*(?:/[^+@~:]*)?\.py", policy)]
    return " ".join(
        [policy, *(hashlib.sha256(one.read_bytes()).hexdigest() for one in files if one.is_file())]
    )


@cache
def code_version() -> str:
    """Return the version, and the hash of the sources that results depend on."""
    root = Path(hpctwin.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for room in (
        "engine",
        "energy",
        "formats",
        "generate",
        "metrics",
        "model",
        "policies",
        "simulation",
    ):
        for source in sorted((root / room).rglob("*.py")):
            digest.update(source.read_bytes())
    digest.update((root / "sweep" / "bench.py").read_bytes())
    return f"{hpctwin.__version__}+{digest.hexdigest()}"
