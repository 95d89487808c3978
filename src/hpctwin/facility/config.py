"""Configuration of a facility: YAML, validated."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hpctwin.energy import Series
from hpctwin.errors import HpctwinError
from hpctwin.formats.clusters import read_cluster
from hpctwin.model import Cluster, parse_duration_s, read_yaml
from hpctwin.model.cluster.node_group import MOST_NODES
from hpctwin.model.settings import Duration, Settings
from hpctwin.policies import parse_policy

__all__ = ["Facility", "FacilityCluster", "Kind", "Label", "Origin", "Staging"]

DAY_S = 86_400.0
Label = Literal["user", "account", "partition", "qos"]
Labels = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: tuple(map(str, value if isinstance(value, list) else [value]))),
]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Amount | tuple[Amount, ...] | str | None
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Kind(Settings):
    """Kind of jobs that can run on the same clusters, equally fast.

    A job belongs to the first kind that it matches.

    Args:
        name: Name of the kind.
        user, account, partition, qos: Label of such jobs, or a list of labels; by default any.
        gpus: Whether such jobs request GPUs; by default both match.
    """

    name: str
    user: Labels | None = None
    account: Labels | None = None
    partition: Labels | None = None
    qos: Labels | None = None
    gpus: bool | None = None


class Origin(Settings):
    """Cluster to which each job was really submitted, for `siloed` and for staging.

    Args:
        by: Label of a job that shows its origin.
        clusters: Name of the cluster for each label; by default the labels are cluster names.
    """

    by: Label = "user"
    clusters: dict[str, str] = Field(default_factory=dict)


class Staging(Settings):
    """Time until a job's data is at the cluster that the job goes to.

    Args:
        source: Cluster that the job comes from.
        target: Cluster that the job goes to.
        time: Time of the transfer, in seconds or as text such as ``"10m"``.
    """

    source: str
    target: str
    time: Duration = Field(ge=0)


class FacilityCluster(Settings):
    """One cluster of a facility.

    Args:
        name: Name of the cluster.
        nodes: Number of equal nodes, instead of ``machine``.
        machine: The whole cluster: a file, relative to the facility's, its content, or the name of
            a cluster that comes with the package.
        policy: Policy of its scheduler, such as ``fcfs+easy``.
        factor: Runtimes and walltimes here, relative to those of the trace: a number, or one per
            kind of job (1 for omitted kinds). 4 is four times slower.
        kinds: Kinds of jobs that may run here; by default all.
        partition: Partition of all jobs; by default each job's own.
        max_queued: Maximum number of pending jobs.
        max_queued_per_user: Maximum number of pending jobs of one user.
        power_w: Power of a node in use, in W; by default that of the cluster's description.
        node_hour_price: Price of a node hour.
        price: Price of electricity per kWh: a number, 24 numbers for the hours of the day (UTC), or
            a CSV file of prices over time. The file is relative to the facility's. By default the
            price comes from the cluster's description.
        carbon: Carbon intensity of electricity, in g/kWh, in the same forms.
    """

    name: str = Field(min_length=1)
    nodes: int | None = Field(default=None, ge=1, le=MOST_NODES)
    machine: Cluster | None = None
    policy: str = "fcfs+easy"
    factor: Factor | dict[str, Factor] = 1.0
    kinds: tuple[str, ...] | None = None
    partition: str | None = None
    max_queued: int | None = Field(default=None, ge=1)
    max_queued_per_user: int | None = Field(default=None, ge=1)
    power_w: Amount = 0.0
    node_hour_price: Amount = 0.0
    price: Rate = None
    carbon: Rate = None

    @field_validator("policy")
    @classmethod
    def _policy_is_known(cls, value: str) -> str:
        try:
            parse_policy(value)
        except HpctwinError as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("machine", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return read_cluster(value)
        except HpctwinError as error:
            raise ValueError(str(error)) from error

    @field_validator("price", "carbon")
    @classmethod
    def _by_hour(cls, value: Rate) -> Rate:
        if isinstance(value, tuple) and len(value) != 24:
            raise ValueError(f"found {len(value)} values; give one, or one per hour (24)")
        return value

    @model_validator(mode="after")
    def _one_machine(self) -> Self:
        if (self.nodes is None) == (self.machine is None):
            raise ValueError(f"cluster {self.name!r}: give either nodes or machine, not both")
        for name in ("price", "carbon"):
            if getattr(self, name) is not None and getattr(self.machine, name, None) is not None:
                raise ValueError(
                    f"cluster {self.name!r}: its cluster file already defines {name!r}; remove "
                    "it here"
                )
        return self

    @property
    def cluster(self) -> Cluster:
        """The cluster's description, under this name."""
        if self.machine is None:
            return Cluster.uniform(self.nodes or 1, name=self.name)
        return self.machine.model_copy(update={"name": self.name})

    @property
    def node_w(self) -> float:
        """Power of a node in use, in W: the mean over all nodes."""
        if self.power_w or self.machine is None or not self.machine.has_power:
            return self.power_w
        groups = self.machine.nodes
        watts = sum(group.count * group.initial.power_w for group in groups)
        return watts / self.machine.node_count

    def series(self, name: Literal["price", "carbon"], start_epoch_s: float | None) -> Series:
        """Return the price of electricity, or its carbon intensity, from time zero on.

        Args:
            name: Which of the two.
            start_epoch_s: Unix time of the workload's time zero; None if unknown.
        """
        rate: Rate = getattr(self, name)
        own = getattr(self.machine, name, None) if rate is None else rate
        return _series(own, name, start_epoch_s)

    def factor_of(self, kind: str) -> float:
        """Return the factor of runtimes and walltimes for a kind of job."""
        if isinstance(self.factor, dict):
            return self.factor.get(kind, 1.0)
        return self.factor


