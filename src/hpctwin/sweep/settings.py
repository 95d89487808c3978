"""What ``sweep.yaml`` holds: what is varied, and what is told of it.

Texts with places for parameters: ``{name}``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hpctwin.errors import near
from hpctwin.model.files.yaml_file import read_yaml
from hpctwin.model.input.settings import Duration, Settings
from hpctwin.model.text.units import parse_moment

__all__ = [
    "Run",
    "Scalar",
    "Source",
    "Span",
    "SweepSettings",
    "Values",
    "Worlds",
    "beside",
    "fill",
    "names_in",
    "read_sweep",
    "source_of",
]

_PLACE = re.compile(r"\{(\w+)\}")


def names_in(text: str) -> list[str]:
    """The parameters that a text has places for."""
    return _PLACE.findall(text)


def fill(given: Any, values: Mapping[str, Any]) -> Any:
    """A text with the values put in; one that is nothing but a place becomes the value itself.

    Args:
        given: a text; anything else stays as it is.
        values: by name.
    """
    if not isinstance(given, str):
        return given
    alone = _PLACE.fullmatch(given)
    if alone is not None:
        return values[alone[1]]
    return _PLACE.sub(lambda place: _text(values[place[1]]), given)


def _text(value: Any) -> str:
    return f"{value!r}" if isinstance(value, float) else str(value)


S = TypeVar("S", bound="Worlds")

Scalar = bool | int | float | str
"""What a parameter may be."""


class Source(Settings):
    """Jobs: of a trace, or of a generator.

    Args:
        trace: path of the trace.
        generate: name of the generator.
        options: of the generator; of a trace, rules of reading it (`hpctwin.formats.SwfRules`).
        name: in tables; the file's or the generator's if left out.
        resample: the trace's time is cut into pieces of this length, and with each seed as many of them are
            drawn, with replacement, and put one after the other: replicates of a workload of which there is
            one.
    """

    trace: str | None = None
    generate: str | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)
    name: str = ""
    resample: Duration | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.trace is None) == (self.generate is None):
            raise ValueError("give trace: PATH or generate: NAME, one of the two")
        if self.generate is not None and self.resample is not None:
            raise ValueError("resample goes with a trace; a generator draws other jobs by itself")
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.name or self.generate or Path(self.trace or "").name


def _moment(given: Any) -> str:
    parse_moment(given)
    return str(given)


Moment = Annotated[str, BeforeValidator(_moment)]
"""A date, or a time such as ``30d``."""


class Span(Settings):
    """A part of a workload in time: the jobs submitted in it.

    Args:
        begin: as a time since time zero such as ``30d``, or a date.
        end: the same, of the first that is not wanted.
    """

    begin: Moment
    end: Moment

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.begin} to {self.end}"


class Values(Settings):
    """Values between two bounds, drawn.

    Args:
        low: the lowest.
        high: the highest.
        log: whether they are even in their logarithm.
        whole: whether they are whole numbers.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low is {self.low:g} and high {self.high:g}; low must be less")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low:g}; with log it must be above 0")
        return self


class Run(Settings):
    """How each simulation runs.

    Args:
        overrun: whether a walltime ends a job.
        on_dependency_failure: what becomes of a job whose afterok dependency failed.
    """

    overrun: Literal["terminate", "continue"] = "terminate"
    on_dependency_failure: Literal["cancel", "hold"] = "cancel"


def source_of(given: Any) -> Any:
    """A path alone is a trace."""
    return {"trace": str(given)} if isinstance(given, str | Path) else given


