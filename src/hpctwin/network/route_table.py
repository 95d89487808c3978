"""Routes between hosts of running jobs, each computed once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.network.platform import Platform

__all__ = ["RouteTable"]

IntArray = npt.NDArray[np.int64]


class RouteTable:
    """Routes of a platform, as the kernel `engine.network.flows.ADD_FLOWS` reads them.

    Args:
        platform: Hosts and links.

    Attributes:
        numbers: Number of the route between two hosts, by their places [places, places]; -1 if it
            is not known yet.
        offsets: Start of each route in ``links``, and the end of the last one.
        latencies: Latency of each route, in seconds.
        links: Links of all routes.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._place = np.full(len(platform.host_names), -1, np.int64)
        self._hosts: IntArray = np.zeros(0, np.int64)
        self.numbers = np.full((0, 0), -1, np.int32)
        self.offsets = np.zeros(1, np.int64)
        self.latencies = np.zeros(0)
        self.links = np.zeros(0, np.int32)

    def places(self, hosts: IntArray) -> IntArray:
        """Return the places of hosts in ``numbers``."""
        places = self._place[hosts]
        if places.min(initial=0) < 0:
            self._add_hosts(np.unique(hosts[places < 0]))
            places = self._place[hosts]
        found: IntArray = places
        return found

    def add(self, sources: IntArray, targets: IntArray) -> None:
        """Compute routes between pairs of places that are missing.

        Raises:
            ConfigError: Two of the hosts are not connected.
        """
        missing = self.numbers[sources, targets] < 0
        if not missing.any():
            return
        size = len(self.numbers)
        sources, targets = np.divmod(np.unique(sources[missing] * size + targets[missing]), size)
        found = self.platform.routes(self._hosts[sources], self._hosts[targets])
        self.numbers[sources, targets] = len(self.latencies) + np.arange(len(sources))
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + found.offsets[1:]])
        self.latencies = np.concatenate([self.latencies, found.latency_s])
        self.links = np.concatenate([self.links, found.links])

    def _add_hosts(self, new: IntArray) -> None:
        self._place[new] = len(self._hosts) + np.arange(len(new))
        self._hosts = np.concatenate([self._hosts, new])
        if len(self._hosts) > len(self.numbers):
            size = max(2 * len(self.numbers), len(self._hosts))
            before, self.numbers = self.numbers, np.full((size, size), -1, np.int32)
            self.numbers[: len(before), : len(before)] = before
