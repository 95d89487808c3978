"""Slurm's multifactor priority as an ordering."""

from __future__ import annotations

import dataclasses
import inspect

from hpctwin.errors import ConfigError, in_brief
from hpctwin.model.arguments import check_arguments
from hpctwin.model.text import parse_duration_s
from hpctwin.policies.orderings.formula import formula
from hpctwin.policies.orderings.ordering import Ordering

__all__ = ["multifactor"]


@check_arguments("max_age")
def multifactor(
    *,
    age: float = 1000,
    size: float = 0,
    fairshare: float = 1000,
    partition: float = 0,
    qos: float = 0,
    trace: float = 0,
    max_age: float | str = "7d",
    favor_small: bool = False,
    relative_to_time: bool = False,
    accrue_always: bool = False,
    machine_cores: float = 0,
    per_node: float = 0,
    per_core: float = 0,
    per_gpu: float = 0,
    per_gb: float = 0,
) -> Ordering:
    """Slurm's priority/multifactor: a weighted sum of factors in [0, 1], largest first.

    Args:
        age: Weight of (now - eligible) / max_age, at most 1.
        size: Weight of nodes / nodes of the cluster, or of 1 minus that with ``favor_small``. See
            ``relative_to_time`` and ``machine_cores``.
        fairshare: Weight of the fair-share factor; half-life and shares come from the cluster.
        partition: Weight of the partition's priority, relative to the largest.
        qos: Weight of the quality of service's priority, relative to the largest.
        trace: Weight of the trace's own priority, not scaled (Slurm's job factor).
        max_age: Age at which that factor is 1, in seconds or text such as ``"7d"``.
        favor_small: Slurm's PriorityFavorSmall.
        relative_to_time: Divide size by the minutes of the walltime, like Slurm's flag
            SMALL_RELATIVE_TO_TIME.
        accrue_always: Count age from the submission, like Slurm's flag ACCRUE_ALWAYS.
        machine_cores: Number of cores of the cluster. If given, size is the mean of the shares of
            nodes and of cores, or the larger of them with ``relative_to_time``.
        per_node: Weight of each requested node: Slurm's PriorityWeightTRES divided by the total.
        per_core: Weight of each requested core.
        per_gpu: Weight of each requested GPU.
        per_gb: Weight of each requested GB of memory.

    Raises:
        ConfigError: A value is not a number or duration.

    Source:
        Slurm's multifactor priority page (slurm.schedmd.com/priority_multifactor.html).
    """
    weights = {
        "age": age, "size": size, "fairshare": fairshare,
        "partition": partition, "qos": qos, "trace": trace,
        "per_node": per_node, "per_core": per_core, "per_gpu": per_gpu, "per_gb": per_gb,
    }  # fmt: skip
    for name, weight in weights.items():
        if not isinstance(weight, (int, float)) or weight < 0:
            raise ConfigError(
                f"multifactor: weight {name} is {in_brief(weight)}, it must be 0 or more"
            )
    if not isinstance(machine_cores, (int, float)) or machine_cores < 0:
        raise ConfigError(
            f"multifactor: machine_cores is {in_brief(machine_cores)}, it must be 0 or more"
        )
    width = _size(float(machine_cores), relative_to_time=relative_to_time)
    since = "submit" if accrue_always else "eligible"
    terms = {
        "age": f"min((now - {since}) / {parse_duration_s(max_age)!r}, 1.0)",
        "size": f"(1 - {width})" if favor_small else width,
        "fairshare": "fairshare",
        "partition": "partition_priority",
        "qos": "qos_priority",
        "trace": "priority",
        "per_node": "nodes",
        "per_core": "cpu",
        "per_gpu": "gpus * nodes",
        "per_gb": "memory_gb * nodes",
    }
    used = [f"{float(weights[name])!r} * {term}" for name, term in terms.items() if weights[name]]
    made = formula(f"-({' + '.join(used) or '0.0'})")
    given = {
        **weights, "max_age": max_age, "favor_small": favor_small, "relative_to_time": relative_to_time,
        "accrue_always": accrue_always, "machine_cores": machine_cores,
    }  # fmt: skip
    default = {k: p.default for k, p in inspect.signature(multifactor).parameters.items()}
    changed = [f"{k}={v}" for k, v in given.items() if v != default[k]]
    return dataclasses.replace(
        made,
        name="multifactor" + (f":{','.join(changed)}" if changed else ""),
        summary="Slurm's multifactor priority: age, size, fair share, partition, QOS",
    )


def _size(cores: float, *, relative_to_time: bool) -> str:
    """Return the size factor as a formula, after Slurm's ``priority_multifactor.c``."""
    nodes = "nodes / machine_nodes"
    share = f"cpu / {cores!r}"
    if relative_to_time:
        size = f"max({nodes}, {share})" if cores else nodes
        return f"min({size} / max(walltime / 60, 1), 1.0)"
    return f"min(({nodes} + {share}) / 2, 1.0)" if cores else nodes
