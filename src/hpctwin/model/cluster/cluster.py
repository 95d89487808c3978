"""The cluster: what a site writes in YAML, validated."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from hpctwin.errors import ConfigError, near
from hpctwin.model.cluster.cap import PowerCap
from hpctwin.model.cluster.cooling import Cooling
from hpctwin.model.cluster.limits import Account, Limit, check_accounts, check_limits
from hpctwin.model.cluster.node_group import MOST_NODES, NodeGroup
from hpctwin.model.cluster.preemption import Preemption, check_preemption
from hpctwin.model.cluster.switches import Switch, check_switches
from hpctwin.model.files.yaml_file import read_yaml
from hpctwin.model.input.arguments import check_arguments
from hpctwin.model.input.settings import Duration, Settings, Time
from hpctwin.model.requests.consumables import GPU_TYPE
from hpctwin.model.text.hostlist import parse_nodes
from hpctwin.model.text.notes import ReadNotes
from hpctwin.model.text.shown import Shown
from hpctwin.model.text.units import Moment, moment_text, since

__all__ = [
    "Cluster",
    "Failures",
    "FairShare",
    "NodeGroup",
    "Outage",
    "Partition",
    "Reservation",
    "Switch",
    "parse_nodes",
]

Cap = Annotated[
    PowerCap,
    BeforeValidator(
        lambda value: PowerCap.parse(value) if isinstance(value, str) else value,
        json_schema_input_type=str | PowerCap,
    ),
]


NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Partition(Settings):
    """Some node groups under common limits; what Slurm calls a partition and PBS a queue.

    Args:
        name: the name that jobs give.
        groups: names of node groups; all if left out.
        min_nodes, max_nodes: width of a job.
        max_walltime: longest walltime, seconds or text such as ``"24h"``.
        max_jobs_per_user: running at once.
        priority: weight for orderings; larger is sooner.
        default: jobs without a partition go here.
        qos: its jobs are under the limits of this QOS, too.
        backfill_depth: of the policy ``pbs``: so many of its own jobs that do not fit have reservations.
    """

    name: str
    groups: tuple[str, ...] | None = None
    min_nodes: int = Field(default=1, ge=1)
    max_nodes: int | None = Field(default=None, ge=1)
    max_walltime: Duration | None = Field(default=None, gt=0)
    max_jobs_per_user: int | None = Field(default=None, ge=1)
    priority: float = 0
    default: bool = False
    qos: str | None = None
    backfill_depth: int | None = Field(default=None, ge=0)


class Reservation(Settings):
    """Maintenance: nodes that are away from ``start`` to ``end``, known in advance.

    Args:
        name: the name.
        start: Seconds from time zero, text such as ``"30d"``, or a date (UTC if it names no zone) for
            workloads that say their own.
        end: When they are back, in the same way.
        groups: whole node groups.
        nodes: node numbers such as ``"0-127,512"``. With neither, all nodes.
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
    """Whether a time is at another or later; False if they cannot be compared yet."""
    return type(one) is type(other) and one >= other  # type: ignore[operator]


class Outage(Settings):
    """One node failure: the node is away from ``start`` for ``duration``, known to nobody before.

    Args:
        node: node number.
        start: Seconds from time zero, or a date, as of a reservation.
        duration: seconds.
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
    """Node failures, recorded or drawn.

    Args:
        outages: recorded ones.
        mtbf: mean time between failures of one node while it is up (exponential).
        mttr: mean time to repair (exponential).
        seed: of the draw.
        then: what becomes of the job on the node: back into the queue, or ended.
    """

    outages: tuple[Outage, ...] = ()
    mtbf: Duration | None = Field(default=None, gt=0)
    mttr: Duration | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    then: Literal["requeue", "fail"] = "requeue"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.mtbf is None) != (self.mttr is None):
            raise ValueError("mtbf and mttr belong together: give both or neither")
        return self


class FairShare(Settings):
    """How past use counts in fair-share orderings.

    Args:
        kind: ``classic``, 2 to the power of minus use over share; or ``tree``, users ranked by the shares of
            `Cluster.accounts`.
        by: whose use is added up; in a tree it is that of each user in an account.
        half_life: after this time, use counts half.
        shares: promised shares by label, in any unit; 1 for those not named. A tree's are those of accounts.
        every: a tree is ranked once in so long, and limits of use that decays are looked at.
        resets: Times or dates at which all use is forgotten, one after the other.
        factors: by QOS, use of its jobs counts so many times, for fair shares and under limits (to a
            thousandth); once for those not named.
        safe_factors: QOS whose factor also counts for the walltime of a job that is to start.
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
        """How often use of the jobs of a QOS counts."""
        return round(self.factors.get(qos, 1.0), 3) if qos else 1.0

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        for name in self.safe_factors:
            if name not in self.factors:
                raise ValueError(
                    f"safe_factors: QOS {name!r} has no factor under 'factors'.{near(name, self.factors)}"
                )
        if any(_is_after(sooner, later) for sooner, later in pairwise(self.resets)):
            raise ValueError("resets: each is later than the one before, by a millisecond at least")
        if self.kind == "tree" and self.shares:
            raise ValueError("a tree has its shares under 'accounts:', not here")
        if self.kind == "tree" and self.by == "account":
            raise ValueError(
                "a tree ranks users, account by account; leave 'by' out, or give kind: classic"
            )
        return self


