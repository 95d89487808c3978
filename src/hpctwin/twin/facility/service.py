"""A live facility: its configuration in YAML, its construction, and a demonstration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctwin.errors import HpctwinError
from hpctwin.facility import Facility, Strategy, parse_strategy
from hpctwin.model.settings import Duration, Settings
from hpctwin.policies import parse_policy
from hpctwin.rms.gate import JobRequest, Mark
from hpctwin.rms.managers import AnyManager
from hpctwin.rms.polling.poller import PolledManager
from hpctwin.twin.emulated.process import PATIENCE_S, emulated_process
from hpctwin.twin.facility.placer import Placer, check_strategy
from hpctwin.twin.facility.queue import Queue, QueuedJob
from hpctwin.twin.facility.site import Site
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.forecast.workload_model import Predictor
from hpctwin.twin.service.service import opened
from hpctwin.twin.settings.config import (
    BusSettings,
    CoreSettings,
    JournalSettings,
    TwinConfig,
    check_named_code,
    kinds_of,
    named_beside,
    paths_beside,
    read_trusted_yaml,
)

__all__ = [
    "CLUSTERS",
    "LiveFacility",
    "SiteSettings",
    "demo_facility",
    "demo_requests",
    "open_placer",
]


class SiteSettings(Settings):
    """Access to one cluster.

    Args:
        manager: Resource manager, as in the twin's configuration.
        bus: Source of the cluster's events.
        options: Further options of the submit command, such as ``--chdir=/scratch``.
        gap_timeout: Time to wait for a missing event before a snapshot is requested.
        resync_interval: Time between two comparisons of the mirror with a snapshot, which is adopted
            if they differ.
        journal: Journal of the cluster's inputs; by default next to the queue.
        retention: Age at which records are deleted.
    """

    manager: AnyManager
    bus: BusSettings = BusSettings()
    options: tuple[str, ...] = ()
    gap_timeout: Duration = Field(default=1.0, gt=0)
    resync_interval: Duration = Field(default=60.0, gt=0)
    journal: Path | None = None
    retention: Duration = Field(default=7 * 86_400.0, gt=0)

    def followed(self, policy: str, predictor: Predictor, journal: Path) -> TwinConfig:
        """Return the configuration of a twin that only observes this cluster.

        Args:
            policy: Assumed policy of the cluster's scheduler.
            predictor: Predictor of the jobs' runtimes.
            journal: Path of the journal, if the field ``journal`` is omitted.
        """
        return TwinConfig(
            manager=self.manager,
            bus=self.bus,
            core=CoreSettings(pool=(policy,), site_policy=policy, predictor=predictor),
            journal=JournalSettings(path=self.journal or journal, retention=self.retention),
            gap_timeout=self.gap_timeout,
            resync_interval=self.resync_interval,
        )


class LiveFacility(Settings):
    """Configuration of a live facility.

    Args:
        facility: The clusters: path of a file, relative to this one, or its content.
        sites: Access to each cluster, by the cluster's name.
        queue: File of the jobs to place.
        strategy: Strategy that chooses a cluster for each job; see
            `hpctwin.facility.parse_strategy`.
        knowledge: Expected runtime of a job: its ``walltime``, or ``recent``, the mean of its
            user's last two jobs on that cluster.
        tie_break: Choice among equally good clusters: the one with the least work ahead, a random one,
            or the first.
        seed: Seed of random choices.
        every: Pause between two polls of the queue.
    """

    facility: Facility
    sites: dict[str, SiteSettings]
    queue: Path = Path("hpctwin-facility.sqlite")
    strategy: str = "sgs-t"
    knowledge: Predictor = "walltime"
    tie_break: Literal["least-loaded", "random", "first"] = "least-loaded"
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
                raise ValueError(f"sites: {name!r} is not a cluster; known: {', '.join(names)}")
        try:
            check_strategy(self.placing)
        except HpctwinError as error:
            raise ValueError(f"strategy: {error}") from error
        return self

    @property
    def placing(self) -> Strategy:
        """The strategy with its rule for ties."""
        return parse_strategy(self.strategy, tie_break=self.tie_break)

    @classmethod
    def from_yaml(cls, path: str | Path) -> LiveFacility:
        """Read a YAML file; paths in it are relative to it.

        Raises:
            ConfigError: The file cannot be read or is not valid; the message names the field. Or
                another user may write it, or Python code that it names; see
                `hpctwin.model.trusted`.
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
    """Reject policies whose Python code other users may write.

    Args:
        facility: Plain values of a facility, not validated yet.
    """
    clusters = facility.get("clusters") if isinstance(facility, dict) else None
    for cluster in clusters if isinstance(clusters, list) else ():
        if isinstance(cluster, dict) and isinstance(cluster.get("policy"), str):
            check_named_code(cluster["policy"])


