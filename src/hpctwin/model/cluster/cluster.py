"""The cluster: a site's YAML, validated."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from hpctwin.errors import ConfigError, near
from hpctwin.guesses import GuessedType
from hpctwin.model.arguments import check_arguments
from hpctwin.model.cluster.limits import Account, Limit, check_accounts, check_limits
from hpctwin.model.cluster.network import Network, Storage, check_network
from hpctwin.model.cluster.node_group import MOST_NODES, NodeGroup
from hpctwin.model.cluster.power import Cooling, PowerCap
from hpctwin.model.cluster.preemption import Preemption, check_preemption
from hpctwin.model.cluster.switches import Switch, check_switches
from hpctwin.model.requests.resources import GPU_TYPE
from hpctwin.model.settings import MOST, Duration, Settings, Time, read_yaml
from hpctwin.model.text import Moment, ReadNotes, Shown, moment_text, parse_nodes, since

if TYPE_CHECKING:
    from hpctwin.network.blocks import Blocks
    from hpctwin.network.platform import Platform

Cap = Annotated[
    PowerCap,
    BeforeValidator(
        lambda value: PowerCap.parse(value) if isinstance(value, str) else value,
        json_schema_input_type=str | PowerCap,
    ),
]


NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Partition(Settings):
    """Node groups under common limits: a partition in Slurm, a queue in PBS.

    Args:
        name: Name that jobs give.
        groups: Names of node groups; by default all.
        min_nodes, max_nodes: Smallest and largest number of nodes of a job.
        max_walltime: Longest walltime, seconds or text such as ``"24h"``.
        max_jobs_per_user: Largest number of running jobs of a user.
        priority: Weight for orderings; larger is sooner.
        default: Whether jobs without a partition go here.
        qos: QOS whose limits also apply to its jobs.
        backfill_depth: For the policy ``pbs``: number of its own jobs that get a reservation if
            they do not fit.
    """

    name: str
    groups: tuple[str, ...] | None = None
    min_nodes: int = Field(default=1, ge=1)
    max_nodes: int | None = Field(default=None, ge=1)
    max_walltime: Duration | None = Field(default=None, gt=0)
    max_jobs_per_user: int | None = Field(default=None, ge=1, le=MOST)
    priority: float = 0
    default: bool = False
    qos: str | None = None
    backfill_depth: int | None = Field(default=None, ge=0)


class Reservation(Settings):
    """Maintenance: nodes that are away from ``start`` to ``end``, known in advance.

    Args:
        name: Name of the reservation.
        start: Seconds from time zero, text such as ``"30d"``, or a date (UTC if it names no zone)
            for workloads that have dates.
        end: End of the maintenance, in the same form.
        groups: Whole node groups.
        nodes: Node numbers such as ``"0-127,512"``. With neither groups nor nodes, all nodes.
    """

    name: str = "maintenance"
    start: Time
    end: Time
    groups: tuple[str, ...] | None = None
    nodes: str | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if _is_after(self.start, self.end):
            raise ValueError(
                f"reservation {self.name!r} ends at {moment_text(self.end)}, not after start"
            )
        return self

    def at(self, start_epoch_s: float | None, workload: str) -> Reservation | None:
        """Return it in seconds from a workload's time zero; None if it ends before that."""
        start, end = (since(one, start_epoch_s, workload) for one in (self.start, self.end))
        if (start, end) == (self.start, self.end):
            return self
        if end <= 0 < end - start:
            return None
        return Reservation(
            name=self.name, start=max(start, 0.0), end=end, groups=self.groups, nodes=self.nodes
        )


def _is_after(one: Moment, other: Moment) -> bool:
    """Return whether a time is at another or later; False if not comparable yet."""
    return type(one) is type(other) and one >= other  # type: ignore[operator]


