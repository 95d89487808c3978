"""Content of ``sweep.yaml``: varied values and outputs; ``{name}`` in texts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hpctwin.errors import near
from hpctwin.metrics import TAU_S
from hpctwin.model.settings import Duration, Settings, read_yaml
from hpctwin.model.text import parse_duration_s, parse_moment

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
    """Return the parameters that a text has placeholders for."""
    return _PLACE.findall(text)


def fill(given: Any, values: Mapping[str, Any]) -> Any:
    """Return a text with values inserted.

    A text that is only a placeholder becomes the value.

    Args:
        given: A text; other values are returned unchanged.
        values: Values by name.
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
"""Possible types of a parameter."""

Scalars = Annotated[tuple[Scalar, ...], Field(min_length=1)]

Text = Annotated[str, Field(min_length=1)]


def _resampling(given: Any) -> Any:
    if given is None or given == "users":
        return given
    try:
        length_s = parse_duration_s(given)
    except ValueError:
        length_s = 0.0
    if not length_s > 0:
        raise ValueError(f"it must be users, or a length above 0 such as 7d, not {given!r}")
    return length_s


class Source(Settings):
    """Source of jobs: a trace, several traces as replicates, or a generator.

    Args:
        trace: Path of the trace.
        traces: Paths of traces of one kind; they are replicates, with means and intervals over
            them.
        generate: Name of the generator.
        options: Options of the generator, or rules for reading the trace
            (`hpctwin.formats.SwfRules`).
        name: Name in tables; default the name of the first file or the generator.
        resample: Length of pieces of the trace. For each seed, as many pieces are drawn with
            replacement and joined: replicates of a workload that exists once. ``users`` draws
            users with all of their jobs instead.
    """

    trace: Text | None = None
    traces: tuple[Text, ...] = ()
    generate: Text | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)
    name: str = ""
    resample: Annotated[Literal["users"] | float | None, BeforeValidator(_resampling)] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.trace is not None) + bool(self.traces) + (self.generate is not None) != 1:
            raise ValueError("give one of trace: PATH, traces: [PATH, …] and generate: NAME")
        if self.generate is not None and self.resample is not None:
            raise ValueError(
                "resample works only with a trace; a generator draws other jobs itself"
            )
        return self

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.name or self.generate or Path(self.paths[0]).name

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the trace or traces; none for a generator."""
        return self.traces if self.trace is None else (self.trace,)


def _moment(given: Any) -> str:
    parse_moment(given)
    return str(given)


Moment = Annotated[str, BeforeValidator(_moment)]
"""A date, or a time such as ``30d``."""


class Span(Settings):
    """A part of a workload in time: the jobs submitted in it.

    Args:
        begin: Start of the part: a time since the trace's begin such as ``30d``, or a date.
        end: End of the part, excluded; same forms as the begin.
    """

    begin: Moment
    end: Moment

    @property
    def label(self) -> str:
        """Name in tables."""
        return f"{self.begin} to {self.end}"


class Values(Settings):
    """Values between two bounds, drawn at random.

    Args:
        low: Lower bound.
        high: Upper bound.
        log: Whether the logarithm of the values is uniform.
        whole: Whether the values are whole numbers.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if not self.low < self.high:
            raise ValueError(
                f"low is {self.low:g} and high is {self.high:g}; low must be less than high"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low:g}; it must be above 0 with log")
        return self


class Run(Settings):
    """Options of each simulation.

    Args:
        overrun: ``terminate`` ends a job at its walltime; ``continue`` does not.
        on_dependency_failure: What happens to a job whose afterok dependency failed.
        tau: Threshold of bounded slowdowns: shorter runtimes count as this.
        sharing: How jobs that communicate share hosts and links: ``simgrid`` or ``fair``; by
            default they do not.
    """

    overrun: Literal["terminate", "continue"] = "terminate"
    on_dependency_failure: Literal["cancel", "hold"] = "cancel"
    tau: Duration = Field(default=TAU_S, gt=0)
    sharing: Literal["simgrid", "fair"] | None = None

    def options(self) -> dict[str, Any]:
        """Return the options as arguments of `hpctwin.Simulation`."""
        return {"tau_s": self.tau, **self.model_dump(exclude={"tau"}, exclude_none=True)}


def source_of(given: Any) -> Any:
    """Return a trace for a path alone."""
    return {"trace": str(given)} if isinstance(given, str | Path) else given


_MOST_SEEDS = 1_000_000


