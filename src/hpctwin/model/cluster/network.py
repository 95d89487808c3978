"""Network and storage of a cluster, in a few lines of YAML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hpctwin.errors import in_brief
from hpctwin.model.settings import Settings
from hpctwin.network import units

if TYPE_CHECKING:
    from hpctwin.network.builder import Builder, Watts

Topology = Literal["star", "fat-tree", "torus", "dragonfly"]


def _amount(parse: Callable[[str], float]) -> BeforeValidator:
    """Return a validator of a number, or of text with a unit."""

    def checked(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"it must be a number or text with a unit, not {in_brief(value)}")
        return parse(value if isinstance(value, str) else repr(value))

    return BeforeValidator(checked, json_schema_input_type=float | str)


Bandwidth = Annotated[float, Field(gt=0), _amount(units.bandwidth)]
"""B/s, or text such as ``25 GB/s`` or ``200 Gbit/s``."""
Latency = Annotated[float, Field(ge=0), _amount(units.latency)]
"""Seconds, or text such as ``1.5 us``."""
Speed = Annotated[float, Field(gt=0), _amount(units.speed)]
"""flop/s, or text such as ``20 Gflop/s``."""
Sizes = tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...]


class SwitchPower(Settings):
    """Power draw of a switch.

    Args:
        idle_w: Power draw without traffic, in W.
        power_w: Power draw at full load of all its links, in W; by default ``idle_w``. Between, it
            follows the mean utilization of the links.
    """

    idle_w: float = Field(ge=0, allow_inf_nan=False)
    power_w: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.power_w is not None and self.power_w < self.idle_w:
            raise ValueError(f"power_w ({self.power_w:g}) is below idle_w ({self.idle_w:g})")
        return self

    @property
    def watts(self) -> Watts:
        """Power draw when idle and at full load, in W."""
        return self.idle_w, self.idle_w if self.power_w is None else self.power_w


class Part(Settings):
    """A network of equal links.

    Args:
        topology: ``star`` (one switch), ``fat-tree``, ``torus`` or ``dragonfly``.
        bandwidth: Bandwidth of each link in each direction: B/s, or text such as ``25 GB/s`` or
            ``200 Gbit/s``.
        latency: Latency of each link: seconds, or text such as ``1 us``.
        backbone: For a star, bandwidth of a link that all routes share; by default none.
        backbone_latency: Latency of the backbone.
        loopback: Bandwidth of a link from each node to itself, for jobs with several ranks on a
            node; each flow gets all of it. By default, such flows pass the node's own links, or in
            a torus no link.
        loopback_latency: Latency of the loopback.
        children: For a fat tree, number of nodes or switches below each switch, by level from the
            nodes up.
        parents: For a fat tree, number of switches above each node or switch, by level.
        cables: For a fat tree, number of parallel links to each switch above, by level; by
            default 1. For a dragonfly, bandwidth between groups, chassis and blades as multiples
            of ``bandwidth``.
        sizes: For a torus, number of nodes in each dimension. For a dragonfly, groups, chassis of
            a group, blades of a chassis, nodes of a blade.
        switch_power: Power draw of each switch; by default unknown, and not counted.
    """

    topology: Topology | None = None
    bandwidth: Bandwidth | None = None
    latency: Latency = 0.0
    backbone: Bandwidth | None = None
    backbone_latency: Latency = 0.0
    loopback: Bandwidth | None = None
    loopback_latency: Latency = 0.0
    children: Sizes = ()
    parents: Sizes = ()
    cables: Sizes = ()
    sizes: Sizes = ()
    switch_power: SwitchPower | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.topology is None:
            return self
        if self.bandwidth is None:
            raise ValueError("a topology needs the 'bandwidth' of its links, such as 25 GB/s")
        needed = {
            "star": (), "fat-tree": ("children", "parents"), "torus": ("sizes",),
            "dragonfly": ("sizes",),
        }[self.topology]  # fmt: skip
        allowed = {"star": ("backbone", "backbone_latency"), "torus": ()}
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"topology {self.topology} needs {name!r}, such as {name}: [8, 4]")
        for name in ("backbone", "backbone_latency", "children", "parents", "cables", "sizes"):
            if getattr(self, name) and name not in allowed.get(self.topology, ("cables",)) + needed:
                raise ValueError(f"topology {self.topology} takes no {name!r}")
        if self.loopback_latency and self.loopback is None:
            raise ValueError("'loopback_latency' needs 'loopback', its bandwidth")
        if self.topology == "torus" and self.switch_power is not None:
            raise ValueError("a torus has no switches; remove 'switch_power'")
        if self.topology == "fat-tree":
            levels = len(self.children)
            for name, given in (("parents", self.parents), ("cables", self.cables or self.parents)):
                if len(given) != levels:
                    raise ValueError(
                        f"{name} has {len(given)} numbers, but children has {levels}: "
                        "give one for each level"
                    )
        if self.topology == "dragonfly":
            if len(self.sizes) != 4:
                raise ValueError(
                    "sizes of a dragonfly are 4 numbers: groups, chassis of a group, blades of a "
                    f"chassis, nodes of a blade; not {len(self.sizes)}"
                )
            if self.cables and len(self.cables) != 3:
                raise ValueError(
                    f"cables of a dragonfly are 3 numbers: between groups, chassis and blades; not "
                    f"{len(self.cables)}"
                )
            if self.sizes[0] > self.sizes[2]:
                raise ValueError(
                    f"a dragonfly of {self.sizes[0]} groups needs as many blades in a chassis, not "
                    f"{self.sizes[2]}"
                )
        return self

    @property
    def places(self) -> int | None:
        """Number of nodes for which there is room; None for any number."""
        return math.prod(self.children or self.sizes) if self.topology != "star" else None

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Places below a switch of each level; nothing for a topology without levels."""
        from hpctwin.network.blocks import block_sizes

        if self.topology == "dragonfly":
            return block_sizes(reversed(self.sizes))
        return block_sizes(self.children)