class Outage(Settings):
    """One node failure, not known in advance.

    The node is away from ``start`` for ``duration``.

    Args:
        node: Node number.
        start: Seconds from time zero, or a date, as for a reservation.
        duration: Duration, in seconds.
    """

    node: int = Field(ge=0)
    start: Time
    duration: Duration = Field(gt=0)

    def at(self, start_epoch_s: float | None, workload: str) -> Outage | None:
        """Return it in seconds from a workload's time zero; None if it ends before that."""
        start = since(self.start, start_epoch_s, workload)
        if start == self.start:
            return self
        if start + self.duration <= 0:
            return None
        return Outage(
            node=self.node, start=max(start, 0.0), duration=self.duration + min(start, 0.0)
        )


class Failures(Settings):
    """Node failures, recorded or random.

    Args:
        outages: Recorded failures.
        mtbf: Mean time between failures of one node while it is up (exponential).
        mttr: Mean time to repair (exponential).
        seed: Seed of the random times.
        on_failure: What happens to the job on the node: back into the queue, or ended.
    """

    outages: tuple[Outage, ...] = ()
    mtbf: Duration | None = Field(default=None, gt=0)
    mttr: Duration | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    on_failure: Literal["requeue", "fail"] = "requeue"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.mtbf is None) != (self.mttr is None):
            raise ValueError("mtbf and mttr are only valid together: give both or neither")
        return self


class FairShare(Settings):
    """How past use counts in fair-share orderings.

    Args:
        kind: ``classic``, 2 to the power of minus use over share; or ``tree``, users ranked by the
            shares of `Cluster.accounts`.
        by: Label by which use is added up; in a tree, it is that of each user in an account.
        half_life: Time after which use counts half.
        shares: Promised shares by label, in any unit; by default 1. A tree has the shares of
            accounts.
        every: Interval at which a tree is ranked, and at which limits on decaying use are checked.
        resets: Times or dates at which all use is forgotten, in order.
        factors: Factor by QOS for the use of its jobs, in fair shares and under limits (to a
            thousandth); by default 1.
        safe_factors: QOS whose factor also applies to the walltime of a job that is about to start.
    """

    kind: Literal["classic", "tree"] = "classic"
    by: Literal["user", "account"] = "user"
    half_life: Duration = Field(default=7 * 86400, gt=0)
    shares: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    every: Duration = Field(default=300, ge=0.001)
    resets: tuple[Time, ...] = ()
    factors: dict[str, Annotated[float, Field(ge=0, le=1e6)]] = Field(default_factory=dict)
    safe_factors: tuple[str, ...] = ()

    def factor_of(self, qos: str | None) -> float:
        """Return the factor for the use of a QOS's jobs."""
        return round(self.factors.get(qos, 1.0), 3) if qos else 1.0

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        for name in self.safe_factors:
            if name not in self.factors:
                raise ValueError(
                    f"safe_factors: QOS {name!r} has no factor under 'factors'.{near(name, self.factors)}"
                )
        if any(_is_after(sooner, later) for sooner, later in pairwise(self.resets)):
            raise ValueError(
                "resets: each time must be at least a millisecond later than the one before"
            )
        if self.kind == "tree" and self.shares:
            raise ValueError("kind: tree reads shares from 'accounts:'; move them there")
        if self.kind == "tree" and self.by == "account":
            raise ValueError(
                "kind: tree ranks users account by account; remove 'by', or set kind: classic"
            )
        return self


class _ClusterType(GuessedType, type(Settings)):  # type: ignore[misc]
    """Type of `Cluster`."""


