"""The live facility's configuration: one YAML file, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from hpctwin.errors import HpctwinError
from hpctwin.facility import Facility, Strategy, parse_strategy
from hpctwin.model.input.settings import Duration, Settings
from hpctwin.rms.managers import AnyManager
from hpctwin.twin.facility.placer import check_strategy
from hpctwin.twin.forecast.workload_model import Predictor
from hpctwin.twin.settings.config import (
    BusSettings,
    CoreSettings,
    JournalSettings,
    TwinConfig,
    paths_beside,
    read_trusted_yaml,
)
from hpctwin.twin.settings.named_code import check_named_code, kinds_of, named_beside

__all__ = ["LiveFacility", "SiteSettings"]


class SiteSettings(Settings):
    """How a cluster is reached.

    Args:
        manager: its resource manager, as in the twin's configuration.
        bus: where its events come from.
        options: further options of the submitting command, such as ``--chdir=/scratch``.
        gap_patience: a missing event is waited for so long before a snapshot is asked for.
        resync_every: a snapshot is compared with the mirror so often, and adopted where they differ.
        journal: where all that comes from it is recorded; beside the queue if left out.
        keep: records older than this are deleted.
    """

    manager: AnyManager
    bus: BusSettings = BusSettings()
    options: tuple[str, ...] = ()
    gap_patience: Duration = Field(default=1.0, gt=0)
    resync_every: Duration = Field(default=60.0, gt=0)
    journal: Path | None = None
    keep: Duration = Field(default=7 * 86_400.0, gt=0)

    def followed(self, policy: str, predictor: Predictor, journal: Path) -> TwinConfig:
        """How the cluster is followed: as by a twin that only observes.

        Args:
            policy: what the cluster's own scheduler is taken to do.
            predictor: how long jobs are expected to run.
            journal: where it is recorded if ``journal`` is left out.
        """
        return TwinConfig(
            manager=self.manager,
            bus=self.bus,
            core=CoreSettings(pool=(policy,), own_policy=policy, predictor=predictor),
            journal=JournalSettings(path=self.journal or journal, keep=self.keep),
            gap_patience=self.gap_patience,
            resync_every=self.resync_every,
        )


class LiveFacility(Settings):
    """All of it.

    Args:
        facility: the clusters: a file, relative to this one, or its content.
        sites: how each is reached, by its name.
        queue: file of jobs to be placed.
        strategy: where they go; see `hpctwin.facility.parse_strategy`.
        knowledge: how long jobs are expected to run: ``walltime``, or ``recent``: as the mean of the
            last two of their user at that cluster.
        ties: among equally good clusters: the one with the least work ahead, one drawn, or the first.
        seed: of what is drawn.
        every: pause between two looks at the queue.
    """

    facility: Facility
    sites: dict[str, SiteSettings]
    queue: Path = Path("hpctwin-facility.sqlite")
    strategy: str = "sgs-t"
    knowledge: Predictor = "walltime"
    ties: Literal["least-loaded", "random", "first"] = "least-loaded"
    seed: int = Field(default=0, ge=0)
    every: Duration = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = self.facility.names
        for name in names:
            if name not in self.sites:
                raise ValueError(f"sites: cluster {name!r} is missing")
        for name in self.sites:
            if name not in names:
                raise ValueError(f"sites: {name!r} is no cluster; known: {', '.join(names)}")
        try:
            check_strategy(self.placing)
        except HpctwinError as error:
            raise ValueError(f"strategy: {error}") from error
        return self

    @property
    def placing(self) -> Strategy:
        """The strategy, as it is to be asked."""
        return parse_strategy(self.strategy, ties=self.ties)

    @classmethod
    def from_yaml(cls, path: str | Path) -> LiveFacility:
        """Read a YAML file; paths in it are relative to it.

        Raises:
            ConfigError: it cannot be read or is not valid; the message names the field. Or somebody
                else may write it, or the Python that it names: see `hpctwin.model.files.trusted`.
        """
        path = Path(path)
        content = read_trusted_yaml(path, "sites")
        if isinstance(content.get("facility"), str):
            described = path.parent / content["facility"]
            _check_policies(read_trusted_yaml(described, "clusters"))
            content["facility"] = Facility.from_yaml(described)
        _check_policies(content.get("facility"))
        sites = content.get("sites")
        for where, key in kinds_of(sites.values() if isinstance(sites, dict) else ()):
            where[key] = named_beside(where[key], path.parent)
            check_named_code(where[key])
        config = cls.checked(content, str(path))
        beside = {name: paths_beside(site, path.parent) for name, site in config.sites.items()}
        return config.model_copy(update={"queue": path.parent / config.queue, "sites": beside})


def _check_policies(facility: object) -> None:
    """Refuse policies of a facility, not validated yet, whose Python others may write."""
    clusters = facility.get("clusters") if isinstance(facility, dict) else None
    for cluster in clusters if isinstance(clusters, list) else ():
        if isinstance(cluster, dict) and isinstance(cluster.get("policy"), str):
            check_named_code(cluster["policy"])
