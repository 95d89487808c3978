"""The facility: what is written in YAML, validated."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hpctwin.energy import Series
from hpctwin.errors import HpctwinError
from hpctwin.formats.clusters.files import read_cluster
from hpctwin.model import Cluster, parse_duration_s, read_yaml
from hpctwin.model.cluster.node_group import MOST_NODES
from hpctwin.model.input.settings import Duration, Settings
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
    """Jobs that are alike in where they can run and how fast; a job is of the first kind that it fits.

    Args:
        name: the name.
        user, account, partition, qos: the labels that such jobs have, one or several; any if left out.
        gpus: whether such jobs ask for GPUs; either if left out.
    """

    name: str
    user: Labels | None = None
    account: Labels | None = None
    partition: Labels | None = None
    qos: Labels | None = None
    gpus: bool | None = None


class Origin(Settings):
    """Where jobs were submitted in reality, for `siloed` and for what staging costs.

    Args:
        by: the label that tells it.
        clusters: cluster by label; where left out, labels are the clusters' names.
    """

    by: Label = "user"
    clusters: dict[str, str] = Field(default_factory=dict)


class Staging(Settings):
    """How long it takes until a job's data is where the job goes.

    Args:
        source: cluster where the job came from.
        target: cluster that it goes to.
        time: seconds, or text such as ``"10m"``.
    """

    source: str
    target: str
    time: Duration = Field(ge=0)


class FacilityCluster(Settings):
    """One cluster of a facility.

    Args:
        name: the name.
        nodes: equal nodes; or
        machine: the whole cluster: a file, relative to the facility's, its content, or the name of a machine
            that comes with the package.
        policy: what its scheduler does, such as ``fcfs+easy``.
        factor: runtimes and walltimes here, relative to those of the trace: a number, or one by kind of
            job (1 for kinds not named). 4 is four times slower.
        kinds: kinds of jobs that may run here; all if left out.
        partition: all jobs go into this partition; those that jobs name if left out.
        max_queued: jobs that may wait here at once.
        max_queued_per_user: of one user.
        power_w: what a node in use draws, W; as the machine says if left out.
        node_hour_price: price of a node hour.
        price: of electricity per kWh: a number, 24 by hour of the day (UTC), or a CSV file of prices over
            time, relative to the facility's; as the machine says if left out.
        carbon: carbon intensity of electricity, g/kWh: the same.
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
            raise ValueError(f"{len(value)} values; give one, or one for each of the 24 hours")
        return value

    @model_validator(mode="after")
    def _one_machine(self) -> Self:
        if (self.nodes is None) == (self.machine is None):
            raise ValueError(f"cluster {self.name!r}: give either nodes or machine")
        for name in ("price", "carbon"):
            if getattr(self, name) is not None and getattr(self.machine, name, None) is not None:
                raise ValueError(f"cluster {self.name!r}: its machine says {name!r} already")
        return self

    @property
    def cluster(self) -> Cluster:
        """The machine, under this name."""
        if self.machine is None:
            return Cluster.uniform(self.nodes or 1, name=self.name)
        return self.machine.model_copy(update={"name": self.name})

    @property
    def node_w(self) -> float:
        """What a node in use draws, W: the mean of all."""
        if self.power_w or self.machine is None or not self.machine.has_power:
            return self.power_w
        groups = self.machine.nodes
        watts = sum(group.count * group.initial.power_w for group in groups)
        return watts / self.machine.node_count

    def series(self, name: Literal["price", "carbon"], start_epoch_s: float | None) -> Series:
        """The price of electricity, or its carbon intensity, from a workload's time zero on.

        Args:
            name: which.
            start_epoch_s: Unix time of time zero; None if not known.
        """
        rate: Rate = getattr(self, name)
        return _series(getattr(self.machine, name, None) if rate is None else rate, start_epoch_s)

    def factor_of(self, kind: str) -> float:
        """The factor for a kind of job."""
        if isinstance(self.factor, dict):
            return self.factor.get(kind, 1.0)
        return self.factor


@lru_cache(maxsize=64)
def _series(rate: Rate, start_epoch_s: float | None) -> Series:
    if isinstance(rate, str):
        return Series.read(rate).aligned(start_epoch_s)[0]
    if not isinstance(rate, tuple):
        return Series.hourly([rate or 0.0], "")
    from_midnight = replace(Series.hourly(rate, ""), start_epoch_s=0.0)
    return from_midnight.aligned((start_epoch_s or 0.0) % DAY_S)[0]


class Facility(Settings):
    """Several clusters to which jobs can go.

    Args:
        name: the name.
        kinds: kinds of jobs; jobs that fit none are of kind ``any``.
        origin: where jobs were submitted in reality; not known if left out.
        staging: time until a job's data is at another cluster: one for all ways, or a list of ways (0
            for those not named). Without an origin, jobs bring their data where they are placed, and only
            moving them later takes this time.
        clusters: the clusters; their order decides where nothing else does.
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
                    raise ValueError(f"{what} {name!r} is there twice")
        for cluster in self.clusters:
            used = list(cluster.factor) if isinstance(cluster.factor, dict) else []
            for kind in [*used, *(cluster.kinds or ())]:
                if kind not in kinds:
                    raise ValueError(
                        f"cluster {cluster.name!r}: kind {kind!r} is not there; known: {', '.join(kinds)}"
                    )
        targets = [] if self.origin is None else list(self.origin.clusters.values())
        if not isinstance(self.staging, float):
            targets += [end for way in self.staging for end in (way.source, way.target)]
        for name in targets:
            if name not in names:
                raise ValueError(f"cluster {name!r} is not there; known: {', '.join(names)}")
        return self

    @property
    def names(self) -> list[str]:
        """The clusters' names."""
        return [cluster.name for cluster in self.clusters]

    def staging_s(self, source: str, target: str) -> float:
        """Seconds until the data of a job from one cluster is at another.

        Args:
            source: the cluster that the job comes from.
            target: the cluster that it goes to.
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
        """Read a YAML file; machines named in it are read too.

        Raises:
            ConfigError: a file cannot be read or is not valid; the message names the field.
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