@contextmanager
def open_placer(
    config: LiveFacility, *, watch: Callable[[QueuedJob], None] = lambda entry: None
) -> Iterator[Placer]:
    """Open a placer with its connections, which close with the context.

    Args:
        config: Configuration of the facility.
        watch: Function called with each job whose stage has changed.

    Raises:
        HpctwinError: A resource manager, a bus, a journal or the queue is not usable, or another
            placer works on the queue.
    """
    with ExitStack() as stack:
        queue = Queue(config.queue)
        stack.callback(queue.close)
        queue.lock()
        sites = []
        for cluster in config.facility.clusters:
            settings = config.sites[cluster.name]
            beside = config.queue.with_name(f"{config.queue.stem}-{cluster.name}.journal.sqlite")
            followed = settings.followed(cluster.policy, config.knowledge, beside)
            manager, mirrored, bus, journal = opened(followed, stack)
            # A polled cluster is polled soon after a submission, so that the mirror shows the job.
            soon = mirrored.poller.soon if isinstance(mirrored, PolledManager) else lambda: None
            gate = settings.manager.gate(manager, Mark(queue.secret), settings.options, soon)
            sites.append(
                Site(
                    cluster.name,
                    Follower(followed, mirrored, bus, journal),
                    gate,
                    parse_policy(cluster.policy),
                    news_within_s=settings.manager.news_within_s,
                )
            )
        yield Placer(config.facility, sites, queue, config.placing, seed=config.seed, watch=watch)


CLUSTERS: dict[str, dict[str, Any]] = {
    "north": {"nodes": 32},
    "south": {"nodes": 48, "factor": 1.5},
}
"""Settings of each cluster by its name, as in YAML; both also have local jobs."""


@contextmanager
def demo_facility(
    folder: Path, *, speed: float = 600.0, seed: int = 0, strategy: str = "sgs-t"
) -> Iterator[LiveFacility]:
    """Run two emulated clusters as processes, and yield the facility's configuration.

    The processes end with the context.

    Args:
        folder: Folder of the sockets and the queue.
        speed: Seconds of the clusters' clocks per second.
        seed: Seed of the clusters' local jobs.
        strategy: Strategy that chooses a cluster for each job.
    """
    addresses = {name: folder / f"{name}.sock" for name in CLUSTERS}
    with ExitStack() as stack:
        for number, (name, about) in enumerate(CLUSTERS.items()):
            process = emulated_process(
                addresses[name],
                "--name", name, "--nodes", str(about["nodes"]), "--speed", f"{speed:g}",
                "--workload", "four-phase", "--seed", str(2 * seed + number), "--history",
            )  # fmt: skip
            stack.enter_context(process)
        yield LiveFacility.model_validate(
            {
                "facility": {
                    "name": "demo",
                    "clusters": [{"name": name, **about} for name, about in CLUSTERS.items()],
                },
                "sites": {
                    name: {
                        "manager": {
                            "kind": "emulated",
                            "address": str(address),
                            "timeout": PATIENCE_S,
                        }
                    }
                    for name, address in addresses.items()
                },
                "queue": str(folder / "queue.sqlite"),
                "strategy": strategy,
                "every": 0.1,
            }
        )


def demo_requests(count: int, seed: int = 0) -> list[JobRequest]:
    """Return random jobs of 1 to 24 nodes and 5 minutes to 2 hours."""
    rng = np.random.default_rng(seed)
    return [
        JobRequest(
            key=f"job-{number + 1}",
            nodes=int(rng.integers(1, 25)),
            walltime_s=float(60 * rng.integers(5, 121)),
            user=f"user{rng.integers(1, 6)}",
        )
        for number in range(count)
    ]
