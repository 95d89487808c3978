"""How much jobs communicate: the share of their time alone in which their ranks send data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from hpctwin.network import profiles
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import Profile

__all__ = ["communication_shares"]


def communication_shares(
    given: Sequence[Profile | None], ranks: npt.NDArray[np.int64], platform: Platform
) -> npt.NDArray[np.float64]:
    """Return the share of each job's time in which it communicates, from 0 to 1 [jobs].

    Computing and sending count one after the other, on a core and a link of median speed. Latency
    and storages are not counted. A job with recorded MPI calls counts as one that always
    communicates.

    Args:
        given: Profiles of the jobs; None for a job that does not use the network.
        ranks: Number of ranks of each job: tasks, or nodes.
        platform: Hosts and links.
    """
    speed = float(np.median(platform.host_speed[platform.hosts_of("compute_node")]))
    bandwidth = float(np.median(platform.link_bandwidth)) if len(platform.link_bandwidth) else 0.0
    shares = np.zeros(len(given))
    for row, profile in enumerate(given):
        if profile is None:
            continue
        waiting_s, flops, sent = _amounts(profile, int(ranks[row]))
        sending_s = sent / bandwidth if bandwidth else 0.0
        other_s = waiting_s + (flops / speed if speed else 0.0)
        shares[row] = sending_s / (sending_s + other_s) if sending_s else 0.0
    return shares


@singledispatch
def _amounts(profile: Profile, ranks: int) -> tuple[float, float, float]:
    """Return seconds without use of cores and links, and largest flops and bytes of a rank."""
    return profile.length_s or 0.0, 0.0, 0.0


@_amounts.register
def _(profile: profiles.HomogeneousTask, ranks: int) -> tuple[float, float, float]:
    each = profile.on(ranks)
    return 0.0, each.cpu, each.com * (ranks - 1)


@_amounts.register
def _(profile: profiles.ParallelTask, ranks: int) -> tuple[float, float, float]:
    flops = 0.0 if profile.cpu is None else float(profile.cpu.max(initial=0.0))
    if profile.com is None:
        return 0.0, flops, 0.0
    between = profile.com - np.diag(np.diag(profile.com))
    return 0.0, flops, float(max(between.sum(0).max(initial=0.0), between.sum(1).max(initial=0.0)))


@_amounts.register
def _(profile: profiles.Sequence, ranks: int) -> tuple[float, float, float]:
    total = np.zeros(3)
    for part in profile.parts:
        total += _amounts(part, ranks)
        if part.end_code:
            break
    else:
        total *= profile.repeat
    return float(total[0]), float(total[1]), float(total[2])


@_amounts.register
def _(profile: profiles.UsageTrace, ranks: int) -> tuple[float, float, float]:
    return 0.0, max((float(rank.flops.sum()) for rank in profile.ranks), default=0.0), 0.0


@_amounts.register
def _(profile: profiles.SmpiTrace, ranks: int) -> tuple[float, float, float]:
    calls = {name for actions in profile.ranks for name, _ in actions}
    return 0.0, 0.0, float(bool(calls - {"init", "finalize", "compute"}))
