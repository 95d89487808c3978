"""Jobs whose profiles say what they do: their run times, and how much they communicate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.model.columns import ms_of
from hpctwin.model.workload.demands import phases_of
from hpctwin.network.platform import Platform
from hpctwin.network.profiles import (
    HomogeneousTask,
    ParallelTask,
    Profile,
    Sequence,
    SmpiTrace,
    UsageTrace,
    parts_of,
    per_rank,
)

__all__ = [
    "UNKNOWN_MS", "communication_shares", "network_profiles", "on_network", "power_follows_load",
    "with_run_times",
]  # fmt: skip

UNKNOWN_MS = 10**15
"""Run time of a job in the engine until the network says when it ends; its walltime is shorter."""


def with_run_times(workload: Workload, cluster: Cluster) -> tuple[Workload, Cluster]:
    """Return jobs with run times instead of profiles, and the cluster on which they hold.

    Waiting takes the same time on each node. Computing takes the time of the platform's speed.

    Args:
        workload: Jobs; they are returned as they are if none has a profile.
        cluster: The cluster.

    Raises:
        ConfigError: A job uses the network or a storage, or its nodes differ and it does more than
            compute alike on each of them, or the cluster has no platform.
    """
    if workload.profiles is None:
        return workload, cluster
    profiles = [one for one in workload.profiles if one is not None]
    plain = workload.replace(profiles=None)
    if all(one.length_s is not None for one in profiles) and len(profiles) == len(workload):
        return plain, _at_one_speed(cluster)
    runtime_s = workload.runtime_ms / 1000
    for row, profile in enumerate(workload.profiles):
        if profile is not None:
            each = per_rank(profile, int(workload.nodes[row]))
            runtime_s[row] = _length_s(each, cluster, f"job {workload.job_id[row]}")
    return plain.replace(runtime_ms=ms_of(runtime_s)), cluster


def power_follows_load(cluster: Cluster) -> bool:
    """Return whether jobs on the network decide by their load what their nodes draw."""
    return (
        cluster.has_power
        and not any(group.components for group in cluster.nodes)
        and cluster.platform is not None
    )


def network_profiles(
    workload: Workload, cluster: Cluster, *, sized: bool = False
) -> tuple[Profile | None, ...]:
    """Return what each job does on the network; None for a job that does not use it.

    A job that only waits is on the network if waiting nodes draw less power than computing ones.

    Args:
        workload: Jobs.
        cluster: The cluster.
        sized: Whether a sizing decides the nodes of jobs that only wait.
    """
    asked = workload.profiles or (None,) * len(workload)
    if workload.demands:
        phases = phases_of(workload.demands, workload.runtime_ms)
        asked = tuple(own or phase for own, phase in zip(asked, phases, strict=True))
    if workload.profiles and not sized and power_follows_load(cluster):
        return asked
    return tuple(None if one is None or one.length_s is not None else one for one in asked)


def on_network(
    workload: Workload, cluster: Cluster, *, sized: bool = False, contends: bool | None = None
) -> tuple[Workload, Cluster, tuple[Profile | None, ...]]:
    """Return jobs without profiles, their cluster, and what those do that use the network.

    The platform's hosts have speeds; jobs that only wait take the same time on each node.

    Args:
        workload: Jobs.
        cluster: The cluster.
        sized: As for `network_profiles`.
        contends: Whether these or later jobs use the network; None means: derived from these.

    Raises:
        ConfigError: Jobs use the network, and the cluster has none. Or jobs compute, read or write,
            and the cluster has no speed or no storage.
    """
    profiles = network_profiles(workload, cluster, sized=sized)
    if not (any(profiles) if contends is None else contends):
        return *with_run_times(workload, cluster), ()
    if cluster.platform is None:
        raise ConfigError(
            f"cluster {cluster.name!r} has no links that jobs could share; give a platform "
            "(--cluster platform.xml), or add 'network' to the cluster file"
        )
    if not cluster.platform.host_speed[cluster.platform.hosts_of("compute_node")].any():
        for profile, job in zip(profiles, workload.job_id, strict=True):
            if profile is not None and profile.computes:
                raise _without_speed(cluster, f"job {job}")
    if workload.demands:
        _check_storage(workload, cluster, cluster.platform)
    return workload.replace(profiles=None, demands={}), _at_one_speed(cluster), profiles


def _check_storage(workload: Workload, cluster: Cluster, platform: Platform) -> None:
    transfers = [np.asarray(workload.demands[name]) for name in ("read_bytes", "write_bytes")]
    if not len(platform.hosts_of("storage")) and np.any(transfers):
        raise ConfigError(
            f"jobs read or write, and cluster {cluster.name!r} has no storage; add 'storage' to the "
            "cluster file, or remove read_bytes and write_bytes"
        )


def _at_one_speed(cluster: Cluster) -> Cluster:
    """Return a cluster on whose nodes all jobs take the same time."""
    if all(
        group.speed == 1 and all(m.speed == 1 for m in group.modes.values())
        for group in cluster.nodes
    ):
        return cluster
    nodes = tuple(
        group.model_copy(
            update={
                "speed": 1.0,
                "modes": {
                    name: mode.model_copy(update={"speed": 1.0})
                    for name, mode in group.modes.items()
                },
            }
        )
        for group in cluster.nodes
    )
    return cluster.model_copy(update={"nodes": nodes})


def _without_speed(cluster: Cluster, job: str) -> ConfigError:
    return ConfigError(
        f"{job} computes, but nodes of cluster {cluster.name!r} have no speed; give core_speed "
        "under 'network', such as core_speed: 20 Gflop/s"
    )


def _length_s(profile: Profile, cluster: Cluster, job: str) -> float:
    platform = cluster.platform
    if platform is None:
        raise ConfigError(
            f"{job} computes or communicates, and cluster {cluster.name!r} has no speeds and links "
            "from which its run time follows; give a platform (--cluster platform.xml), or add "
            "'network' to the cluster file"
        )
    speeds = platform.host_speed[platform.hosts_of("compute_node")]
    if profile.computes and not speeds.all():
        raise _without_speed(cluster, job)
    alike = all(isinstance(part, HomogeneousTask) for part in parts_of(profile))
    if np.ptp(speeds) > 0 and not alike:
        raise ConfigError(
            f"{job} does not only compute alike on each node, and nodes of cluster "
            f"{cluster.name!r} differ in speed, so its length depends on its nodes; add "
            "--sharing fair (in Python sharing='fair')"
        )
    # Speeds of node groups are relative to the first node's.
    return _alone_s(profile, float(speeds[0]) if profile.computes else math.inf, job)


def _alone_s(profile: Profile, speed: float, job: str) -> float:
    if profile.length_s is not None:
        return profile.length_s
    if isinstance(profile, Sequence):
        total_s = 0.0
        for part in profile.parts:
            total_s += _alone_s(part, speed, job)
            if part.end_code:
                return total_s
        return total_s * profile.repeat
    if isinstance(profile, HomogeneousTask) and not profile.com:
        return profile.cpu / speed
    if isinstance(profile, ParallelTask) and (profile.com is None or not profile.com.any()):
        return float(0.0 if profile.cpu is None else profile.cpu.max(initial=0.0)) / speed
    raise ConfigError(
        f"{job} uses the network, a storage or a recorded trace, so its length depends on other jobs; "
        "add --sharing fair (simulate, compare, sweep, policy search; in Python sharing='fair')"
    )


def communication_shares(
    given: Iterable[Profile | None], ranks: npt.NDArray[np.int64], platform: Platform
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
    shares = np.zeros(len(ranks))
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
def _(profile: HomogeneousTask, ranks: int) -> tuple[float, float, float]:
    each = profile.on(ranks)
    return 0.0, each.cpu, each.com * (ranks - 1)


@_amounts.register
def _(profile: ParallelTask, ranks: int) -> tuple[float, float, float]:
    flops = 0.0 if profile.cpu is None else float(profile.cpu.max(initial=0.0))
    if profile.com is None:
        return 0.0, flops, 0.0
    between = profile.com - np.diag(np.diag(profile.com))
    return 0.0, flops, float(max(between.sum(0).max(initial=0.0), between.sum(1).max(initial=0.0)))


@_amounts.register
def _(profile: Sequence, ranks: int) -> tuple[float, float, float]:
    total = np.zeros(3)
    for part in profile.parts:
        total += _amounts(part, ranks)
        if part.end_code:
            break
    else:
        total *= profile.repeat
    return float(total[0]), float(total[1]), float(total[2])


@_amounts.register
def _(profile: UsageTrace, ranks: int) -> tuple[float, float, float]:
    return 0.0, max((float(rank.flops.sum()) for rank in profile.ranks), default=0.0), 0.0


@_amounts.register
def _(profile: SmpiTrace, ranks: int) -> tuple[float, float, float]:
    calls = {name for actions in profile.ranks for name, _ in actions}
    return 0.0, 0.0, float(bool(calls - {"init", "finalize", "compute"}))
