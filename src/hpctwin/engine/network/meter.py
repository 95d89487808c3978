"""What links carry over time: bytes in bins of time, the peak, and the time at full bandwidth.

The number of bins is fixed. Once the time exceeds them, neighboring bins are merged, so that all of
them become wider.
"""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.network.records import Network, network_at, reals_of, resources_of

__all__ = ["SETTLE_METER", "put_carried"]

FULL = 1.0 - 1e-9
"""Share of its bandwidth from which a link is full."""


@jit
def widen_bins(net: Network) -> None:
    """Merge neighboring bins into the next width."""
    widths, bins, count = reals_of(net.widths), reals_of(net.bins), net.bin_count
    merged = int(widths[net.width + 1] / widths[net.width] + 0.5)
    net.width += 1
    for first in range(0, len(bins), count):
        for i in range(count):
            total = 0.0
            for k in range(i * merged, min((i + 1) * merged, count)):
                total += bins[first + k]
            bins[first + i] = total


@jit
def add_to_bins(link: int, carried: float, begin: float, end: float, net: Network) -> None:
    """Add to the bins what a link carried in a span; times are from the first bin on."""
    widths, bins, count = reals_of(net.widths), reals_of(net.bins), net.bin_count
    while end > count * widths[net.width]:
        widen_bins(net)
    width = widths[net.width]
    for i in range(int(begin / width), min(int(end / width) + 1, count)):
        inside = min(end, (i + 1) * width) - max(begin, i * width)
        bins[link * count + i] += carried * max(inside, 0.0)


@jit
def settle_link(link: int, net: Network) -> None:
    """Add up what a link carried until now."""
    carried, begin = reals_of(net.carried)[link], reals_of(net.carried_since)[link]
    reals_of(net.carried_since)[link] = net.now
    if carried == 0.0 or net.now <= begin:
        return
    reals_of(net.bytes)[link] += carried * (net.now - begin)
    peak, full = reals_of(net.peak), reals_of(net.full)
    peak[link] = max(peak[link], carried)
    if carried >= FULL * resources_of(net)[net.first_link + link].capacity:
        full[link] += net.now - begin
    add_to_bins(link, carried, begin - net.bins_from, net.now - net.bins_from, net)


@jit
def put_carried(r: int, amount: float, net: Network) -> None:
    """Record what a link carries from now on.

    Args:
        r: Number of a resource; nothing is recorded for hosts and for links that limit each task
            alone.
        amount: Bytes per second.
        net: Network.
    """
    link = r - net.first_link
    if link < 0 or resources_of(net)[r].fatpipe == 1:
        return
    if reals_of(net.carried)[link] != amount:
        settle_link(link, net)
        reals_of(net.carried)[link] = amount


def _settle_meter(address: int, time: float) -> None:
    net = network_at(address)
    net.now = time
    while time - net.bins_from > net.bin_count * reals_of(net.widths)[net.width]:
        widen_bins(net)
    for link in range(len(reals_of(net.carried))):
        settle_link(link, net)


SETTLE_METER = Kernel(_settle_meter, "void(int64, float64)")
"""Add up what all links carried until a time, and let the bins reach it: ``(address, time)``."""