def _seeds(given: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= _MOST_SEEDS:
            raise ValueError(
                f"it must be a number of seeds, 1 to {_MOST_SEEDS:,}, or a list of seeds, not {given}"
            )
        return tuple(range(given))
    return given


def _machine(given: Any) -> Any:
    if isinstance(given, int) and given < 1:
        raise ValueError(
            f"it must be 1 node or more, or the file or name of a cluster, not {given}"
        )
    return given


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Worlds(Settings):
    """Jobs and clusters.

    Args:
        workloads: Paths of traces, or sources with more details.
        clusters: Numbers of equal nodes, or cluster files; default the cluster in the trace.
        run: Options of each simulation.
    """

    workloads: tuple[Annotated[Source, BeforeValidator(source_of)], ...] = Field(min_length=1)
    clusters: tuple[Annotated[int | str, BeforeValidator(_machine)], ...] = ()
    run: Run = Run()


class SweepSettings(Worlds):
    """Simulations of a sweep: all combinations of the listed values.

    Args:
        policies: Texts such as ``wfp+easy``; ``{name}`` stands for a parameter.
        windows: Parts of each workload in time; default the whole.
        loads: Offered loads, reached by scaling the gaps between submissions; default unchanged.
        runtimes: Factors of runtimes and walltimes.
        widths: Factors of the jobs' nodes; results are rounded up. Jobs must have whole nodes.
        walltimes: Accuracy of the walltimes: ``recorded``, ``exact``, ``factor:F``,
            ``uniform:LOW:HIGH`` or ``lognormal:MEDIAN:SIGMA`` (factors of the runtimes),
            ``tsafrir`` or ``tsafrir:MAX`` (model of users' estimates), or ``FILE.py:FUNCTION``.
        shifts: Maximum random shifts of submissions, in both directions; default none.
        seeds: Number of seeds from 0, or a list: for generators, resampled traces, walltimes,
            shifts and random placement. All policies of a seed get the same jobs.
        parameters: Values by name, or bounds for drawn values. They replace ``{name}`` in policies,
            generator options and clusters.
        samples: Number of draws between the bounds, even in each parameter (Latin hypercube).
        draw: Number of combinations of workload and cluster to draw at random, each under all
            policies.
        sample_seed: Seed of both draws.
        metrics: Metrics in tables and charts; rows have all metrics of each simulation.
        baseline: Policy that others are compared with; default the first.
        replicates: Values that means and intervals are over; paired comparisons share them.
            ``replicate`` is the number of a trace in ``traces``.
    """

    policies: tuple[str, ...] = Field(min_length=1)
    windows: tuple[Span, ...] = ()
    loads: tuple[Positive, ...] = ()
    runtimes: tuple[Positive, ...] = (1.0,)
    widths: tuple[Positive, ...] = (1.0,)
    walltimes: tuple[str, ...] = ("recorded",)
    shifts: tuple[Annotated[Duration, Field(ge=0)], ...] = (0.0,)
    seeds: Annotated[tuple[int, ...], BeforeValidator(_seeds), Field(min_length=1)] = (0,)
    parameters: Mapping[str, Scalars | Values] = Field(default_factory=dict)
    samples: int | None = Field(default=None, ge=1)
    draw: int | None = Field(default=None, ge=1)
    sample_seed: int = 0
    metrics: tuple[str, ...] = Field(
        ("mean_wait_s", "p95_wait_s", "mean_bounded_slowdown", "utilization"), min_length=1
    )
    baseline: str | None = None
    replicates: tuple[Literal["seed", "window", "replicate"], ...] = ("seed", "window", "replicate")

    @field_validator(
        "seeds", "policies", "loads", "clusters", "runtimes", "widths", "walltimes", "shifts"
    )
    @classmethod
    def _distinct(cls, given: tuple[Any, ...]) -> tuple[Any, ...]:
        for one in given:
            if given.count(one) > 1:
                raise ValueError(f"{one!r} is listed twice; list it once")
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
                f"parameter {name!r} is not used; write {{{name}}} where its value is to "
                "be inserted"
            )
        drawn = [name for name, one in self.parameters.items() if isinstance(one, Values)]
        if bool(drawn) != (self.samples is not None):
            raise ValueError(
                f"{drawn[0]!r} is drawn between bounds; give the number of draws as 'samples'"
                if drawn
                else "samples: no parameter has bounds; add one, as in k: {low: 1, high: 8}"
            )
        if self.baseline is not None and self.baseline not in self.policies:
            raise ValueError(
                f"baseline {self.baseline!r} is not among the "
                f"policies.{near(self.baseline, self.policies)} Known: "
                f"{', '.join(self.policies)}"
            )
        if self.baseline is not None and names_in(self.baseline):
            raise ValueError(
                f"baseline {self.baseline!r} has parameters and is therefore several "
                "policies; give one policy"
            )
        labels = [source.label for source in self.workloads]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(
                    f"two workloads have the name {label!r}; give each its own 'name', or list them in "
                    "'traces' as replicates of one row"
                )
        return self


def read_sweep(path: str | os.PathLike[str]) -> SweepSettings:
    """Read ``sweep.yaml``; its paths are relative to its folder.

    Raises:
        ConfigError: The file cannot be read or is not valid; one line per error.
    """
    settings = SweepSettings.checked(read_yaml(Path(path), "workloads"), str(path))
    return beside(settings, Path(path).parent)


def beside(settings: S, folder: Path) -> S:
    """Return settings with paths relative to a folder."""

    def within(text: str) -> str:
        return text if Path(text).is_absolute() else str(folder / text)

    workloads = tuple(
        one.model_copy(
            update={
                "trace": None if one.trace is None else within(one.trace),
                "traces": tuple(map(within, one.traces)),
            }
        )
        for one in settings.workloads
    )
    clusters = tuple(
        within(one) if isinstance(one, str) and (folder / one).is_file() else one
        for one in settings.clusters
    )
    update: dict[str, Any] = {"workloads": workloads, "clusters": clusters}
    if isinstance(settings, SweepSettings):
        update["walltimes"] = tuple(
            within(one) if (folder / one.partition(":")[0]).is_file() else one
            for one in settings.walltimes
        )
    return settings.model_copy(update=update)