class Member(Part):
    """A part of the cluster with its own network.

    Args:
        name: Name of the part.
        groups: Names of its node groups.
    """

    name: str
    groups: tuple[str, ...] = Field(min_length=1)


class Wan(Settings):
    """A link between two parts of the cluster.

    Args:
        between: Names of the two parts.
        bandwidth: Bandwidth, shared by both directions: B/s, or text such as ``10 Gbit/s``.
        latency: Latency: seconds, or text such as ``20 ms``.
    """

    between: tuple[str, str]
    bandwidth: Bandwidth
    latency: Latency = 0.0


class Network(Part):
    """Connection of the nodes: one topology, or several parts with links between them.

    Args:
        core_speed: Speed of one core of a node with ``speed: 1``: flop/s, or text such as
            ``20 Gflop/s``. Jobs that compute need it.
        gpu_speed: Speed of one GPU: flop/s, or text such as ``20 Tflop/s``. Jobs that compute on GPUs
            need it.
        gpu_bandwidth: Bandwidth between each two GPUs of a node: B/s, or text such as ``50 GB/s``.
        parts: Parts with their own topology, each of whole node groups.
        links: Links between parts.
        window: Largest number of bytes in flight of one flow (TCP's window); it limits flows over
            links of high latency.
    """

    core_speed: Speed | None = None
    gpu_speed: Speed | None = None
    gpu_bandwidth: Bandwidth | None = None
    parts: tuple[Member, ...] = ()
    links: tuple[Wan, ...] = ()
    window: float = Field(default=units.DEFAULT_GAMMA, gt=0, allow_inf_nan=False)

    @property
    def has_switch_power(self) -> bool:
        """Whether the power draw of any switch is known."""
        return any(part.switch_power is not None for part in (self, *self.parts))

    def members(self, groups: Sequence[str]) -> list[tuple[str, Part, Sequence[str]]]:
        """Return name, network and node groups of each part; ``groups`` are all groups."""
        if self.parts:
            return [(part.name, part, part.groups) for part in self.parts]
        return [("network", self, groups)]

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.switch_power is not None and self.parts:
            raise ValueError("give 'switch_power' to each part of the network")
        if (self.topology is None) == (not self.parts):
            raise ValueError("a network needs either 'topology' or 'parts'")
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError("two parts of the network have the same name")
        for part in self.parts:
            if part.topology is None:
                raise ValueError(f"part {part.name!r} of the network needs a 'topology'")
        for link in self.links:
            for name in link.between:
                if name not in names:
                    raise ValueError(
                        f"links: unknown part {name!r}; known: {', '.join(names) or 'none'}"
                    )
        return self


