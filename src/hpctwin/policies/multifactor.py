"""Slurm's multifactor priority as an ordering."""

from __future__ import annotations

import dataclasses
import inspect

from hpctwin.errors import ConfigError
from hpctwin.model.units import parse_duration_s
from hpctwin.policies.formula import formula
from hpctwin.policies.ordering import Ordering

__all__ = ["multifactor"]


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
) -> Ordering:
    """Slurm's priority/multifactor: a weighted sum of factors in [0, 1], largest first.

    Args:
        age: weight of (now - eligible) / max_age, at most 1.
        size: weight of nodes / nodes of the cluster; of 1 minus that with ``favor_small``.
        fairshare: weight of the fair-share factor; half-life and shares come from the cluster.
        partition: weight of the partition's priority, relative to the largest.
        qos: weight of the quality of service's priority, relative to the largest.
        trace: weight of the trace's own priority, not scaled (Slurm's job factor).
        max_age: age at which that factor is 1, seconds or text such as ``"7d"``.
        favor_small: as Slurm's PriorityFavorSmall.

    Raises:
        ConfigError: a value is not a number or duration.

    Source:
        Slurm's multifactor priority page (slurm.schedmd.com/priority_multifactor.html).
    """
    weights = {
        "age": age, "size": size, "fairshare": fairshare,
        "partition": partition, "qos": qos, "trace": trace,
    }  # fmt: skip
    for name, weight in weights.items():
        if not isinstance(weight, (int, float)) or weight < 0:
            raise ConfigError(f"multifactor: weight {name} is {weight!r}, it must be 0 or more")
    width = "(1 - nodes / machine_nodes)" if favor_small else "nodes / machine_nodes"
    terms = {
        "age": f"min((now - eligible) / {parse_duration_s(max_age)!r}, 1.0)",
        "size": width,
        "fairshare": "fairshare",
        "partition": "partition_priority",
        "qos": "qos_priority",
        "trace": "priority",
    }
    used = [f"{float(weights[name])!r} * {term}" for name, term in terms.items() if weights[name]]
    made = formula(f"-({' + '.join(used) or '0.0'})")
    given = {**weights, "max_age": max_age, "favor_small": favor_small}
    default = {k: p.default for k, p in inspect.signature(multifactor).parameters.items()}
    changed = [f"{k}={v}" for k, v in given.items() if v != default[k]]
    return dataclasses.replace(
        made,
        name="multifactor" + (f":{','.join(changed)}" if changed else ""),
        summary="Slurm's multifactor priority: age, size, fair share, partition, QOS",
    )