class Cluster(Shown, Settings, metaclass=_ClusterType):  # type: ignore[metaclass]
    """A cluster with one queue.

    Args:
        name: Name of the cluster.
        nodes: Node groups; nodes are numbered from 0 through the groups in order.
        partitions: Partitions; if empty, one partition of all nodes without limits, and the
            partition that a job names is ignored.
        resources: Cluster-wide amounts that jobs share: licenses, I/O bandwidth, burst buffer.
        reservations: Maintenance.
        failures: Node failures.
        cleanup: Time after a job's end during which its nodes stay allocated: epilogs, health
            checks.
        qos: Weight of each quality of service for orderings; by default 0.
        fairshare: How past use counts.
        accounts: Tree of accounts, with shares.
        limits: Limits on what jobs of a user, account, QOS or partition may have at once.
        preemption: Which jobs preempt which others.
        cap: Cap on the total power draw of all nodes: text such as ``20kW,22:00-06:00=30kW``, or
            its fields.
        price: Price of electricity per kWh: a number, or a CSV file of prices over time, relative
            to this file.
        currency: Currency of a price that is a number, such as ``EUR``; a file names its own.
        carbon: Carbon intensity of electricity, in g/kWh: a number or a file, like the price.
        cooling: Cooling plant; its nodes need components then.
        about: Description of the cluster, in a line.
        switches: Connection of the nodes, as a tree: each switch with node numbers, or names of
            other switches.
        network: Connection of the nodes, with bandwidths, for jobs that compute and communicate.
        storage: Storages that jobs read and write.
        sources: Sources of the numbers: text by the path of a field, such as
            ``nodes.gpu-node.components.gpu``; it holds for all fields below that have none of their
            own.
    """

    name: str = "cluster"
    about: str = ""
    nodes: tuple[NodeGroup, ...] = Field(min_length=1)
    partitions: tuple[Partition, ...] = ()
    resources: dict[str, Annotated[int, Field(ge=0, le=MOST)]] = Field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    failures: Failures = Failures()
    cleanup: Duration = Field(default=0, ge=0)
    qos: dict[str, float] = Field(default_factory=dict)
    fairshare: FairShare = FairShare()
    accounts: tuple[Account, ...] = ()
    limits: tuple[Limit, ...] = ()
    preemption: Preemption | None = None
    cap: Cap | None = None
    price: NotNegative | str | None = None
    currency: str = ""
    carbon: NotNegative | str | None = None
    cooling: Cooling | None = None
    switches: tuple[Switch, ...] = ()
    network: Network | None = None
    storage: tuple[Storage, ...] = ()
    sources: dict[str, str] = Field(default_factory=dict)

    _notes: ReadNotes = PrivateAttr(default_factory=ReadNotes)
    _platform: Platform | None = PrivateAttr(default=None)

    @property
    def notes(self) -> ReadNotes:
        """Omissions and assumptions of its reader; this is no field, and no file has it."""
        return self._notes

    @property
    def has_network_power(self) -> bool:
        """Whether the power draw of any link or switch is known."""
        if self.network is not None:
            return self.network.has_switch_power
        return self.platform is not None and bool(self.platform.link_busy_w.any())

    @property
    def platform(self) -> Platform | None:
        """Its hosts, links and routes; None if its network is not modeled.

        Node *i* is the *i*-th host that computes (`Platform.hosts_of`).
        """
        if self._platform is None and self.network is not None:
            from hpctwin.model.cluster.platform import platform_of

            groups = [
                (
                    group.name,
                    group.count,
                    int(group.cores or 1),
                    int(group.gpus or 0),
                    group.speed_at_first,
                )
                for group in self.nodes
            ]
            self._platform = platform_of(self.name, self.network, self.storage, groups)
        return self._platform

    @property
    def is_connected(self) -> bool:
        """Whether its network is modeled."""
        return self._platform is not None or self.network is not None

    def blocks(self) -> list[Blocks]:
        """Return the blocks of its network; nothing if its network is not modeled."""
        from hpctwin.model.cluster.platform import blocks_of
        from hpctwin.network.blocks import blocks_of_platform

        if self.network is not None:
            return blocks_of(self.network, [(group.name, group.count) for group in self.nodes])
        return [] if self._platform is None else blocks_of_platform(self._platform)

    def connected(self, platform: Platform) -> Self:
        """Return the cluster with a network.

        Args:
            platform: Its hosts, links and routes.
        """
        made = self.model_copy()
        made._platform = platform
        return made

    def noted(self, notes: ReadNotes) -> Self:
        """Return the cluster with further notes.

        Args:
            notes: What else was omitted or assumed.
        """
        made = self.model_copy()
        made._notes = self._notes.joined(notes)
        return made

    @classmethod
    def uniform(
        cls,
        nodes: int,
        *,
        name: str = "cluster",
        active_w: float | None = None,
        idle_w: float | None = None,
        sleep_w: float = 0.0,
        off_s: float = 0.0,
        off_w: float = 0.0,
        on_s: float = 0.0,
        on_w: float = 0.0,
        **about: Any,
    ) -> Cluster:
        """Return a cluster of equal nodes.

        Args:
            nodes: Number of nodes.
            name: Name of the cluster.
            active_w: Power draw while a job runs, in W; if omitted, the nodes have no power model.
                Otherwise they have one mode and one sleep state, with the following values.
            idle_w: Power draw while no job runs, in W; by default ``active_w``.
            sleep_w: Power draw asleep, in W.
            off_s: Time to switch off, in seconds.
            off_w: Power draw while switching off, in W.
            on_s: Time to switch on, in seconds.
            on_w: Power draw while switching on, in W.
            about: Further fields of the cluster, for example ``resources={"license": 10}``.

        Raises:
            ConfigError: A value is not valid.
        """
        group: dict[str, Any] = {"name": "node", "count": nodes}
        if active_w is not None:
            group["modes"] = {"base": {"power_w": active_w, "idle_w": idle_w}}
            group["sleep"] = [
                {
                    "power_w": sleep_w,
                    "switch_off": {"time": off_s, "power_w": off_w},
                    "switch_on": {"time": on_s, "power_w": on_w},
                }
            ]
        return cls.checked({"name": name, "nodes": [group], **about}, "cluster")

    @classmethod
    @check_arguments()
    def from_yaml(cls, path: str | Path) -> Cluster:
        """Read a YAML file.

        Raises:
            ConfigError: The file cannot be read or is not valid; the message names the field.
        """
        made = cls.checked(read_yaml(path, "nodes"), str(path))
        files = {
            name: str(Path(path).parent / value)
            for name, value in (("price", made.price), ("carbon", made.carbon))
            if isinstance(value, str)
        }
        return made.model_copy(update=files) if files else made

    def at(self, start_epoch_s: float | None, workload: str) -> Cluster:
        """Return the cluster with all its times in seconds from a workload's time zero.

        What ended before that is omitted.

        Args:
            start_epoch_s: Unix time of time zero; None if unknown.
            workload: Name of the workload, for messages.

        Raises:
            ConfigError: A time is a date, and the workload has none.
        """
        failures, shares = self.failures, self.fairshare
        try:
            where = "reservations"
            kept = [one.at(start_epoch_s, workload) for one in self.reservations]
            where = "failures.outages"
            broken = [one.at(start_epoch_s, workload) for one in failures.outages]
            where = "fairshare.resets"
            resets = [since(one, start_epoch_s, workload) for one in shares.resets]
        except ConfigError as error:
            raise ConfigError(f"cluster {self.name!r}, {where}: {error}") from error
        update: dict[str, Any] = {}
        if kept != list(self.reservations):
            update["reservations"] = tuple(one for one in kept if one is not None)
        if broken != list(failures.outages):
            outages = tuple(one for one in broken if one is not None)
            update["failures"] = failures.model_copy(update={"outages": outages})
        if resets != list(shares.resets):
            later = tuple(one for one in resets if one >= 0)
            update["fairshare"] = shares.model_copy(update={"resets": later})
        return self.model_copy(update=update) if update else self

    @property
    def node_count(self) -> int:
        """Number of all nodes."""
        return sum(group.count for group in self.nodes)

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
        facts = {"nodes": f"{self.node_count:,}"}
        if len(self.nodes) > 1:
            facts["groups"] = f"{len(self.nodes)}"
        if len(self.partitions) > 1:
            facts["partitions"] = f"{len(self.partitions)}"
        return self.name, facts

    def shown_more(self) -> dict[str, str]:
        """See `Shown`."""
        groups = {f"group {one.name}": f"{one.count:,} nodes" for one in self.nodes}
        more = {
            "about": self.about,
            **groups,
            "partition names": ", ".join(p.name for p in self.partitions),
        }
        more["resources"] = ", ".join(
            f"{name} {amount:,}" for name, amount in self.resources.items()
        )
        return {name: text for name, text in more.items() if text}

    @property
    def consumables(self) -> tuple[str, ...]:
        """Consumables of the nodes other than cores, memory and GPUs; GPU types last."""
        names = dict.fromkeys(name for group in self.nodes for name in group.consumables)
        return tuple(sorted(names, key=lambda name: name.startswith(GPU_TYPE)))

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Consumables that are GPUs of a type, in the order of the node groups."""
        return tuple(name for name in self.consumables if name.startswith(GPU_TYPE))

    @property
    def may_share_nodes(self) -> bool:
        """Whether jobs may request tasks, so that several share a node."""
        return any(group.cores is not None for group in self.nodes)

    @property
    def has_power(self) -> bool:
        """Whether the nodes have a power model."""
        return bool(self.nodes[0].modes)

    @property
    def depths(self) -> int:
        """Largest number of sleep states of a node group."""
        return max(len(group.sleep) for group in self.nodes)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.node_count > MOST_NODES:
            raise ValueError(
                f"{self.node_count:,} nodes are too many; the maximum is {MOST_NODES:,}"
            )
        groups = [group.name for group in self.nodes]
        _distinct("node group", groups)
        _distinct("partition", [partition.name for partition in self.partitions])
        _distinct("account", [account.name for account in self.accounts])
        check_accounts(self.accounts)
        shared = [one.name for one in self.accounts if one.share != 1 or one.users]
        if shared and self.fairshare.kind == "classic":
            raise ValueError(
                f"account {shared[0]!r} has shares, which only kind: tree reads: set fairshare: "
                "{kind: tree}, or move the shares to 'fairshare:'"
            )
        check_limits(self.limits, self.accounts, [one.name for one in self.partitions])
        if self.preemption is not None:
            check_preemption(self.preemption, [p.name for p in self.partitions], self.qos)
        _power_of_all(self)
        check_switches(self.switches, self.node_count)
        check_network(self.network, self.storage, [(one.name, one.count) for one in self.nodes])
        for kind, owners in (("partition", self.partitions), ("reservation", self.reservations)):
            for owner in owners:
                for name in owner.groups or ():
                    if name not in groups:
                        raise ValueError(
                            f"{kind} {owner.name!r}: unknown node group {name!r}; known: "
                            f"{', '.join(groups)}"
                        )
        if self.cooling is not None and not all(group.components for group in self.nodes):
            raise ValueError("cooling needs 'components' in each node group")
        if sum(partition.default for partition in self.partitions) > 1:
            raise ValueError("more than one partition is the default")
        for reservation in self.reservations:
            if reservation.nodes is not None:
                parse_nodes(reservation.nodes, self.node_count)
        for outage in self.failures.outages:
            if outage.node >= self.node_count:
                raise ValueError(
                    f"failures: unknown node {outage.node}; nodes are 0 to {self.node_count - 1}"
                )
        return self


def _distinct(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{kind} {name!r} is defined twice")


def _power_of_all(cluster: Cluster) -> None:
    """Check that all node groups have a power model, or none."""
    without = [group.name for group in cluster.nodes if not group.modes]
    if without and len(without) < len(cluster.nodes):
        raise ValueError(
            f"node group {without[0]!r} has no 'modes', but other groups do: add 'modes' to all "
            "node groups or to none"
        )
    if cluster.network is not None and cluster.network.has_switch_power:
        if without:
            raise ValueError(
                f"switch_power needs a power model; add 'modes' to node group {without[0]!r}"
            )
        if any(group.components for group in cluster.nodes):
            raise ValueError(
                "switch_power does not work with 'components', which count switches too; "
                "remove one of them"
            )
    for name in ("cap", "price", "carbon"):
        if without and getattr(cluster, name) is not None:
            raise ValueError(
                f"{name} needs a power model; add 'modes' to node group {without[0]!r}"
            )