@lru_cache(maxsize=64)
def _series(rate: Rate, what: Literal["price", "carbon"], start_epoch_s: float | None) -> Series:
    if isinstance(rate, str):
        return Series.read(rate, what=what).aligned(start_epoch_s)[0]
    if not isinstance(rate, tuple):
        return Series.hourly([rate or 0.0], "")
    from_midnight = replace(Series.hourly(rate, ""), start_epoch_s=0.0)
    return from_midnight.aligned((start_epoch_s or 0.0) % DAY_S)[0]


class Facility(Settings):
    """Several clusters to which jobs can go.

    Args:
        name: Name of the facility.
        kinds: Kinds of jobs; a job that matches none is of kind ``any``.
        origin: Cluster to which each job was really submitted; by default unknown.
        staging: Time until a job's data is at another cluster: one for all pairs, or a list of
            pairs (0 for omitted ones). Without an origin, a job's data is already where the job is
            placed, and only a later move takes this time.
        clusters: The clusters; their order breaks ties.
    """

    name: str = "facility"
    kinds: tuple[Kind, ...] = ()
    origin: Origin | None = None
    staging: Duration | tuple[Staging, ...] = 0.0
    clusters: tuple[FacilityCluster, ...] = Field(min_length=1)

    @field_validator("staging", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, (list, tuple)) else parse_duration_s(value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kinds = [kind.name for kind in self.kinds] + ["any"]
        names = self.names
        for what, given in (("kind", kinds), ("cluster", names)):
            for name in given:
                if given.count(name) > 1:
                    raise ValueError(f"{what} {name!r} is listed twice; list it once")
        for cluster in self.clusters:
            used = list(cluster.factor) if isinstance(cluster.factor, dict) else []
            for kind in [*used, *(cluster.kinds or ())]:
                if kind not in kinds:
                    raise ValueError(
                        f"cluster {cluster.name!r}: kind {kind!r} does not exist; known: "
                        f"{', '.join(kinds)}"
                    )
        targets = [] if self.origin is None else list(self.origin.clusters.values())
        if not isinstance(self.staging, float):
            targets += [end for way in self.staging for end in (way.source, way.target)]
        for name in targets:
            if name not in names:
                raise ValueError(f"cluster {name!r} does not exist; known: {', '.join(names)}")
        return self

    @property
    def names(self) -> list[str]:
        """Names of the clusters."""
        return [cluster.name for cluster in self.clusters]

    def staging_s(self, source: str, target: str) -> float:
        """Return the time until a job's data is at another cluster, in seconds.

        Args:
            source: Cluster that the job comes from.
            target: Cluster that the job goes to.
        """
        if source == target:
            return 0.0
        if isinstance(self.staging, float):
            return self.staging
        for way in self.staging:
            if (way.source, way.target) == (source, target):
                return way.time
        return 0.0

    @classmethod
    def from_yaml(cls, path: str | Path) -> Facility:
        """Read a YAML file, and the cluster files that it names.

        Raises:
            ConfigError: A file cannot be read or is not valid; the message names the field.
        """
        path = Path(path)
        content = read_yaml(path, "clusters")
        clusters = content.get("clusters")
        for cluster in clusters if isinstance(clusters, list) else []:
            if isinstance(cluster, dict) and isinstance(cluster.get("machine"), str):
                beside = path.parent / cluster["machine"]
                named = not beside.suffix and not beside.exists()
                cluster["machine"] = read_cluster(cluster["machine"] if named else beside)
            for name in ("price", "carbon"):
                if isinstance(cluster, dict) and isinstance(cluster.get(name), str):
                    cluster[name] = str(path.parent / cluster[name])
        return cls.checked(content, str(path))