class Storage(Settings):
    """A storage that jobs read and write: a file system, a burst buffer, or disks in nodes.

    Args:
        name: Name of the storage, by which jobs refer to it.
        place: ``shared`` by all nodes, or one on each ``node``.
        bandwidth: Bandwidth that reads and writes share: B/s, or text such as ``500 GB/s``.
        read_bandwidth, write_bandwidth: Bandwidth of reads and of writes, if they do not share one.
        latency: Latency of an access: seconds, or text such as ``100 us``.
    """

    name: str
    place: Literal["shared", "node"] = "shared"
    bandwidth: Bandwidth | None = None
    read_bandwidth: Bandwidth | None = None
    write_bandwidth: Bandwidth | None = None
    latency: Latency = 0.0

    @model_validator(mode="after")
    def _either(self) -> Self:
        apart = (self.read_bandwidth is None, self.write_bandwidth is None)
        if apart != ((self.bandwidth is not None,) * 2):
            raise ValueError(
                f"storage {self.name!r} needs either 'bandwidth', or 'read_bandwidth' and "
                "'write_bandwidth'"
            )
        return self

    def links(self, builder: Builder, name: str) -> tuple[int, int]:
        """Add the links from and to the storage, and return their numbers."""
        ways = {"": self.bandwidth, "_read": self.read_bandwidth, "_write": self.write_bandwidth}
        found = [
            builder.add_link(f"{name}{way}", (bandwidth, self.latency), level="storage")[0]
            for way, bandwidth in ways.items()
            if bandwidth is not None
        ]
        return found[0], found[-1]


def check_network(
    network: Network | None, storage: Sequence[Storage], groups: Sequence[tuple[str, int]]
) -> None:
    """Check that a network has room for all nodes, and that storages can be reached."""
    names = [one.name for one in storage]
    if len(set(names)) < len(names):
        raise ValueError("two storages have the same name")
    if network is None:
        if storage:
            raise ValueError("storage needs a 'network' by which nodes reach it")
        return
    sizes = dict(groups)
    named = [group for part in network.parts for group in part.groups]
    if network.parts and sorted(named) != sorted(sizes):
        raise ValueError(
            "each node group must be in one part of the network: groups are "
            f"{', '.join(sizes)}, parts have {', '.join(named)}"
        )
    for name, part, own in network.members([*sizes]):
        nodes = sum(sizes[group] for group in own)
        if part.places is not None and part.places < nodes:
            raise ValueError(
                f"{name}: the {part.topology} has room for {part.places:,} nodes, not {nodes:,}"
            )
    paths_between(network)


def paths_between(network: Network) -> dict[tuple[str, str], list[int]]:
    """Return the links between each two parts, over as few links as possible."""
    found: dict[tuple[str, str], list[int]] = {}
    for start in (part.name for part in network.parts):
        reached: dict[str, list[int]] = {start: []}
        names = [start]
        for name in names:
            for number, link in enumerate(network.links):
                other = link.between[link.between[0] == name]
                if name in link.between and other not in reached:
                    reached[other] = [*reached[name], number]
                    names.append(other)
        for part in network.parts:
            if part.name not in reached:
                raise ValueError(f"links: no link connects part {start!r} with {part.name!r}")
            if part.name != start:
                found[start, part.name] = reached[part.name]
    return found