def _seeds(given: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise ValueError(f"it must be 1 or more seeds, or a list of them, not {given}")
        return tuple(range(given))
    return given


def _machine(given: Any) -> Any:
    if isinstance(given, int) and given < 1:
        raise ValueError(f"it must be 1 node or more, or a machine's file or name, not {given}")
    return given


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Worlds(Settings):
    """Jobs and machines.

    Args:
        workloads: paths of traces, or more about each.
        clusters: numbers of equal nodes, or machines' files; what the trace says of its machine if left out.
        run: how each simulation runs.
    """

    workloads: tuple[Annotated[Source, BeforeValidator(source_of)], ...] = Field(min_length=1)
    clusters: tuple[Annotated[int | str, BeforeValidator(_machine)], ...] = ()
    run: Run = Run()


class SweepSettings(Worlds):
    """Which simulations there are: each value of each list with each of the others.

    Args:
        policies: texts such as ``wfp+easy``; ``{name}`` stands for a parameter.
        windows: parts of each workload in time; the whole if left out.
        loads: what jobs offer the machine, by their submit times put closer together or further apart; as
            they are if left out.
        runtimes: by what runtimes and walltimes are multiplied.
        widths: by what the jobs' nodes are multiplied, rounded up.
        seeds: how many, from 0, or which: of generators, of what is drawn again from a trace, and of random
            placement. All policies of a seed get the same jobs.
        parameters: values by name, or bounds that values are drawn between; they are put in where a policy, a
            generator's option or a cluster has ``{name}``.
        samples: how many points are drawn between the bounds, evenly in each (Latin hypercube).
        draw: only so many of all workloads by all clusters, drawn at random, each under all policies.
        sample_seed: of both draws.
        metrics: what tables and figures show; all figures of each simulation are kept.
        baseline: the policy that others are compared with; the first if left out.
        replicates: over what means and intervals are taken; comparisons are of pairs that share them.
    """

    policies: tuple[str, ...] = Field(min_length=1)
    windows: tuple[Span, ...] = ()
    loads: tuple[Positive, ...] = ()
    runtimes: tuple[Positive, ...] = (1.0,)
    widths: tuple[Positive, ...] = (1.0,)
    seeds: Annotated[tuple[int, ...], BeforeValidator(_seeds), Field(min_length=1)] = (0,)
    parameters: Mapping[str, tuple[Scalar, ...] | Values] = Field(default_factory=dict)
    samples: int | None = Field(default=None, ge=1)
    draw: int | None = Field(default=None, ge=1)
    sample_seed: int = 0
    metrics: tuple[str, ...] = Field(
        ("mean_wait_s", "p95_wait_s", "mean_bounded_slowdown", "utilization"), min_length=1
    )
    baseline: str | None = None
    replicates: tuple[Literal["seed", "window"], ...] = ("seed", "window")

    @field_validator("seeds", "policies", "loads", "clusters", "runtimes", "widths")
    @classmethod
    def _distinct(cls, given: tuple[Any, ...]) -> tuple[Any, ...]:
        for one in given:
            if given.count(one) > 1:
                raise ValueError(f"{one!r} is there twice")
        return given

    @model_validator(mode="after")
    def _used(self) -> Self:
        texts = [*self.policies, *map(str, self.clusters)]
        texts += [str(value) for source in self.workloads for value in source.options.values()]
        used = {name for text in texts for name in names_in(text)}
        for name in sorted(used - set(self.parameters)):
            hint = near(name, self.parameters)
            known = ", ".join(self.parameters) or "none"
            raise ValueError(f"{{{name}}} is no parameter.{hint} Known: {known}")
        for name in sorted(set(self.parameters) - used):
            raise ValueError(
                f"parameter {name!r} is used nowhere; write {{{name}}} where it is to be put in"
            )
        drawn = [name for name, one in self.parameters.items() if isinstance(one, Values)]
        if bool(drawn) != (self.samples is not None):
            raise ValueError(
                f"{drawn[0]!r} is drawn between bounds; say how many samples: are to be drawn"
                if drawn
                else "samples: needs a parameter with bounds, as in k: {low: 1, high: 8}"
            )
        if self.baseline is not None and self.baseline not in self.policies:
            raise ValueError(
                f"baseline {self.baseline!r} is none of the policies.{near(self.baseline, self.policies)}"
                f" Known: {', '.join(self.policies)}"
            )
        if self.baseline is not None and names_in(self.baseline):
            raise ValueError(
                f"baseline {self.baseline!r} has parameters, so it is several policies"
            )
        labels = [source.label for source in self.workloads]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two workloads are called {label!r}; give each a name:")
        return self


def read_sweep(path: str | os.PathLike[str]) -> SweepSettings:
    """Read ``sweep.yaml``; paths in it are from its folder.

    Raises:
        ConfigError: the file cannot be read or is not valid; a line for each fault.
    """
    settings = SweepSettings.checked(read_yaml(Path(path), "workloads"), str(path))
    return beside(settings, Path(path).parent)


def beside(settings: S, folder: Path) -> S:
    """Settings whose paths are from a folder."""

    def within(text: str) -> str:
        return text if Path(text).is_absolute() else str(folder / text)

    workloads = tuple(
        one if one.trace is None else one.model_copy(update={"trace": within(one.trace)})
        for one in settings.workloads
    )
    clusters = tuple(
        within(one) if isinstance(one, str) and (folder / one).is_file() else one
        for one in settings.clusters
    )
    return settings.model_copy(update={"workloads": workloads, "clusters": clusters})