class Cluster(Shown, Settings):
    """One system with one queue.

    Args:
        name: the name.
        nodes: the node groups; nodes are numbered from 0 through the groups in order.
        partitions: none means one partition of all nodes without limits, and the partition
            that a job names is not looked at.
        resources: cluster-wide amounts that jobs share: licences, I/O bandwidth, burst buffer.
        reservations: maintenance.
        failures: node failures.
        cleanup: so long after a job has ended its nodes are still taken: epilogs, health checks.
        qos: weight of each quality of service for orderings; 0 for those not named.
        fairshare: how past use counts.
        accounts: the tree of accounts, with shares.
        limits: what jobs of a user, account, QOS or partition may have at once.
        preemption: whose jobs make room for whose.
        cap: of what all nodes draw together: text such as ``20kW,22:00-06:00=30kW``, or its fields.
        price: of electricity per kWh: a number, or a CSV file of prices over time, relative to this one.
        carbon: of electricity, g/kWh: the same.
        cooling: what takes the machine's heat away; its nodes have components then.
        about: what machine it is, in a line.
        switches: how nodes are connected, as a tree: each with node numbers, or names of other switches.
        sources: where the numbers are from: text by the path of a field, such as
            ``nodes.gpu-node.components.gpu``; it holds for all below that has none of its own.
    """

    name: str = "cluster"
    about: str = ""
    nodes: tuple[NodeGroup, ...] = Field(min_length=1)
    partitions: tuple[Partition, ...] = ()
    resources: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
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
    carbon: NotNegative | str | None = None
    cooling: Cooling | None = None
    switches: tuple[Switch, ...] = ()
    sources: dict[str, str] = Field(default_factory=dict)

    _notes: ReadNotes = PrivateAttr(default_factory=ReadNotes)

    @property
    def notes(self) -> ReadNotes:
        """What its reader omitted or assumed; it is not among the fields, and no file has it."""
        return self._notes

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
        """A cluster of equal nodes.

        Args:
            nodes: how many.
            name: the cluster's name.
            active_w: drawn while a job runs, W; left out, what nodes draw is not known. Else they have
                one mode and one sleep state:
            idle_w: drawn while no job runs, W; as ``active_w`` if left out.
            sleep_w: drawn asleep, W.
            off_s: time to switch off, s.
            off_w: drawn meanwhile, W.
            on_s: time to switch on, s.
            on_w: drawn meanwhile, W.
            about: further fields of the cluster, for example ``resources={"licence": 10}``.

        Raises:
            ConfigError: a value is not valid.
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
            ConfigError: the file cannot be read or is not valid; the message names the field.
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
            start_epoch_s: The Unix time of time zero; None if it is not known.
            workload: Its name, for messages.

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
        """All nodes."""
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
        """What nodes have that jobs use up, besides cores, memory and GPUs; types of GPUs last."""
        names = dict.fromkeys(name for group in self.nodes for name in group.consumables)
        return tuple(sorted(names, key=lambda name: name.startswith(GPU_TYPE)))

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Those of them that are GPUs of a type, in the order in which node groups name them."""
        return tuple(name for name in self.consumables if name.startswith(GPU_TYPE))

    @property
    def has_power(self) -> bool:
        """Whether it is known what nodes draw."""
        return bool(self.nodes[0].modes)

    @property
    def depths(self) -> int:
        """The most sleep states a node group has."""
        return max(len(group.sleep) for group in self.nodes)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.node_count > MOST_NODES:
            raise ValueError(
                f"{self.node_count:,} nodes are too many, at most {MOST_NODES:,} can be"
            )
        groups = [group.name for group in self.nodes]
        _distinct("node group", groups)
        _distinct("partition", [partition.name for partition in self.partitions])
        _distinct("account", [account.name for account in self.accounts])
        check_accounts(self.accounts)
        shared = [one.name for one in self.accounts if one.share != 1 or one.users]
        if shared and self.fairshare.kind == "classic":
            raise ValueError(
                f"account {shared[0]!r} has shares, which only a tree looks at: give fairshare: "
                "{kind: tree}, or the shares under 'fairshare:'"
            )
        check_limits(self.limits, self.accounts, [one.name for one in self.partitions])
        if self.preemption is not None:
            check_preemption(self.preemption, [p.name for p in self.partitions], self.qos)
        _power_of_all(self)
        check_switches(self.switches, self.node_count)
        for kind, owners in (("partition", self.partitions), ("reservation", self.reservations)):
            for owner in owners:
                for name in owner.groups or ():
                    if name not in groups:
                        raise ValueError(
                            f"{kind} {owner.name!r}: node group {name!r} is not there; "
                            f"known: {', '.join(groups)}"
                        )
        if self.cooling is not None and not all(group.components for group in self.nodes):
            raise ValueError(
                "cooling needs to know what nodes are made of: give 'components' in each node group"
            )
        if sum(partition.default for partition in self.partitions) > 1:
            raise ValueError("more than one partition is the default")
        for reservation in self.reservations:
            if reservation.nodes is not None:
                parse_nodes(reservation.nodes, self.node_count)
        for outage in self.failures.outages:
            if outage.node >= self.node_count:
                raise ValueError(
                    f"failures: node {outage.node} is not there; nodes are 0 to {self.node_count - 1}"
                )
        return self


def _distinct(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{kind} {name!r} is there twice")


def _power_of_all(cluster: Cluster) -> None:
    """What nodes draw is known of all groups or of none."""
    without = [group.name for group in cluster.nodes if not group.modes]
    if without and len(without) < len(cluster.nodes):
        raise ValueError(
            f"node group {without[0]!r} has no 'modes', and others have: say what nodes draw of all "
            "groups, or of none"
        )
    for name in ("cap", "price", "carbon"):
        if without and getattr(cluster, name) is not None:
            raise ValueError(
                f"{name} needs to know what nodes draw; node group {without[0]!r} has no 'modes'"
            )
