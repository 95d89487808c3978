"""Communication, reads and writes for jobs that only have a run time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError, in_brief
from hpctwin.generate.draws import above_zero, choice, count_of, generator, within
from hpctwin.model import MS_PER_S, Category, Workload
from hpctwin.model.workload.demands import checked_demands
from hpctwin.network import units
from hpctwin.network.patterns import Pattern

__all__ = ["COMMUNICATION_OPTIONS", "with_communication"]

_GB = 1e9


def with_communication(
    workload: Workload,
    *,
    communicating: float = 0.5,
    patterns: str | Mapping[str, float] = Pattern.ALL_TO_ALL,
    comm_ratio: float = 0.25,
    comm_sigma: float = 0.0,
    iterations: int = 10,
    core_speed: float | str = "20 Gflop/s",
    bandwidth: float | str = "25 GB/s",
    storing: float = 0.0,
    io_gb_per_node: float = 10.0,
    seed: int = 0,
) -> Workload:
    """Return the same jobs; some of them communicate, read and write.

    On a cluster with this core speed and bandwidth, a communicating job that is alone still takes
    its run time: it computes for a part of it, and its busiest link is busy for the rest. Reads and
    writes take further time.

    Args:
        workload: Jobs; their columns of demands are replaced.
        communicating: Share of the jobs on two or more nodes that communicate.
        patterns: Names of patterns with weights: ``ring``, ``all-to-all:3,ring:1``, or a dict.
        comm_ratio: Median ratio of the time of communication to that of computation.
        comm_sigma: Standard deviation of the logarithm of this ratio, which is lognormal; by
            default all jobs have the same ratio.
        iterations: Number of times that a job computes and communicates.
        core_speed: Speed of a core: flop/s, or text such as ``20 Gflop/s``.
        bandwidth: Bandwidth of the link of a node: B/s, or text such as ``25 GB/s``.
        storing: Share of the jobs that read before and write after.
        io_gb_per_node: Mean of what they read, and of what they write, for each of their nodes, in
            GB; both are exponential.
        seed: Seed of all draws.

    Raises:
        ConfigError: The value of an option is not valid.
        UnknownNameError: There is no such pattern.
    """
    rng = generator(seed).spawn(1)[0]  # the generators of jobs draw from the seed itself
    size, nodes = len(workload), workload.nodes
    names, weights = _patterns(patterns)
    sends = rng.random(size) < within("communicating", communicating, 0, 1)
    sends &= nodes > 1
    pattern = choice(rng, weights, size)
    spread = within("comm_sigma", comm_sigma, 0, 100)
    ratio = above_zero("comm_ratio", comm_ratio) * np.exp(spread * rng.standard_normal(size))
    speed = _quantity("core_speed", core_speed, units.speed)
    link = _quantity("bandwidth", bandwidth, units.bandwidth)
    runtime_s = workload.runtime_ms / MS_PER_S
    busiest = np.ones(size)
    for row in np.flatnonzero(sends):
        busiest[row] = names[pattern[row]].busiest(int(nodes[row]))
    stores = rng.random(size) < within("storing", storing, 0, 1)
    mean = above_zero("io_gb_per_node", io_gb_per_node) * _GB * nodes
    labels = tuple(map(str, names))
    return workload.replace(
        demands=checked_demands(
            {
                "flops": np.where(sends, runtime_s / (1 + ratio) * nodes * speed, np.nan),
                "comm_bytes": np.where(sends, runtime_s * ratio / (1 + ratio) * link / busiest, 0),
                "comm_pattern": Category(np.where(sends, pattern, -1).astype(np.int32), labels),
                "iterations": np.where(sends, count_of("iterations", iterations), 1),
                "read_bytes": np.where(stores, rng.exponential(mean), 0),
                "write_bytes": np.where(stores, rng.exponential(mean), 0),
            },
            workload.job_id,
        )
    )


COMMUNICATION_OPTIONS = tuple(inspect.signature(with_communication).parameters)[1:-1]
"""Names of the options, without the seed."""


def _patterns(
    given: str | Mapping[str, float],
) -> tuple[list[Pattern], npt.NDArray[np.float64]]:
    """Return patterns and their weights.

    Raises:
        ConfigError: It is neither text nor a dict, or a weight is not above 0.
        UnknownNameError: There is no such pattern.
    """
    weights: dict[str, float | str]
    if isinstance(given, str):
        pairs = (part.partition(":") for part in given.split(","))
        weights = {name.strip(): weight if colon else 1.0 for name, colon, weight in pairs}
    elif isinstance(given, Mapping) and given:
        weights = dict(given)
    else:
        raise ConfigError(
            f"patterns is {in_brief(given)}; it must be text such as 'all-to-all:3,ring:1', or a dict"
        )
    for name in weights:
        if name not in list(Pattern):
            raise UnknownNameError("pattern", name, map(str, Pattern))
    shares = [_quantity(f"weight of {name}", one, units.number) for name, one in weights.items()]
    return [Pattern(name) for name in weights], np.array(shares)


def _quantity(name: str, given: float | str, parse: Callable[[str], float]) -> float:
    """Return a number, or the value of text with a unit.

    Raises:
        ConfigError: It is neither, or not above 0.
    """
    try:
        value = parse(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error
    return above_zero(name, value)
