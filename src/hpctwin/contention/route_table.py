"""Routes between hosts of running jobs, each computed once, and sums over flows on them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.contention.arrays import describe
from hpctwin.engine.network.flows import ADD_FLOWS, FLOWS
from hpctwin.network.patterns import Flows
from hpctwin.network.platform import Platform

__all__ = ["RouteTable"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class RouteTable:
    """Routes of a platform; hosts have places in it, in the order in which jobs use them.

    Args:
        platform: Hosts and links.
    """

    def __init__(self, platform: Platform) -> None:
        links = len(platform.link_names)
        self.platform = platform
        self._place = np.full(len(platform.host_names), -1, np.int64)
        self._hosts: IntArray = np.zeros(0, np.int64)
        self._numbers = np.full((0, 0), -1, np.int32)
        self._offsets = np.zeros(1, np.int64)
        self._latencies = np.zeros(0)
        self._links = np.zeros(0, np.int32)
        self._fatpipe = platform.link_fatpipe.astype(np.int8)
        self._sums, self._used = np.zeros(links), np.zeros(links, np.int64)
        self._flows = np.zeros(1, FLOWS)
        self._described = False

    def add(self, sources: IntArray, targets: IntArray) -> None:
        """Compute routes between pairs of hosts that are missing; all at once is much faster.

        Raises:
            ConfigError: Two of the hosts are not connected.
        """
        self._add_between(self._places(sources), self._places(targets))

    def sums(self, hosts: IntArray, flows: Flows) -> tuple[IntArray, FloatArray, float, float]:
        """Return the links that a parallel task uses, and the bytes on each.

        Args:
            hosts: Host of each rank.
            flows: Bytes between ranks, all above 0.

        Returns:
            Links, bytes, largest latency, and largest product of a flow's latency and bytes.

        Raises:
            ConfigError: Two of the hosts are not connected.
        """
        places = self._places(hosts)
        sources, targets = places[flows.sources], places[flows.targets]
        self._add_between(sources, targets)
        if not self._described:
            self._describe()
        count = ADD_FLOWS(self._address, sources, targets, flows.amounts)
        links = self._used[:count].copy()
        amounts = self._sums[links]
        self._sums[links] = 0.0
        return links, amounts, float(self._flows["latency"][0]), float(self._flows["window"][0])

    def _places(self, hosts: IntArray) -> IntArray:
        places = self._place[hosts]
        if places.min(initial=0) < 0:
            self._add_hosts(np.unique(hosts[places < 0]))
            places = self._place[hosts]
        found: IntArray = places
        return found

    def _add_hosts(self, new: IntArray) -> None:
        self._place[new] = len(self._hosts) + np.arange(len(new))
        self._hosts = np.concatenate([self._hosts, new])
        if len(self._hosts) > len(self._numbers):
            size = max(2 * len(self._numbers), len(self._hosts))
            before, self._numbers = self._numbers, np.full((size, size), -1, np.int32)
            self._numbers[: len(before), : len(before)] = before
            self._described = False

    def _add_between(self, sources: IntArray, targets: IntArray) -> None:
        missing = self._numbers[sources, targets] < 0
        if not missing.any():
            return
        size = len(self._numbers)
        sources, targets = np.divmod(np.unique(sources[missing] * size + targets[missing]), size)
        found = self.platform.routes(self._hosts[sources], self._hosts[targets])
        self._numbers[sources, targets] = len(self._latencies) + np.arange(len(sources))
        self._offsets = np.concatenate([self._offsets, self._offsets[-1] + found.offsets[1:]])
        self._latencies = np.concatenate([self._latencies, found.latency_s])
        self._links = np.concatenate([self._links, found.links])
        self._described = False

    def _describe(self) -> None:
        names = [name for name in FLOWS.names or () if name not in ("places", "latency", "window")]
        arrays = {name: getattr(self, f"_{name}") for name in names}
        self._descriptors = describe(self._flows, arrays)
        self._flows["places"] = len(self._numbers)
        self._address = int(self._flows.ctypes.data)
        self._described = True
